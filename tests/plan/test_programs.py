"""Interpreters and servers that a matrix names and this machine has not."""

from __future__ import annotations

from pathlib import Path

import pytest

from matrixrun.evidence.errors import MatrixError
from matrixrun.plan import plan_file, require_programs

MATRIX = """\
name: small
engines:
  one:
    kind: llamacpp
    KEY: PROGRAM
models: {dense: {target: {path: org/target}}}
grid: {engine: one, model: dense, speculation: {method: ngram, num_speculative_tokens: 2}}
"""


def written(folder: Path, key: str, program: str) -> Path:
    (folder / "m.yaml").write_text(MATRIX.replace("KEY", key).replace("PROGRAM", program))
    return folder / "m.yaml"


@pytest.mark.parametrize(
    ("key", "program"),
    [("binary", "/nope/llama-server"), ("python", "/nope/python"), ("binary", "./here"),
     ("python", "no-such-python")],
)  # fmt: skip
def test_a_program_that_is_not_here_is_a_note_of_the_plan_and_stops_a_run_on_this_machine(
    tmp_path: Path, key: str, program: str
) -> None:
    file = written(tmp_path, key, program)
    matrix, plan = plan_file(file)
    assert plan.pairs
    (note,) = [note for note in plan.notes if "on this machine" in note]
    assert note.startswith(f"engines.one.{key}: ")
    with pytest.raises(MatrixError, match="is not there on this machine") as caught:
        require_programs(matrix, plan, file=str(file))
    assert (caught.value.line, caught.value.key) == (5, f"engines.one.{key}")
    assert caught.value.remedy


def test_a_file_that_is_no_program_says_so(tmp_path: Path) -> None:
    (tmp_path / "server").write_text("text")
    _, plan = plan_file(written(tmp_path, "binary", "./server"))
    assert any("cannot be executed" in note for note in plan.notes)


def test_a_program_that_is_here_or_in_an_image_is_no_news(tmp_path: Path) -> None:
    (tmp_path / "server").write_text("#!/bin/sh\n")
    (tmp_path / "server").chmod(0o755)
    for program in ("./server", "/nope/llama-server\n    image: some/image"):
        matrix, plan = plan_file(file := written(tmp_path, "binary", program))
        assert not [note for note in plan.notes if "on this machine" in note]
        require_programs(matrix, plan, file=str(file))
