"""Narrowing a failure down to the settings it needs, one changed axis at a time.

As delta debugging does over inputs: a failing cell is compared with its neighbours, cells that
differ from it on one axis. Where the neighbour is good the setting is needed, where it fails too
the setting does not matter, and where nobody knows, that neighbour is what to run next. Which
cells belong together, and which of them is the one to start from, is what `localise` found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

import msgspec

from matrixrun.evidence.cells import AxisValue, Cell
from matrixrun.evidence.verdicts import CellResult, Verdict
from matrixrun.matrix.cell_identity import sort_key, value_key
from matrixrun.record import Store
from matrixrun.record.files import read_json
from matrixrun.signoff.causes import TOLD_FROM
from matrixrun.signoff.localise import localise, settings_of, word

Allowed = Callable[[Mapping[str, AxisValue]], Cell | None]
"""The cell that has these axes; None where the matrix file does not allow it."""

FILE = "localisation.json"
NARROWED = (Verdict.FAIL, Verdict.ERROR)


class Trial(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One setting of a failing cell, changed: `value` became `instead` in `cell`, which ended with
    `verdict`. Without a cell there is none that the matrix file allows; without a verdict it has
    not been run."""

    axis: str
    value: str
    instead: str = ""
    cell: str = ""
    verdict: Verdict | None = None


class Narrowed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a failing cell needs: with any one of `needed` changed it is good, changing one of
    `idle` does not help, of `unknown` nothing is known."""

    verdict: Verdict
    cell: str
    needed: tuple[Trial, ...] = ()
    idle: tuple[Trial, ...] = ()
    unknown: tuple[Trial, ...] = ()


class FollowUp(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What further cells told of a sweep's failures: `sweeps` are the names of their results
    folders, beside the sweep's own."""

    cells: int
    sweeps: tuple[str, ...] = ()
    narrowed: tuple[Narrowed, ...] = ()


def read_follow_up(store: Store) -> FollowUp | None:
    """Return what further cells told of a sweep; None where nobody asked.

    Raises:
        StoreError: the file is damaged.
    """
    path = store.root / FILE
    return read_json(path, FollowUp) if path.exists() else None


def narrow(
    results: Sequence[CellResult], values: Mapping[str, Sequence[AxisValue]], allowed: Allowed
) -> tuple[tuple[Narrowed, ...], tuple[Cell, ...]]:
    """Return what is known of each group of failing cells, and the cells whose verdicts would say
    the rest, most telling first.

    Failures that the matrix file expects are left alone.

    Args:
        results: all that has a verdict.
        values: what each axis may be changed to.
        allowed: which cells there may be.
    """
    found: list[Narrowed] = []
    wanted: dict[str, Cell] = {}
    for verdict in NARROWED:
        failing = [one for one in results if one.verdict is verdict and not one.expected]
        good = [one for one in results if one.verdict in TOLD_FROM[verdict]]
        for group in _groups(failing, good):
            told, further = _Group(group, good, results, values).narrow(allowed)
            found.append(told)
            wanted |= {cell.id: cell for cell in further}
    return tuple(found), tuple(wanted.values())


def sentence(one: Narrowed) -> str:
    """Return in words what a failure needs, with the cells that show it."""
    if one.needed:
        text = " and ".join(f"{trial.axis}={trial.value}" for trial in one.needed)
        shown = ", ".join(f"{t.axis}={t.instead}: {t.cell}" for t in one.needed)
        removed = "with that changed" if len(one.needed) == 1 else "with any one of them changed"
        parts = [f"{one.verdict} needs {text}; good {removed} ({shown})"]
    elif one.unknown:
        parts = [f"{one.verdict} in {one.cell}: no change of one setting is known to help"]
    else:
        parts = [f"{one.verdict} in {one.cell}: no change of one setting alone helps"]
    if one.idle:
        idle = ", ".join(f"{t.axis}={t.instead} is {t.verdict} too" for t in one.idle)
        parts.append(f"the rest does not matter ({idle})")
    if one.unknown:
        parts.append("not known: " + ", ".join(map(_unknown, one.unknown)))
    return "; ".join(parts)


def _unknown(trial: Trial) -> str:
    if not trial.cell:
        return f"{trial.axis} (the matrix file allows no other value here)"
    return f"{trial.axis} ({trial.instead}: {trial.verdict or 'not run'})"


