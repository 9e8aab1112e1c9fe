"""A job takes along what its matrix file names beside itself, and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from matrixrun.evidence.errors import UserError
from matrixrun.fanout import parcel
from matrixrun.matrix import load

TEXT = """\
name: small
engines: {{vllm: {{kind: vllm{engine}}}}}
models: {{dense: {{target: {{path: {target}}}}}}}
grid: {{engine: vllm, model: dense, speculation: {{method: ngram, num_speculative_tokens: 2}}}}
workload: {{prompts: 3, path: {prompts}}}
"""


def folder(root: Path, **changes: str) -> Path:
    """A folder with a matrix file, prompts beside and above it, an overlay, and other things."""
    here = root / "project" / "matrices"
    (here / "overlay").mkdir(parents=True)
    (here / "overlay" / "sitecustomize.py").write_text("x = 1\n")
    (here / "secrets.txt").write_text("not asked for\n")
    (here.parent / "prompts.jsonl").write_text('{"prompt": "a"}\n' * 3)
    values = {"engine": "", "target": "org/target", "prompts": "../prompts.jsonl", **changes}
    (here / "m.yaml").write_text(TEXT.format(**values))
    return here / "m.yaml"


def carried(root: Path) -> set[str]:
    return {p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file()}


def test_the_matrix_and_what_it_names_keep_their_places_and_nothing_else_goes(
    tmp_path: Path,
) -> None:
    file = folder(tmp_path, engine=", overlay: overlay")
    into = tmp_path / "into"
    into.mkdir()
    packed = parcel.pack(file, load(file), into)
    assert packed == into / "matrices" / "m.yaml"
    assert carried(into) == {
        "matrices/m.yaml",
        "matrices/overlay/sitecustomize.py",
        "prompts.jsonl",
    }
    assert load(packed).workload.path == str(into / "prompts.jsonl")


def test_what_is_named_by_an_absolute_path_stays_where_it_is(tmp_path: Path) -> None:
    file = folder(tmp_path, prompts=str(tmp_path / "project" / "prompts.jsonl"))
    into = tmp_path / "into"
    into.mkdir()
    parcel.pack(file, load(file), into)
    assert carried(into) == {"m.yaml"}


def test_an_interpreter_beside_the_file_cannot_travel(tmp_path: Path) -> None:
    file = folder(tmp_path, engine=", python: ./venv/bin/python")
    with pytest.raises(UserError, match=r"engines\.vllm\.python: \./venv/bin/python"):
        parcel.pack(file, load(file), tmp_path / "into")


def test_a_checkpoint_too_large_for_a_job_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = folder(tmp_path, target="./weights")
    (file.parent / "weights").mkdir()
    (file.parent / "weights" / "model.safetensors").write_bytes(b"0" * 5000)
    monkeypatch.setattr(parcel, "MOST_BYTES", 4000)
    with pytest.raises(UserError, match="weights"):
        parcel.pack(file, load(file), tmp_path / "into")


def test_a_task_takes_its_data_along(tmp_path: Path) -> None:
    file = folder(tmp_path)
    (file.parent / "tasks").mkdir()
    (file.parent / "tasks" / "sums.yaml").write_text(
        "task: sums\ndataset_path: json\ndataset_kwargs: {data_files: {test: ../../sums.jsonl}}\n"
        "test_split: test\nmetric_list: [{metric: exact_match}]\n"
    )
    (file.parent.parent / "sums.jsonl").write_text('{"question": "1 + 1 ="}\n')
    file.write_text(
        file.read_text() + "probes: [equality, accuracy]\naccuracy: {task: tasks/sums.yaml}\n"
    )
    into = tmp_path / "into"
    into.mkdir()
    packed = parcel.pack(file, load(file), into)
    assert {"matrices/tasks/sums.yaml", "sums.jsonl"} <= carried(into)
    assert load(packed).source.task == load(file).source.task
