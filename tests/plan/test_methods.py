"""Speculation methods by name: what is misspelt or lacks its draft is told before anything runs."""

from __future__ import annotations

from pathlib import Path

import pytest
from plan_matrices import GRID, plan

from matrixrun.evidence.errors import MatrixError
from matrixrun.plan import plan_file, render_text

MATRIX = """\
name: small
engines: {one: {kind: KIND}}
models: {dense: {target: {path: org/target}, drafts: {small: {path: org/draft}}}}
resources: {accelerator: H100}
grid:
  engine: one
  model: dense
  speculation:
    - {method: ngram, num_speculative_tokens: 2}
    - {method: METHOD, num_speculative_tokens: 2}
"""


def written(folder: Path, kind: str, method: str) -> Path:
    file = folder / "small.yaml"
    file.write_text(MATRIX.replace("KIND", kind).replace("METHOD", method))
    return file


def notes(method: str, kind: str) -> list[str]:
    engines = {"one": {"kind": kind, "python": "python3"}}
    grid = GRID | {"engine": "one", "prefix_caching": True}
    grid["speculation"] = {"method": method, "num_speculative_tokens": 2, "draft": "small"}
    return [note for note in plan(engines=engines, grid=grid).notes if "is no method" in note]


@pytest.mark.parametrize(
    ("kind", "method", "meant"),
    [
        ("llamacpp", "draft-simpel", "draft-simple"), ("llamacpp", "ngram-mod,ngram-simpl",
         "ngram-simple"),
        ("vllm", "eagel3", "eagle3"), ("sglang", "STANDALON", "standalone"),
    ],
)  # fmt: skip
def test_a_misspelt_method_is_told_and_passed_on(kind: str, method: str, meant: str) -> None:
    (note,) = notes(method, kind)
    assert f"did you mean `{meant}`?" in note
    assert method.rpartition(",")[2] in note


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        ("llamacpp", "draft-simple"), ("llamacpp", "draft_model"),
        ("llamacpp", "ngram-mod,draft-simple"),
        ("vllm", "eagle"), ("vllm", "deepseek_mtp"), ("vllm", "draft_model"),
        ("sglang", "EAGLE3"), ("sglang", "draft_model"), ("sglang", "DSPARK"),
    ],
)  # fmt: skip
def test_a_method_that_the_engine_has_is_no_news(kind: str, method: str) -> None:
    assert notes(method, kind) == []


@pytest.mark.parametrize(
    ("kind", "method"),
    [
        ("llamacpp", "draft-simple"), ("llamacpp", "draft_model"),
        ("llamacpp", '"ngram-mod,draft-simple"'),
        ("llamacpp", "eagle3"), ("vllm", "draft_model"), ("vllm", "eagle"), ("sglang", "eagle3"),
    ],
)  # fmt: skip
def test_a_method_that_needs_a_draft_says_so_where_it_stands(
    tmp_path: Path, kind: str, method: str
) -> None:
    with pytest.raises(MatrixError, match="none is named") as caught:
        plan_file(written(tmp_path, kind, method))
    assert (caught.value.line, caught.value.key) == (10, "grid.speculation[1]")
    assert "draft: small" in str(caught.value.remedy)


@pytest.mark.parametrize(("kind", "method"), [("vllm", "mtp"), ("sglang", "eagle")])
def test_a_method_that_may_use_the_targets_own_head_needs_no_draft(
    tmp_path: Path, kind: str, method: str
) -> None:
    assert plan_file(written(tmp_path, kind, method))[1].cells


def test_a_plan_whose_every_cell_is_refused_says_that_nothing_would_run() -> None:
    refused = {"vllm": {"kind": "vllm", "args": []}}
    speculation = {"method": "ngram", "num_speculative_tokens": 2}
    speculation["rejection_sample_method"] = "synthetic"
    grid = GRID | {"speculation": [speculation]}
    made = plan(engines=refused, grid=grid)
    assert not made.pairs
    assert "nothing would run" in render_text(made)
    assert "nothing would run" not in render_text(plan())
