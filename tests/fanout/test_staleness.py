"""A results folder that no longer fits says which cells are stale, and what has changed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from matrixrun import plan as planning
from matrixrun.evidence.errors import UserError
from matrixrun.evidence.verdicts import CellEvidence
from matrixrun.fanout import RunOptions, run_matrix
from matrixrun.fanout.staleness import differing
from matrixrun.record import Store

NOTHING_MEASURED = 5  # every cell is refused
MATRIX = """\
name: small
engines: {vllm: {kind: vllm, env: {HF_TOKEN: hf_secret_value}}}
models: {dense: {target: {path: org/target}}}
grid:
  engine: vllm
  model: dense
  batch_size: [1, 4]
  speculation: {method: ngram, num_speculative_tokens: 2, rejection_sample_method: synthetic}
workload: {prompts: 3, path: prompts.jsonl}
"""


def run(folder: Path) -> int:
    options = RunOptions(results=folder / "out", track=False, quiet=True)
    return run_matrix(folder / "m.yaml", options, lambda store: store.root).code


def write_prompts(folder: Path, texts: str) -> None:
    lines = [json.dumps({"prompt": text}) for text in texts]
    (folder / "prompts.jsonl").write_text("\n".join(lines))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A sweep that has ended: its cells are refused, so nothing was launched."""
    write_prompts(tmp_path, "abc")
    (tmp_path / "m.yaml").write_text(MATRIX)
    assert run(tmp_path) == NOTHING_MEASURED
    return tmp_path


def evidence(folder: Path) -> list[CellEvidence]:
    return list(Store.open(folder / "out").evidences())


def test_a_changed_matrix_is_told_by_key_and_by_cell(folder: Path) -> None:
    before = evidence(folder)
    changed = MATRIX.replace("[1, 4]", "[4, 8]").replace("hf_secret_value", "hf_other_value")
    (folder / "m.yaml").write_text(changed)
    with pytest.raises(UserError) as caught:
        run(folder)
    said = str(caught.value)
    assert "engines.vllm.env.HF_TOKEN, grid.batch_size" in said
    assert "no longer in the file: vllm.dense.ngram-k2-" in said
    assert "secret" not in said
    assert "other_value" not in said
    assert evidence(folder) == before


def test_cells_that_a_change_makes_stale_are_named(folder: Path) -> None:
    (folder / "m.yaml").write_text(MATRIX.replace("prompts: 3,", "prompts: 2,"))
    with pytest.raises(UserError, match=r"workload\.prompts.*0 would be the same; stale: vllm"):
        run(folder)


def test_comments_change_nothing_but_the_file(folder: Path) -> None:
    (folder / "m.yaml").write_text(MATRIX + "# a remark\n")
    with pytest.raises(UserError, match=r"only comments.*2 finished cells 2 would be the same"):
        run(folder)


def test_other_prompts_under_the_same_matrix_are_noticed(folder: Path) -> None:
    write_prompts(folder, "abd")
    with pytest.raises(UserError, match=r"2 of 2 cells.*matrix file is the same"):
        run(folder)


def test_the_same_again_resumes_and_repeats_nothing(folder: Path) -> None:
    before = evidence(folder)
    assert run(folder) == NOTHING_MEASURED
    assert evidence(folder) == before


def test_damaged_evidence_is_set_aside_and_its_cell_run_again(folder: Path) -> None:
    before = evidence(folder)
    (file, _) = sorted((folder / "out" / "cells").glob("*/evidence.json"))
    cut = file.read_text()[:40]
    file.write_text(cut)
    assert run(folder) == NOTHING_MEASURED
    assert evidence(folder) == before
    (kept,) = (folder / "out" / "damaged").glob("*/evidence.json")
    assert kept.read_text() == cut
    assert len(planning.plan_file(folder / "m.yaml")[1].cells) == len(before)


def test_differences_are_keys_and_no_values() -> None:
    old = {"a": 1, "b": {"c": [1], "d": 2}}
    new = {"a": 1, "b": {"c": [2], "e": 2}}
    assert list(differing(old, new)) == ["b.c", "b.d", "b.e"]
