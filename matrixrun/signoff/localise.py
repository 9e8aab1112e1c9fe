"""Which settings fail: the smallest combination of axis values that explains a set of cells. Pure.

A combination explains failures when it matches no cell that is known to be good. The search is
over all combinations of up to four conditions: the one that covers the most failures, of those the
one with the fewest conditions; what it leaves is explained by further ones (a sweep may hold two
faults).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from matrixrun.evidence.cells import AxisValue, Cell, Speculation

MOST_CONDITIONS = 4
MOST_CAUSES = 6
# Conditions that hold in the most failing cells; more would make the search slow and no clearer.
MOST_CANDIDATES = 48


class Condition(msgspec.Struct, frozen=True, order=True, omit_defaults=True):
    """One setting: `axis` is an axis, or `speculation.method` and the like; `relation` one of
    `=`, `>=`, `<=`; `value` in words."""

    axis: str
    relation: str
    value: str

    def __str__(self) -> str:
        return f"{self.axis}{self.relation}{self.value}"


class Cause(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A combination that matches failing cells only. `cells` are those it explains; `needed` are
    the conditions without which a good cell is known (all of them, unless the grid does not
    separate some); `instead` lists other combinations that the grid does not tell from it."""

    conditions: tuple[Condition, ...]
    cells: tuple[str, ...]
    needed: tuple[Condition, ...] = ()
    instead: tuple[tuple[Condition, ...], ...] = ()


class Localisation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Causes of a set of failing cells; `unexplained` are cells that no combination of up to four
    values tells from good ones. `everywhere` says that there is no good cell to compare with."""

    failing: int
    good: int
    causes: tuple[Cause, ...] = ()
    unexplained: tuple[str, ...] = ()
    everywhere: bool = False


def localise(failing: Sequence[Cell], good: Sequence[Cell]) -> Localisation:
    """Return what the failing cells have in common that no good cell has."""
    if not failing or not good:
        return Localisation(failing=len(failing), good=len(good), everywhere=bool(failing))
    table = _Table(failing, good)
    causes: list[Cause] = []
    left = table.all_failing
    while left and len(causes) < MOST_CAUSES:
        found = table.best(left)
        if not found:
            break
        causes.append(table.cause(found))
        left &= ~table.failing_where(found[0])
    return Localisation(
        failing=len(failing),
        good=len(good),
        causes=tuple(causes),
        unexplained=table.names(left),
    )


def sentence(found: Localisation, what: str) -> str:
    """Return a localisation in words; `what` names the failure: `FAIL`."""
    if found.everywhere:
        return f"every cell that could be compared is {what}: no setting tells them apart"
    parts = [_cause_words(cause, what) for cause in found.causes]
    if found.unexplained:
        parts.append(
            f"{len(found.unexplained)} {what} are told from good cells by no combination of up to "
            f"{MOST_CONDITIONS} values: {', '.join(found.unexplained[:3])}"
        )
    return "; ".join(parts)


def _cause_words(cause: Cause, what: str) -> str:
    words = " and ".join(map(str, cause.conditions)) or "every cell"
    text = f"{what} where {words} ({_cells(len(cause.cells))}, without exception)"
    if len(cause.conditions) == 1 and cause.needed:
        text += "; good with any other value"
    elif cause.conditions and len(cause.needed) == len(cause.conditions):
        text += "; good with any one of them changed"
    if cause.instead:
        others = " or ".join(" and ".join(map(str, one)) for one in cause.instead[:3])
        text += f"; the grid does not tell this from {others}"
    return text


def _cells(count: int) -> str:
    return f"{count} cell{'' if count == 1 else 's'}"


def settings_of(cell: Cell) -> dict[str, AxisValue]:
    """Return a cell's settings, the speculation's own parts beside the speculation as a whole."""
    settings: dict[str, AxisValue] = {}
    for axis, value in cell.axes.items():
        if isinstance(value, Speculation):
            settings |= _speculation_settings(axis, value)
        else:
            settings[axis] = value
    return settings


def _speculation_settings(axis: str, value: Speculation) -> dict[str, AxisValue]:
    options = " ".join(f"{name}={option}" for name, option in sorted(value.options.items()))
    return {
        axis: f"{value.label} {options}".strip(),
        f"{axis}.method": value.method,
        f"{axis}.num_speculative_tokens": value.num_speculative_tokens,
        f"{axis}.draft": value.draft or "none",
    }


class _Table:
    """Cells as bits: a condition is the set of failing and the set of good cells it holds in."""

    def __init__(self, failing: Sequence[Cell], good: Sequence[Cell]) -> None:
        self._names = [cell.id for cell in failing]
        self.all_failing = (1 << len(failing)) - 1
        self._all_good = (1 << len(good)) - 1
        rows = [settings_of(cell) for cell in failing]
        others = [settings_of(cell) for cell in good]
        held = {
            condition: (_bits(condition, rows), _bits(condition, others))
            for condition in _conditions(rows, others)
        }
        # A condition that holds everywhere separates nothing.
        useful = {c: sets for c, sets in held.items() if sets[0] and sets[1] != self._all_good}
        ranked = sorted(useful, key=lambda c: (-useful[c][0].bit_count(), _rank(c), c))
        self._held = {condition: useful[condition] for condition in ranked[:MOST_CANDIDATES]}

    def failing_where(self, conditions: Sequence[Condition]) -> int:
        """Return the failing cells in which all conditions hold, as bits."""
        found = self.all_failing
        for condition in conditions:
            found &= self._held[condition][0]
        return found

    def good_where(self, conditions: Sequence[Condition]) -> int:
        """Return the good cells in which all conditions hold, as bits."""
        found = self._all_good
        for condition in conditions:
            found &= self._held[condition][1]
        return found

    def names(self, cells: int) -> tuple[str, ...]:
        """Return the ids of failing cells given as bits."""
        return tuple(name for place, name in enumerate(self._names) if cells >> place & 1)

    def best(self, left: int) -> list[tuple[Condition, ...]]:
        """Return the combinations that hold in no good cell and in the most of the failing cells
        `left`; of those the ones with the fewest conditions, what a person would name first."""
        search = _Search(list(self._held.items()), left)
        search.extend((), 0, self.all_failing, self._all_good)
        return sorted(search.found, key=lambda one: (sum(map(_rank, one)), one))

    def cause(self, found: list[tuple[Condition, ...]]) -> Cause:
        """Return the first combination as a cause, with the others that match the same cells."""
        first = found[0]
        cells = self.failing_where(first)
        needed = tuple(
            condition
            for condition in first
            if self.good_where([other for other in first if other != condition])
        )
        same = tuple(
            other
            for other in found[1:]
            if self.failing_where(other) == cells and _axes(other) != _axes(first)
        )
        return Cause(conditions=first, cells=self.names(cells), needed=needed, instead=same)


class _Search:
    """Depth first over combinations; `found` are the best so far."""

    def __init__(self, held: list[tuple[Condition, tuple[int, int]]], left: int) -> None:
        self._held = held
        self._left = left
        self._most = 1
        self.found: list[tuple[Condition, ...]] = []

    def extend(self, chosen: tuple[Condition, ...], start: int, failing: int, good: int) -> None:
        """Try all combinations that begin with `chosen`, which holds in these cells."""
        if not good:
            self._keep(chosen, (failing & self._left).bit_count())
            return
        if len(chosen) == MOST_CONDITIONS:
            return
        for place in range(start, len(self._held)):
            condition, (fails, goods) = self._held[place]
            # More conditions never match more cells; one that rules out no good cell is idle.
            if (failing & fails & self._left).bit_count() < self._most or good & goods == good:
                continue
            self.extend((*chosen, condition), place + 1, failing & fails, good & goods)

    def _keep(self, chosen: tuple[Condition, ...], covered: int) -> None:
        shortest = len(self.found[0]) if self.found else MOST_CONDITIONS
        if covered < self._most or (covered == self._most and len(chosen) > shortest):
            return
        if covered > self._most or len(chosen) < shortest:
            self.found = []
        self._most = covered
        self.found.append(chosen)


def _axes(conditions: Sequence[Condition]) -> set[str]:
    """Return the axes that conditions are about: a speculation's parts are one axis."""
    return {condition.axis.split(".")[0] for condition in conditions}


