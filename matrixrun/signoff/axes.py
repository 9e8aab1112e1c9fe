"""The axes of a sweep that vary, and their values in words."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from matrixrun.evidence.cells import AxisValue, Cell
from matrixrun.record.naming import label, varying


class Axis(msgspec.Struct, frozen=True, kw_only=True):
    """An axis with more than one value: the values' words, in order."""

    name: str
    values: tuple[str, ...]


def axes_of(cells: Sequence[Cell]) -> tuple[Axis, ...]:
    """The axes that vary, each with its values: numbers by size, else as they appear."""
    axes = []
    for name in varying(cells):
        values = {axis_word(name, cell.axes[name]): cell.axes[name] for cell in cells}
        order = sorted(values, key=lambda word: _size(values[word]))
        axes.append(Axis(name=name, values=tuple(order)))
    return tuple(axes)


def axis_word(axis: str, value: AxisValue) -> str:
    """One value in a word that is never empty: `tp1`, where labels leave defaults out."""
    word = label(axis, value)
    if word:
        return word
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{axis[0]}p{value}"
    return "default" if value is None else str(value)


def _size(value: AxisValue) -> tuple[int, float]:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return (1, 0.0)
    return (0, float(value))
