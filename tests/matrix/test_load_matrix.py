"""What load does beyond refusing mistakes: per-arm overrides, paths, defaults."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from matrix_files import GOOD, Write, changed
from pydantic import ValidationError

from matrixrun.matrix import Matrix, error_at, load

Read = Callable[[str], Matrix]


def test_the_keys_on_and_off_are_the_arms(read: Read) -> None:
    text = changed(
        'args: ["--flag", "1"]', 'on: {args: ["--async"], env: {B: "2"}}, off: {env: {C: "3"}}'
    )
    engine = read(text).engines["vllm"]
    assert engine.on.args == ("--async",)
    assert engine.on.env == {"B": "2"}
    assert engine.off.env == {"C": "3"}


def test_defaults_are_those_of_the_gate(read: Read) -> None:
    matrix = read(GOOD)
    assert matrix.control == "between-launches"
    assert matrix.equality == "explained"
    assert matrix.probes == ("equality", "acceptance")
    assert (matrix.workload.prompts, matrix.workload.max_tokens) == (300, 256)


def test_a_matrix_cannot_be_changed(read: Read) -> None:
    with pytest.raises(ValidationError, match="frozen"):
        read(GOOD).seed = 1  # type: ignore[misc]


def test_paths_are_relative_to_the_files_folder(
    write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "overlay").mkdir()
    (tmp_path / "own.jsonl").write_text("{}\n")
    text = changed('install: ["vllm==1"]', "python: venv/bin/python\n    overlay: overlay")
    text = changed("path: org/small", "path: ./small", text)
    text = changed("path: org/ladder-fp8", "path: ../fp8", text)
    text += "workload: {path: own.jsonl}\nexpectations: kept/x.yaml\n"
    path = write(text)
    monkeypatch.chdir(tmp_path.parent)
    matrix = load(path.relative_to(tmp_path.parent))
    assert matrix.engines["other"].python == str(tmp_path / "venv/bin/python")
    assert matrix.engines["other"].overlay == str(tmp_path / "overlay")
    assert matrix.models["dense"].drafts["small"].path == str(tmp_path / "small")
    assert matrix.models["ladder"].targets["fp8"].path == str(tmp_path.parent / "fp8")
    assert matrix.workload.path == str(tmp_path / "own.jsonl")
    assert matrix.expectations == str(tmp_path / "kept/x.yaml")


@pytest.mark.parametrize("name", ["org/dense", "builtin:tiny-dense", "/models/dense"])
def test_what_is_no_relative_path_stays_as_written(name: str, read: Read) -> None:
    text = changed("path: org/dense", f'path: "{name}"')
    target = read(text).models["dense"].target
    assert target is not None
    assert target.path == name


def test_a_builtin_overlay_and_a_command_on_path_stay_names(read: Read) -> None:
    text = changed('install: ["vllm==1"]', 'python: python3.12\n    overlay: "builtin:x"')
    engine = read(text).engines["other"]
    assert (engine.python, engine.overlay) == ("python3.12", "builtin:x")


def test_an_overlay_that_is_not_there_is_refused(mistake: Callable[[str], Exception]) -> None:
    text = changed('install: ["vllm==1"]', 'install: ["vllm==1"]\n    overlay: nowhere')
    assert "engines.other.overlay: there is no folder" in str(mistake(text))


def test_other_rooms_can_point_at_a_key(read: Read) -> None:
    matrix = read(GOOD)
    key = ("engines", "vllm", "kind")
    error = error_at("good.yaml", matrix.source.positions, key, "unknown kind", "did you mean ...")
    assert str(error).startswith("good.yaml:3: engines.vllm.kind: unknown kind")
