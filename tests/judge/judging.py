"""How tests ask the judge about whole cells: its final result, and the kinds it found."""

from __future__ import annotations

from dataclasses import replace

from matrixrun.evidence.requests import Observation
from matrixrun.evidence.verdicts import CellResult, Severity
from matrixrun.judge import CellObservations, JudgeSettings, judge_sweep

from .simulator import Arm, Pair, answer, observe

SETTINGS = JudgeSettings(detect_rate=0.1)
LEAKY = Arm(accept=0.7, seed=1, let_through=0.02)


def judged(cell: CellObservations, pair: Pair, settings: JudgeSettings = SETTINGS) -> CellResult:
    """Return the final result: what the judge wants to be scored again is scored."""
    first = judge_sweep([cell], settings)
    if not first.wants:
        return first.results[0]
    cell = replace(cell, confirmations=answer(pair, first.wants))
    second = judge_sweep([cell], settings)
    assert second.wants == ()
    return second.results[0]


def answers(pair: Pair) -> tuple[tuple[Observation, ...], ...]:
    """Return what the on arm, the off arm and its control answer to the pair's prompts."""
    return tuple(observe(pair, arm, role) for arm, role in
                 ((pair.on, "on"), (pair.off, "off"), (pair.null, "null")))  # fmt: skip


def kinds(result: CellResult, severity: Severity = Severity.FAULT) -> set[str]:
    """Return the kinds of the findings of that severity."""
    return {finding.kind for finding in result.findings if finding.severity is severity}
