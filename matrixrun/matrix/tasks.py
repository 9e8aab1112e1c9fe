"""The task file of the probe `accuracy`, in lm-evaluation-harness's own YAML, and its data.

It is read here with all that it names, so that it reaches every node as prompts do, and nothing is
fetched while a sweep runs. What would come from elsewhere is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import yaml

from matrixrun.evidence.requests import Task
from matrixrun.matrix.problems import Invalid, Problem, described, did_you_mean
from matrixrun.matrix.schema import AccuracySpec

MOST_BYTES = 64 * 2**20  # of data: it is sent to every launch
ELSEWHERE = ("include", "group", "use_prompt", "custom_dataset", "class")
"""Keys of a task file that take something from beside it, which would not come along."""

OWN_DATA = "write `dataset_path: json` and `dataset_kwargs: {data_files: {test: DATA.jsonl}}`"


class _Loader(yaml.SafeLoader):
    """YAML as lm-evaluation-harness reads it, its functions refused."""


def _function(_: yaml.SafeLoader, node: yaml.Node) -> Any:
    raise yaml.constructor.ConstructorError(
        None, None, "`!function` runs a program that does not come along", node.start_mark
    )


_Loader.add_constructor("!function", _function)


def read_task(spec: AccuracySpec, written: dict[str, str]) -> tuple[Task, dict[str, str]]:
    """Return the task, and its data files as resolved path -> path as written.

    `written` says how the matrix file writes the task's own path: data beside a task that travels
    with a job travels too.

    Raises:
        Invalid: with the key of the matrix file, and file and key of the task concerned.
    """
    path = Path(spec.task)
    settings = _settings(path)
    _refuse_elsewhere(path, settings)
    _refuse_other_tasks(path, settings)
    files, named = _data(path, settings, written.get(spec.task, str(path)))
    task = Task(
        name=_text(path, settings, "task"),
        yaml=yaml.safe_dump(settings, sort_keys=True, allow_unicode=True),
        files=files,
        metric=_choice(path, settings, "metric_list", "metric", spec.metric) or "",
        filter=_choice(path, settings, "filter_list", "name", spec.filter),
        limit=spec.limit,
    )
    return task, named


def task_digest(task: Task) -> str:
    """sha256 of the task file's content and of its data."""
    return hashlib.sha256(msgspec.msgpack.encode(task)).hexdigest()


def _invalid(path: Path, words: str, remedy: str, key: str = "task") -> Invalid:
    return Invalid(Problem(("accuracy", key), f"{path}: {words}", remedy))


def _settings(path: Path) -> dict[str, Any]:
    try:
        found = yaml.load(path.read_text(encoding="utf-8"), _Loader)
    except (OSError, UnicodeDecodeError) as error:
        raise _invalid(path, f"cannot be read: {error}", "save the file as UTF-8") from error
    except yaml.MarkedYAMLError as error:
        line = "" if error.problem_mark is None else f" (line {error.problem_mark.line + 1})"
        words = f"cannot be used{line}: {error.problem}"
        raise _invalid(path, words, "give a task in lm-evaluation-harness's YAML") from error
    except (yaml.YAMLError, ValueError) as error:  # the latter of a date that is none
        raise _invalid(path, f"is not YAML: {error}", "give a task file") from error
    if not isinstance(found, dict):
        words = f"must be a mapping, but is {described(found)}"
        raise _invalid(path, words, "give a task in lm-evaluation-harness's YAML")
    return found


def _text(path: Path, settings: dict[str, Any], key: str) -> str:
    value = settings.get(key)
    if not isinstance(value, str) or not value:
        raise _invalid(path, f"{key}: must be text, but is {described(value)}", f"write `{key}:`")
    return value


def _refuse_elsewhere(path: Path, settings: dict[str, Any]) -> None:
    for key in ELSEWHERE:
        if key in settings:
            words = f"{key}: takes something from outside this file, which would not come along"
            raise _invalid(path, words, "write all of the task into the one file")
    if isinstance(settings.get("task"), list):
        raise _invalid(path, "task: is a group of tasks", "name the file of one task")


def _refuse_other_tasks(path: Path, settings: dict[str, Any]) -> None:
    kind = settings.get("output_type", "generate_until")
    if kind != "generate_until":
        words = (
            f"output_type: {kind} reads the probabilities of given texts, which are computed in "
            "a prefill: nothing is drafted there, so that both arms do the same"
        )
        raise _invalid(path, words, "give a task of `output_type: generate_until`")
    generation = settings.get("generation_kwargs") or {}
    if not isinstance(generation, dict):
        words = f"generation_kwargs: must be a mapping, but is {described(generation)}"
        raise _invalid(path, words, "write `generation_kwargs: {until: [...], max_gen_toks: N}`")
    if generation.get("do_sample"):
        words = "generation_kwargs.do_sample: answers are compared greedily"
        raise _invalid(path, words, "remove it")


