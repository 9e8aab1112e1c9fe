"""Findings and verdicts: what the judge says."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import msgspec

from matrixrun.evidence.cells import Cell
from matrixrun.evidence.launches import LaunchOutcome
from matrixrun.evidence.requests import PassRecord, ProbeRecords, ScoreRequest


class Verdict(StrEnum):
    """The six ends of a cell."""

    PASS = "PASS"
    FAIL = "FAIL"
    INCONCLUSIVE = "INCONCLUSIVE"
    INACTIVE = "INACTIVE"
    REFUSED = "REFUSED"
    ERROR = "ERROR"


class Severity(StrEnum):
    FAULT = "fault"
    NOTICE = "notice"


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing the judge found: `kind` is a witness's name (`unexplained-token`, `regret`,
    `acceptance`, `degeneration`, ...), `text` a sentence for a person, `numbers` its figures."""

    kind: str
    severity: Severity
    text: str
    numbers: dict[str, Any] = {}


class CellEvidence(msgspec.Struct, frozen=True, kw_only=True):
    """Everything observed for a cell, by reference; written once, never changed.

    `records` maps what a pass was for to its record: `on`, `off`, `null` (the control), and
    `on.scores`, `null.scores` ... on launch A; `probes` holds what further probes observed.
    `outcomes` maps roles (`on`, `A`, `B`) to outcomes.
    """

    cell: Cell
    outcomes: dict[str, LaunchOutcome]
    records: dict[str, PassRecord]
    workload_sha256: str
    settings_sha256: str
    program: str
    probes: tuple[ProbeRecords, ...] = ()

    def all_records(self) -> dict[str, PassRecord]:
        """Every record by what its pass was for, those of further probes as
        `<probe>.<arm>.<number>`, with `.scores` behind it for scores."""
        found = dict(self.records)
        for one in self.probes:
            for number, record in enumerate(one.passes):
                found[f"{one.kind}.{one.arm}.{number}"] = record
            for number, record in enumerate(one.scores):
                found[f"{one.kind}.{one.arm}.{number}.scores"] = record
        return found


class CellResult(msgspec.Struct, frozen=True, kw_only=True):
    """A cell's verdict. `reason` is one sentence; `metrics` are named `group/name.off|.on`;
    `expected` is set when the matrix file expects this verdict."""

    cell: Cell
    verdict: Verdict
    reason: str
    findings: tuple[Finding, ...] = ()
    metrics: dict[str, float] = {}
    coverage: dict[str, int] = {}
    expected: bool = False


class Want(msgspec.Struct, frozen=True, kw_only=True):
    """More evidence that the judge asks for: tokens of `cell` to be scored again on launch A."""

    cell: str
    scores: tuple[ScoreRequest, ...]


# The ends of a cell in which nothing of its outputs was looked at.
UNMEASURED = frozenset({Verdict.REFUSED, Verdict.ERROR})

EXIT_CODES: dict[int, str] = {
    0: "nothing against shipping (REFUSED cells are listed, where there are any)",
    1: "a FAIL or an ERROR",
    2: "interrupted or incomplete, or evidence that is damaged",
    3: "internal error",
    4: "bad input or usage",
    5: "nothing to run, or nothing measured since every cell was refused",
    6: "INCONCLUSIVE or INACTIVE, and nothing worse",
}

EXIT_PRECEDENCE = (4, 3, 1, 2, 6, 5, 0)


def exit_text(code: int, results: Sequence[CellResult]) -> str:
    """Return what an exit code says of these results: `EXIT_CODES` without what does not apply."""
    refused = any(result.verdict is Verdict.REFUSED for result in results)
    if code == 0 and not refused:
        return "nothing against shipping"
    if code == 0:
        return "nothing against shipping (REFUSED cells are listed)"
    if code == 2:
        return "interrupted or incomplete"
    if code == 5:
        return "nothing was measured: every cell was refused" if results else "nothing to run"
    return EXIT_CODES.get(code, "unknown")
