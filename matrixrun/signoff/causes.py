"""What broke, in groups: cells with the same words, and the settings that bring each verdict on."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from matrixrun.evidence.verdicts import CellResult, Severity, Verdict
from matrixrun.record.grid import worst_first
from matrixrun.signoff.localise import Localisation, localise, sentence

# Which verdicts a bad one is told from. A cell that was never compared says nothing about FAIL,
# one that compared well or badly did start.
TOLD_FROM: dict[Verdict, frozenset[Verdict]] = {
    Verdict.FAIL: frozenset({Verdict.PASS}),
    Verdict.ERROR: frozenset({Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE, Verdict.INACTIVE}),
    Verdict.INCONCLUSIVE: frozenset({Verdict.PASS, Verdict.FAIL}),
    Verdict.INACTIVE: frozenset({Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE}),
    Verdict.REFUSED: frozenset(Verdict) - {Verdict.REFUSED},
}


class Localised(msgspec.Struct, frozen=True, kw_only=True):
    """Where a verdict comes from, in words and as data."""

    verdict: Verdict
    text: str
    localisation: Localisation


class Group(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Cells that ended alike: the same verdict, reason and kinds of faults."""

    verdict: Verdict
    reason: str
    cells: tuple[str, ...]
    faults: tuple[str, ...] = ()
    expected: bool = False


def localised(results: Sequence[CellResult]) -> tuple[Localised, ...]:
    """Return the causes of every verdict but PASS, worst first."""
    told = []
    for verdict, good in TOLD_FROM.items():
        failing = [result.cell for result in results if result.verdict is verdict]
        if not failing:
            continue
        found = localise(failing, [r.cell for r in results if r.verdict in good])
        text = sentence(found, verdict.value)
        told.append(Localised(verdict=verdict, text=text, localisation=found))
    return tuple(told)


def groups(results: Sequence[CellResult]) -> tuple[Group, ...]:
    """Return what is not simply PASS in groups, worst first, the larger groups first."""
    found: dict[tuple[Verdict, bool, str, tuple[str, ...]], list[CellResult]] = {}
    for result in worst_first(results):
        if result.verdict is Verdict.PASS:
            continue
        kinds = dict.fromkeys(f.kind for f in result.findings if f.severity is Severity.FAULT)
        # FAIL reasons name requests and tokens, so no two are alike: their kinds are.
        reason = "" if result.verdict is Verdict.FAIL else result.reason
        key = (result.verdict, result.expected, reason, tuple(kinds))
        found.setdefault(key, []).append(result)
    order = list(TOLD_FROM)
    ranked = sorted(found.items(), key=lambda one: (order.index(one[0][0]), -len(one[1])))
    return tuple(
        Group(
            verdict=key[0],
            reason=cells[0].reason,
            cells=tuple(one.cell.id for one in cells),
            faults=key[3],
            expected=key[1],
        )
        for key, cells in ranked
    )