def _data(
    path: Path, settings: dict[str, Any], task_written: str
) -> tuple[dict[str, bytes], dict[str, str]]:
    """The data files' content by the name that `settings` is given for each, and how each is
    written; `settings` names no path afterwards."""
    if settings.get("dataset_path") != "json":
        words = f"dataset_path: {settings.get('dataset_path')!r} would be fetched from a hub"
        raise _invalid(path, words, OWN_DATA)
    arguments = settings.get("dataset_kwargs")
    splits = arguments.get("data_files") if isinstance(arguments, dict) else None
    if isinstance(splits, str | list):
        splits = {"train": splits}  # as the harness's own reader of files has it
    if not isinstance(arguments, dict) or not isinstance(splits, dict) or not splits:
        raise _invalid(path, "dataset_kwargs.data_files: names no data", OWN_DATA)
    _check_splits(path, settings, splits)
    files: dict[str, bytes] = {}
    written: dict[str, str] = {}
    renamed: dict[str, list[str]] = {}
    for split, names in splits.items():
        for name in names if isinstance(names, list) and names else [names]:
            found = _data_file(path, split, name)
            here = f"data-{len(files)}.jsonl"
            files[here] = _content(path, split, found)
            renamed.setdefault(str(split), []).append(here)
            with_task = not Path(name).is_absolute() and not task_written.startswith(("/", "~"))
            written[str(found)] = name if with_task else str(found)
    if sum(map(len, files.values())) > MOST_BYTES:
        words = f"its data is more than {MOST_BYTES // 2**20} MiB, which is sent to every launch"
        raise _invalid(path, words, "give the documents that are asked, and no more")
    settings["dataset_kwargs"] = {**arguments, "data_files": renamed}
    return files, written


def _check_splits(path: Path, settings: dict[str, Any], splits: dict[str, Any]) -> None:
    """The documents asked are those of `test_split`, else of `validation_split`."""
    asked = settings.get("test_split") or settings.get("validation_split")
    if asked is None:
        words = "names neither `test_split` nor `validation_split`"
        raise _invalid(path, words, f"add `test_split: {next(iter(splits))}`")
    for key in ("test_split", "validation_split", "training_split", "fewshot_split"):
        split = settings.get(key)
        if split is not None and (not isinstance(split, str) or split not in splits):
            words = f"{key}: dataset_kwargs.data_files has no split {split!r}"
            raise _invalid(path, words, did_you_mean(str(split), map(str, splits)))


def _data_file(path: Path, split: object, name: object) -> Path:
    key = f"dataset_kwargs.data_files.{split}"
    if not isinstance(name, str) or "://" in name or "\0" in name:
        words = f"{key}: must be a file on disk, but is {described(name)}"
        raise _invalid(path, words, "name a JSONL file, relative to the task file's folder")
    # Links stay: what travels with a job is laid out by its path.
    found = Path(os.path.normpath(path.parent / Path(name).expanduser()))
    if not found.is_file():
        remedy = "write a path relative to the task file's folder"
        raise _invalid(path, f"{key}: there is no file {found}", remedy)
    return found


def _content(path: Path, split: object, found: Path) -> bytes:
    """The content of a data file, in which each line that is not blank is a JSON object."""
    key = f"dataset_kwargs.data_files.{split}"
    try:
        data = found.read_bytes()
        wrong = next(_wrong_lines(data.decode()), None)
    except (OSError, UnicodeDecodeError) as error:
        words = f"{key}: {found} cannot be read: {error}"
        raise _invalid(path, words, "save it as JSON Lines in UTF-8") from error
    if wrong is not None or not data.strip():
        where = "is empty" if wrong is None else f"line {wrong} is no JSON object"
        raise _invalid(path, f"{key}: {found}: {where}", "write one JSON object a line")
    return data


def _wrong_lines(text: str) -> Iterator[int]:
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        try:
            good = isinstance(json.loads(line), dict)
        except ValueError:
            good = False
        if not good:
            yield number


def _choice(
    path: Path, settings: dict[str, Any], key: str, name: str, wanted: str | None
) -> str | None:
    """The metric or filter that is asked for, else the first that the task has; None where it has
    no filters."""
    listed = settings.get(key)
    entries = listed if isinstance(listed, list) else []
    known = [str(one[name]) for one in entries if isinstance(one, dict) and name in one]
    if not known and key == "metric_list":
        words = f"{key}: names no metric"
        raise _invalid(path, words, "write `metric_list: [{metric: exact_match}]`")
    if wanted is not None and wanted not in known:
        word = key.removesuffix("_list")
        remedy = did_you_mean(wanted, known)
        raise _invalid(path, f"{key} has no {name} {wanted!r}", remedy, key=word)
    return wanted or (known[0] if known else None)
