"""The task of the probe `accuracy` is read with all that it names; what would come from elsewhere,
or would compare nothing, is refused with file, key and remedy."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from matrix_files import GOOD

from matrixrun.evidence.errors import MatrixError
from matrixrun.matrix import Matrix, expand, load

TASKS = Path(__file__).parents[1] / "e2e" / "accuracy_task"
TASK: dict[str, Any] = {
    "task": "sums",
    "dataset_path": "json",
    "dataset_kwargs": {"data_files": {"test": "sums.jsonl"}},
    "test_split": "test",
    "output_type": "generate_until",
    "doc_to_text": "{{question}}",
    "doc_to_target": "{{answer}}",
    "generation_kwargs": {"until": ["\n"]},
    "metric_list": [{"metric": "exact_match"}, {"metric": "other"}],
    "filter_list": [{"name": "strict", "filter": []}, {"name": "loose", "filter": []}],
}
SECTION = "probes: [equality, accuracy]\naccuracy: {task: tasks/sums.yaml}\n"
Made = Callable[..., Path]


@pytest.fixture
def made(tmp_path: Path) -> Made:
    """Writes a matrix file and a task; `changes` are the task's, None takes a key out."""

    def make(
        section: str = SECTION, data: str = '{"question": "1 + 1 ="}\n', **changes: Any
    ) -> Path:
        tasks = tmp_path / "tasks"
        tasks.mkdir(exist_ok=True)
        task = {key: one for key, one in (TASK | changes).items() if one is not None}
        (tasks / "sums.yaml").write_text(yaml.safe_dump(task))
        (tasks / "sums.jsonl").write_text(data)
        (tmp_path / "m.yaml").write_text(GOOD + section)
        return tmp_path / "m.yaml"

    return make


def read(file: Path) -> Matrix:
    return load(file)


def refused(file: Path) -> MatrixError:
    with pytest.raises(MatrixError) as raised:
        load(file)
    return raised.value


def test_the_task_comes_with_its_data_and_names_no_path(made: Made) -> None:
    task = read(made()).source.task
    assert task is not None
    assert (task.name, task.metric, task.filter, task.limit) == (
        "sums",
        "exact_match",
        "strict",
        None,
    )
    assert yaml.safe_load(task.yaml)["dataset_kwargs"]["data_files"] == {"test": ["data-0.jsonl"]}
    assert task.files == {"data-0.jsonl": b'{"question": "1 + 1 ="}\n'}


def test_metric_filter_and_limit_can_be_chosen(made: Made) -> None:
    chosen = "{task: tasks/sums.yaml, limit: 5, metric: other, filter: loose}"
    task = read(made(f"probes: [equality, accuracy]\naccuracy: {chosen}\n")).source.task
    assert task is not None
    assert (task.metric, task.filter, task.limit) == ("other", "loose", 5)


def test_data_beside_a_task_that_travels_travels_with_it(made: Made, tmp_path: Path) -> None:
    written = read(made()).source.written
    assert written[str(tmp_path / "tasks" / "sums.jsonl")] == "sums.jsonl"
    absolute = f"accuracy: {{task: {tmp_path / 'tasks' / 'sums.yaml'}}}\n"
    written = read(made("probes: [equality, accuracy]\n" + absolute)).source.written
    assert written[str(tmp_path / "tasks" / "sums.jsonl")].startswith("/")


WRONG: dict[str, tuple[dict[str, Any], str, str]] = {
    "hub data": ({"dataset_path": "openai/gsm8k"}, "'openai/gsm8k'", "dataset_path: json"),
    "no data": ({"dataset_kwargs": None}, "data_files: names no data", "DATA.jsonl"),
    "data missing": (
        {"dataset_kwargs": {"data_files": {"test": "x.jsonl"}}},
        "there is no file", "task file's folder",
    ),
    "data at an address": (
        {"dataset_kwargs": {"data_files": {"test": "https://h/x.jsonl"}}},
        "must be a file on disk", "JSONL",
    ),
    "data that is no name": (
        {"dataset_kwargs": {"data_files": {"test": 3}}}, "must be a file on disk", "JSONL",
    ),
    "no file in a list": (
        {"dataset_kwargs": {"data_files": {"test": []}}}, "must be a file on disk", "JSONL",
    ),
    "a split that is a list": ({"test_split": ["test"]}, "no split ['test']", ""),
    "no split asked": ({"test_split": None}, "neither `test_split`", "test_split: test"),
    "no such split": ({"test_split": "tset"}, "no split 'tset'", "did you mean `test`"),
    "include": ({"include": "base.yaml"}, "include: takes something", "the one file"),
    "group": ({"task": ["a", "b"]}, "group of tasks", "one task"),
    "no name": ({"task": None}, "task: must be text", "write `task:`"),
    "likelihoods": ({"output_type": "multiple_choice"}, "nothing is drafted", "generate_until"),
    "generation": ({"generation_kwargs": [1]}, "generation_kwargs: must be a mapping", "until"),
    "sampled": ({"generation_kwargs": {"do_sample": True}}, "do_sample", "remove"),
    "no metric": ({"metric_list": None}, "metric_list: names no metric", "exact_match"),
}  # fmt: skip


