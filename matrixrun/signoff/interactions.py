"""What a covering sweep covered: combinations of values planned, and those with a verdict."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import msgspec

from matrixrun.evidence.cells import Cell
from matrixrun.evidence.verdicts import CellResult, Verdict
from matrixrun.matrix import Interactions
from matrixrun.plan import interaction_lines
from matrixrun.signoff.axes import axis_word

DECIDED = frozenset({Verdict.PASS, Verdict.FAIL})
"""A combination is covered in fact where arms were compared and the judge could say what is so."""

MOST_OPEN = 20


class Interaction(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Some axes together: how many combinations of their values are planned and `decided`; `open`
    are those that only cells without a PASS or FAIL have (the first twenty)."""

    axes: tuple[str, ...]
    planned: int
    decided: int
    open: tuple[str, ...] = ()


class Covered(msgspec.Struct, frozen=True, kw_only=True):
    """What a covering sweep holds, in words, and by axes."""

    lines: tuple[str, ...]
    planned: int
    decided: int
    interactions: tuple[Interaction, ...]


def covered(
    held: Interactions | None, cells: Sequence[Cell], results: Sequence[CellResult]
) -> Covered | None:
    """Return which combinations came to a verdict; None for a sweep of the full grid."""
    if held is None:
        return None
    judged = [result.cell for result in results if result.verdict in DECIDED]
    found = tuple(
        _interaction(axes, cells, judged)
        for axes in itertools.combinations(held.axes, held.strength)
    )
    return Covered(
        lines=tuple(interaction_lines(held, len(cells))),
        planned=sum(one.planned for one in found),
        decided=sum(one.decided for one in found),
        interactions=found,
    )


def _interaction(
    axes: tuple[str, ...], cells: Sequence[Cell], judged: Sequence[Cell]
) -> Interaction:
    planned, decided = _combinations(axes, cells), _combinations(axes, judged)
    left = [" with ".join(words) for words in planned if words not in decided]
    return Interaction(
        axes=axes,
        planned=len(planned),
        decided=len(planned) - len(left),
        open=tuple(left[:MOST_OPEN]),
    )


def _combinations(axes: Sequence[str], cells: Sequence[Cell]) -> dict[tuple[str, ...], None]:
    return dict.fromkeys(tuple(axis_word(axis, cell.axes[axis]) for axis in axes) for cell in cells)
