"""The support table: made from the code, and every claim in it held to its source."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from matrixrun import engines
from matrixrun.evidence.cells import Cell, Speculation
from matrixrun.matrix import AXES, expand, load
from matrixrun.plan import support

ROOT = Path(__file__).parents[2]
LOGS = ROOT / "tests" / "engines" / "logs"


def lines(key: str) -> Iterator[Any]:
    for kind in engines.kinds():
        for line in support.known(kind).get(key, ()):
            yield pytest.param(kind, line, id=f"{kind}-{'-'.join(map(str, line.values()))[:60]}")


def test_the_page_is_what_the_code_says() -> None:
    written = (ROOT / "docs" / "support.md").read_text(encoding="utf-8")
    assert written == support.render(), "write it anew: matrixrun support > docs/support.md"


@pytest.mark.parametrize(("kind", "line"), list(lines("ran")))
def test_what_is_said_to_run_is_run_by_the_matrix_or_the_test_that_is_named(
    kind: str, line: dict[str, Any]
) -> None:
    file, _, test = line["by"].partition("::")
    if test:
        assert test in functions(ROOT / file), line["by"]
        return
    matrix = load(ROOT / file)
    assert matrix.resources.accelerator is None, "it does not run here"
    assert any(
        agrees(cell, line) and matrix.engines[str(cell.axes["engine"])].kind == kind
        for cell in expand(matrix, file=file).cells
        if not any(matches(expected.when, cell) for expected in matrix.expect)
    ), f"{file} has no such cell that is expected to be judged"


@pytest.mark.parametrize(("kind", "line"), [*lines("refused"), *lines("dies")])
def test_what_the_engine_is_said_to_say_stands_in_its_log(kind: str, line: dict[str, Any]) -> None:
    log = (LOGS / f"{line['log']}.log").read_text()
    recognised = engines.get(kind).recognise_refusal(log)
    refused = line in support.known(kind).get("refused", ())
    assert line["words"] in (recognised or "" if refused else log)
    assert refused == (recognised is not None)


def test_an_engine_that_nobody_wrote_lines_for_has_a_table_too() -> None:
    assert {one["method"] for one in support.known("some-new-engine")["methods"]} >= {"ngram"}


def test_what_an_adapter_refuses_or_cannot_say_is_no_yes() -> None:
    rows = {
        (kind, cells[0].strip("` ")): dict(zip(header, cells, strict=True))
        for kind, header, cells in tables()
    }
    assert rows["llamacpp", "ngram-simple"]["DP 2"] == support.NOT
    assert rows["llamacpp", "ngram-simple"]["TP 2 x PP 2"] == support.NOT
    assert rows["llamacpp", "draft-simple, spec_synth_len: 2"]["alone"] == support.OURS
    assert rows["vllm", "ngram, rejection_sample_method: synthetic"]["alone"] == support.OURS
    assert rows["vllm", "eagle3"]["PP 2"] == support.ASKABLE
    assert rows["vllm", "ngram"]["alone"] == support.RUNS


def tables() -> Iterator[tuple[str, list[str], list[str]]]:
    kind, header = "", []
    for line in support.render().splitlines():
        if line.startswith("## "):
            kind, header = line[3:], []
        elif line.startswith("| ") and kind:
            cells = [cell.strip() for cell in line.strip("| ").split(" | ")]
            if not header:
                header = cells
            else:
                yield kind, header, cells


def functions(file: Path) -> set[str]:
    tree = ast.parse(file.read_text(encoding="utf-8"))
    return {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}


def agrees(cell: Cell, line: dict[str, Any]) -> bool:
    speculation = cell.axes["speculation"]
    assert isinstance(speculation, Speculation)
    axes = {axis.name for axis in AXES} & line.keys()
    return speculation.method == line["method"] and all(
        cell.axes[name] == line[name] for name in axes
    )


def matches(when: dict[str, Any], cell: Cell) -> bool:
    from matrixrun.evidence.verdicts import Verdict
    from matrixrun.judge.settings import ExpectedVerdict

    return ExpectedVerdict(when=when, verdict=Verdict.ERROR, reason="").matches(cell)