def _conditions(
    rows: Sequence[Mapping[str, AxisValue]], others: Sequence[Mapping[str, AxisValue]]
) -> list[Condition]:
    """Return what can be said of single settings: values, and bounds where numbers differ."""
    told: dict[Condition, None] = {}
    for axis in rows[0]:
        values = {word(row[axis]): row[axis] for row in (*rows, *others)}
        if len(values) < 2:
            continue
        told |= {Condition(axis, "=", name): None for name in values}
        numbers = sorted(v for v in values.values() if isinstance(v, int | float) and _is_number(v))
        # With two values a bound says no more than the value itself.
        for number in numbers[1:-1] if len(numbers) == len(values) else []:
            told |= {Condition(axis, ">=", word(number)): None}
            told |= {Condition(axis, "<=", word(number)): None}
    return list(told)


def _bits(condition: Condition, rows: Sequence[Mapping[str, AxisValue]]) -> int:
    return sum(1 << place for place, row in enumerate(rows) if _holds(condition, row))


def _holds(condition: Condition, row: Mapping[str, AxisValue]) -> bool:
    value = row[condition.axis]
    if condition.relation == "=":
        return word(value) == condition.value
    if not _is_number(value):
        return False
    bound, number = float(condition.value), float(str(value))
    return number >= bound if condition.relation == ">=" else number <= bound


def _rank(condition: Condition) -> int:
    """Return how far a condition is from what a person would name first: whole axes and values."""
    part = {"speculation": 1, "speculation.num_speculative_tokens": 1, "speculation.draft": 2}
    return part.get(condition.axis, 0) + (0 if condition.relation == "=" else 3)


def _is_number(value: AxisValue) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def word(value: AxisValue) -> str:
    """Return a value as conditions name it: `true`, `2`, `default`."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return "default" if value is None else str(value)
