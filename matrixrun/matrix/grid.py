"""The grid, the rules and the includes of a matrix as typed values, each read once and checked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from matrixrun.evidence.cells import AxisValue
from matrixrun.matrix.axes import AXES, BY_NAME
from matrixrun.matrix.axis_types import SPECULATION, read_speculation_fields
from matrixrun.matrix.fingerprint import canonical
from matrixrun.matrix.problems import Invalid, Key, Problem, described, did_you_mean

Assignment = dict[str, AxisValue]


def read_grid(grid: Mapping[str, Any], problems: list[Problem]) -> dict[str, list[AxisValue]]:
    """Each axis' values, in canonical axis order and without repeats; defaults filled in.

    An empty grid gives no axis a value. What is wrong is appended to `problems`.
    """
    key: Key = ("grid",)
    _unknown_axes(grid, key, problems)
    values: dict[str, list[AxisValue]] = {}
    for axis in AXES:
        if axis.name in grid:
            values[axis.name] = _axis_values(
                axis.name, grid[axis.name], (*key, axis.name), problems
            )
        elif not axis.required:
            values[axis.name] = [axis.default]  # type: ignore[list-item]
        elif grid:
            remedy = f"add `{axis.name}: [...]` to the grid"
            problems.append(Problem(key, f"the axis `{axis.name}` is missing", remedy))
    return values


def _unknown_axes(names: Mapping[str, Any], key: Key, problems: list[Problem]) -> None:
    for name in names:
        if name not in BY_NAME:
            remedy = did_you_mean(name, BY_NAME)
            problems.append(Problem((*key, name), f"unknown axis `{name}`", remedy))


def _axis_values(name: str, value: Any, key: Key, problems: list[Problem]) -> list[AxisValue]:
    items = list(value) if isinstance(value, list | tuple) else [value]
    keys = [(*key, i) if isinstance(value, list | tuple) else key for i in range(len(items))]
    if not items:
        remedy = "give it a value, or remove the axis"
        problems.append(Problem(key, "the list is empty", remedy))
    values: dict[str, AxisValue] = {}
    for item, item_key in zip(items, keys, strict=True):
        try:
            read = BY_NAME[name].type.read(item, item_key)
            values.setdefault(canonical(read), read)
        except Invalid as found:
            problems.append(found.problem)
    return list(values.values())


def read_rule(rule: Mapping[str, Any], key: Key, problems: list[Problem]) -> dict[str, Any]:
    """A partial assignment (`exclude`, `expect.when`): one value an axis, speculation partial."""
    _unknown_axes(rule, key, problems)
    if not rule:
        problems.append(Problem(key, "names no axis", "name at least one axis, or remove it"))
    return _read_items(rule, key, problems, partial=True)


def read_include(include: Mapping[str, Any], key: Key, problems: list[Problem]) -> Assignment:
    """The axes that an include names, one value each."""
    _unknown_axes(include, key, problems)
    return _read_items(include, key, problems, partial=False)


def _read_items(
    items: Mapping[str, Any], key: Key, problems: list[Problem], *, partial: bool
) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for name, value in items.items():
        if name not in BY_NAME:
            continue
        try:
            values[name] = _read_item(name, value, (*key, name), partial)
        except Invalid as found:
            problems.append(found.problem)
    return values


def _read_item(name: str, value: Any, key: Key, partial: bool) -> Any:
    if isinstance(value, list | tuple):
        message = f"must be one value, but is {described(value)}"
        raise Invalid(Problem(key, message, "write one entry for each value"))
    axis = BY_NAME[name]
    if partial and axis.type is SPECULATION:
        return read_speculation_fields(value, key)
    return axis.type.read(value, key)


def complete_include(
    include: Assignment, grid: Mapping[str, list[AxisValue]], key: Key, problems: list[Problem]
) -> Assignment | None:
    """The one cell an include names: axes it leaves out take the grid's value if there is just one.

    None, and a problem, where an axis with several values is left open.
    """
    cell: Assignment = {}
    for axis in AXES:
        if axis.name in include:
            cell[axis.name] = include[axis.name]
            continue
        values = grid.get(axis.name, [])
        if len(values) != 1:
            count = len(values) or "no"
            message = f"does not fix the axis `{axis.name}`, which has {count} values in the grid"
            remedy = f"add `{axis.name}: ...`: an include names exactly one cell"
            problems.append(Problem(key, message, remedy))
            return None
        cell[axis.name] = values[0]
    return cell