def _groups(
    failing: Sequence[CellResult], good: Sequence[CellResult]
) -> Iterator[tuple[list[CellResult], frozenset[str]]]:
    """Return the failing cells by cause, each group with the axes that its cause names."""
    named = {one.cell.id: one for one in failing}
    found = localise([one.cell for one in failing], [one.cell for one in good])
    if found.everywhere:
        yield list(failing), frozenset()
    for cause in found.causes:
        axes = frozenset(condition.axis.split(".")[0] for condition in cause.conditions)
        yield [named[cell] for cell in cause.cells], axes
    for cell in found.unexplained:
        yield [named[cell]], frozenset()


class _Group:
    """Failing cells with one cause, and the one among them to start from: the nearest to a good
    cell, and of those the one whose neighbours are known best."""

    def __init__(
        self,
        group: tuple[list[CellResult], frozenset[str]],
        good: Sequence[CellResult],
        results: Sequence[CellResult],
        values: Mapping[str, Sequence[AxisValue]],
    ) -> None:
        failing, self._named = group
        self._good = good
        self._known = {sort_key(one.cell.axes): one for one in results}
        self._values = values
        self._start = min(failing, key=self._rank)

    def _rank(self, one: CellResult) -> tuple[int, int, str]:
        axes = one.cell.axes
        apart = (sum(axes[a] != other.cell.axes[a] for a in axes) for other in self._good)
        seen = sum(any(True for _ in self._neighbours(axes, axis)) for axis in axes)
        return min(apart, default=0), -seen, one.cell.id

    def _neighbours(self, axes: Mapping[str, AxisValue], axis: str) -> Iterator[CellResult]:
        """Return the cells with a verdict that differ from `axes` on this axis alone."""
        for value in self._values.get(axis, ()):
            known = self._known.get(sort_key({**axes, axis: value}))
            if known is not None and value != axes[axis]:
                yield known

    def narrow(self, allowed: Allowed) -> tuple[Narrowed, list[Cell]]:
        """Return what is known of each axis, and the neighbours that would say the rest."""
        start, good = self._start, {one.cell.id for one in self._good}
        needed: list[Trial] = []
        idle: list[Trial] = []
        unknown: list[Trial] = []
        further: list[tuple[bool, Cell]] = []
        for axis in start.cell.axes:
            known = list(self._neighbours(start.cell.axes, axis))
            helps = [one for one in known if one.cell.id in good]
            fails = [one for one in known if one.verdict is start.verdict]
            if helps:
                needed.append(self._trial(axis, helps[0].cell, helps[0].verdict))
            elif fails:
                idle.append(self._trial(axis, fails[0].cell, fails[0].verdict))
            elif others := self._others(axis):
                trial, cell = self._open(axis, others, known, allowed)
                unknown.append(trial)
                further += [] if cell is None else [(axis not in self._named, cell)]
        told = Narrowed(
            verdict=start.verdict,
            cell=start.cell.id,
            needed=tuple(needed),
            idle=tuple(idle),
            unknown=tuple(unknown),
        )
        # What the cause names is asked first.
        return told, [cell for _, cell in sorted(further, key=lambda one: one[0])]

    def _others(self, axis: str) -> list[AxisValue]:
        """Return the values to change to, those that the most good cells have first."""
        held = [value_key(one.cell.axes[axis]) for one in self._good]
        values = [v for v in self._values.get(axis, ()) if v != self._start.cell.axes[axis]]
        return sorted(values, key=lambda v: (-held.count(value_key(v)), value_key(v)))

    def _open(
        self,
        axis: str,
        others: Sequence[AxisValue],
        known: Sequence[CellResult],
        allowed: Allowed,
    ) -> tuple[Trial, Cell | None]:
        """Return what is not known of an axis, and the cell to run for it if there is one."""
        ended = {one.cell.id for one in known}
        for value in others:
            cell = allowed({**self._start.cell.axes, axis: value})
            if cell is not None and cell.id not in ended:
                return self._trial(axis, cell, None), cell
        if known:
            return self._trial(axis, known[0].cell, known[0].verdict), None
        return Trial(axis=axis, value=_word(self._start.cell, axis)), None

    def _trial(self, axis: str, cell: Cell, verdict: Verdict | None) -> Trial:
        return Trial(
            axis=axis,
            value=_word(self._start.cell, axis),
            instead=_word(cell, axis),
            cell=cell.id,
            verdict=verdict,
        )


def _word(cell: Cell, axis: str) -> str:
    return word(settings_of(cell)[axis])