@pytest.mark.parametrize("name", sorted(WRONG))
def test_a_task_that_cannot_be_put_is_refused_when_it_is_planned(name: str, made: Made) -> None:
    changes, words, remedy = WRONG[name]
    error = refused(made(**changes))
    assert error.key == "accuracy.task"
    assert error.line is not None
    assert "sums.yaml" in error.message
    assert words in error.message
    assert remedy in (error.remedy or "")


def test_a_function_in_a_task_is_refused(made: Made, tmp_path: Path) -> None:
    file = made()
    (tmp_path / "tasks" / "sums.yaml").write_text("task: a\ndoc_to_text: !function utils.text\n")
    error = refused(file)
    assert "(line 2): `!function` runs a program" in error.message


@pytest.mark.parametrize(
    ("text", "words"), [("a: [1", "cannot be used"), ("- a", "must be a mapping"), ("", "empty")]
)
def test_what_is_no_task_file_is_told(text: str, words: str, made: Made, tmp_path: Path) -> None:
    file = made()
    (tmp_path / "tasks" / "sums.yaml").write_text(text)
    assert words in refused(file).message


@pytest.mark.parametrize(
    ("data", "words"), [('{"a": 1}\n[2]\n', "line 2"), ("x\n", "line 1"), ("\n", "is empty")]
)
def test_data_that_is_no_json_lines_is_told_with_its_line(
    data: str, words: str, made: Made
) -> None:
    assert words in refused(made(data=data)).message


def test_a_date_that_is_none_is_told(made: Made, tmp_path: Path) -> None:
    file = made()
    with (tmp_path / "tasks" / "sums.yaml").open("a") as task:
        task.write("made: 2024-13-01\n")
    assert "is not YAML" in str(refused(file))


def test_data_behind_a_link_keeps_the_path_that_a_job_lays_it_out_by(
    made: Made, tmp_path: Path
) -> None:
    file = made()
    data = tmp_path / "tasks" / "sums.jsonl"
    data.rename(tmp_path / "elsewhere.jsonl")
    data.symlink_to(tmp_path / "elsewhere.jsonl")
    assert read(file).source.written[str(data)] == "sums.jsonl"


def test_a_task_that_is_not_there_is_told(made: Made) -> None:
    error = refused(made("probes: [equality, accuracy]\naccuracy: {task: nowhere.yaml}\n"))
    assert (error.key, "there is no file" in error.message) == ("accuracy.task", True)


@pytest.mark.parametrize(
    ("section", "key", "words"),
    [
        ("probes: [equality, accuracy]\n", "probes[1]", "has no task"),
        ("accuracy: {task: tasks/sums.yaml}\n", "accuracy", "has no effect"),
        (SECTION.replace("yaml}", "yaml, metric: exact}"), "accuracy.metric", "no metric 'exact'"),
        (SECTION.replace("yaml}", "yaml, filter: los}"), "accuracy.filter", "no name 'los'"),
    ],
)
def test_probe_and_section_belong_together(section: str, key: str, words: str, made: Made) -> None:
    error = refused(made(section))
    assert (error.key, words in error.message) == (key, True)


def fingerprints(file: Path) -> set[str]:
    matrix = load(file)
    return {cell.fingerprint for cell in expand(matrix, file=str(file)).cells}


def test_the_content_of_task_and_data_is_part_of_the_fingerprint(made: Made) -> None:
    plain = fingerprints(made())
    assert fingerprints(made()) == plain
    assert fingerprints(made(data='{"question": "1 + 2 ="}\n')) != plain
    assert fingerprints(made(doc_to_text="Q: {{question}}")) != plain
    assert fingerprints(made(SECTION.replace("yaml}", "yaml, limit: 3}"))) != plain


def test_the_task_of_the_engine_tests_is_what_its_program_writes() -> None:
    command = [sys.executable, str(TASKS / "word_pairs.py")]
    made = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert made == (TASKS / "word-pairs.jsonl").read_text()
    assert len({json.loads(line)["question"] for line in made.splitlines()}) == 60
