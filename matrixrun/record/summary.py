"""summary.json for programs, summary.md for people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matrixrun.evidence.verdicts import CellResult, Finding, Severity, Verdict, exit_text
from matrixrun.record.files import to_plain
from matrixrun.record.grid import Grid, counts, lay_out, verdict_words, worst_first


def summary(
    results: Sequence[CellResult], sweep: str, exit_code: int, *, pending: Sequence[str] = ()
) -> dict[str, Any]:
    """The content of summary.json: `sweep`, `exit_code`, `cells` and `pending`.

    Each cell has `id`, `axes`, `verdict`, `reason`, `expected`, `findings` (kind, severity, text,
    numbers), `metrics`, `coverage` and `fingerprint`. `pending` are cells without a verdict.
    """
    return {
        "sweep": sweep,
        "exit_code": exit_code,
        "cells": [_cell(result) for result in results],
        "pending": list(pending),
    }


def _cell(result: CellResult) -> dict[str, Any]:
    plain = to_plain(result)
    cell = plain.pop("cell")
    kept = ("verdict", "reason", "expected", "findings", "metrics", "coverage")
    head = {"id": cell["id"], "axes": cell["axes"]}
    return head | {key: plain[key] for key in kept} | {"fingerprint": cell["fingerprint"]}


def summary_markdown(
    results: Sequence[CellResult],
    sweep: str,
    exit_code: int | None,
    *,
    pending: Sequence[str] = (),
    headed: bool = True,
) -> str:
    """The content of summary.md: the matrix of verdicts and the findings in words.

    `exit_code` is None while the sweep runs. Without `headed` it begins with the matrix, for where
    a title stands above already."""
    head = [f"# {sweep}", "", counted(results, pending), ""] if headed else []
    if exit_code is not None:
        ends = [f"Exit code {exit_code}: {exit_text(exit_code, results)}.", ""]
    else:
        ends = []
    table = [*_table(lay_out(results)), ""] if results else []
    lines = [*head, *ends, *table] if headed else [*table, *ends]
    if any(result.expected for result in results):
        lines += ["`*` the matrix file expects this verdict.", ""]
    for result in worst_first(results):
        if result.verdict is not Verdict.PASS or result.findings:
            lines += [f"## {result.cell.id}", "", cell_markdown(result), ""]
    if pending:
        lines += ["## Without a verdict", "", *(f"- {cell}" for cell in pending), ""]
    return "\n".join(lines)


def counted(results: Sequence[CellResult], pending: Sequence[str] = ()) -> str:
    """`12 cells: 1 FAIL, 11 PASS`; cells without a verdict are named too."""
    total = len(results) + len(pending)
    words = [f"{number} {verdict}" for verdict, number in counts(results).items()]
    if pending:
        words.append(f"{len(pending)} without a verdict")
    return f"{total} cell{'' if total == 1 else 's'}: " + (", ".join(words) or "nothing ran")


def _table(grid: Grid) -> list[str]:
    head = "| " + " | ".join([grid.constant, *grid.columns]) + " |"
    rule = "|" + " --- |" * (len(grid.columns) + 1)
    body = [
        "| " + " | ".join([row, *("" if r is None else verdict_words(r) for r in results)]) + " |"
        for row, results in grid.rows
    ]
    return [head, rule, *body]


def cell_markdown(result: CellResult) -> str:
    """A cell's verdict, reason and findings as Markdown."""
    expected = " (expected by the matrix file)" if result.expected else ""
    lines = [f"**{result.verdict}**{expected}: {result.reason}"]
    if result.findings:
        lines += ["", *(finding_line(finding) for finding in by_severity(result.findings))]
    return "\n".join(lines)


def by_severity(findings: Sequence[Finding]) -> list[Finding]:
    """Faults before notices, otherwise as the judge gave them."""
    return sorted(findings, key=lambda finding: finding.severity is not Severity.FAULT)


def finding_line(finding: Finding) -> str:
    """One finding as a Markdown list item."""
    return f"- {finding.severity} `{finding.kind}`: {finding.text}"
