"""Covering arrays: few cells in which every combination of `strength` values still occurs.

A fault that needs t settings at once shows in a t-wise covering array as it does in the full grid.
covertable builds the array, greedily and by hashes of its own: the same in every run. It is told
exactly which cells there are, and what it returns is counted again here.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence

import covertable
import msgspec
import numpy as np
from numpy.typing import NDArray

from matrixrun.evidence.cells import AxisValue
from matrixrun.matrix.axes import AXES
from matrixrun.matrix.cell_identity import value_key

Assignment = Mapping[str, AxisValue]
Setting = tuple[str, str]
"""An axis, and one of its values in the word that ids use."""

Combination = tuple[Setting, ...]
Places = NDArray[np.int64]
"""Cells by axes: the place of each cell's value among the values of the axis."""

MOST_IMPOSSIBLE = 200


class Interactions(msgspec.Struct, frozen=True, kw_only=True):
    """Which combinations of values the cells of a covering sweep hold.

    `axes` are those with more than one value; `allowed_cells` are what the full grid would run.
    `combinations` of `strength` values occur in an allowed cell, and all of them are covered. Of
    `larger` combinations of one value more, `larger_covered` are covered as well. `impossible` are
    combinations of at most `strength` of the grid's values that no allowed cell has, the smallest
    ones only (the first 200 of `impossible_count`).
    """

    strength: int
    axes: tuple[str, ...]
    allowed_cells: int
    combinations: int
    larger: int
    larger_covered: int
    impossible_count: int
    impossible: tuple[Combination, ...]


def cover(
    cells: Sequence[Assignment],
    always: Sequence[Assignment],
    grid: Mapping[str, Sequence[AxisValue]],
    strength: int,
) -> tuple[list[int], Interactions]:
    """Return the places of the chosen among `cells`, in order, and what they cover.

    Args:
        cells: every allowed cell, in canonical order.
        always: those of `cells` that are kept in any case.
        grid: the values of each axis in the matrix file.
        strength: how many values at once; from the number of varying axes on that is all cells.
    """
    table = _Table(cells, grid)
    strength = min(strength, len(table.axes))
    if strength == len(table.axes):
        chosen = list(range(len(cells)))
    else:
        chosen = _choose(table, [table.row(axes) for axes in always], strength)
    return chosen, _interactions(table, chosen, strength)


class _Table:
    """The allowed cells as places on the axes that vary."""

    def __init__(
        self, cells: Sequence[Assignment], grid: Mapping[str, Sequence[AxisValue]]
    ) -> None:
        self.axes: list[str] = []
        self.places: list[dict[tuple[int, str | int, str], int]] = []
        self.words: list[list[str]] = []
        for axis in AXES:
            found = [*grid.get(axis.name, ()), *(cell[axis.name] for cell in cells)]
            values = {value_key(value): value for value in found}
            if len(values) > 1:
                self.axes.append(axis.name)
                self.places.append({key: place for place, key in enumerate(sorted(values))})
                self.words.append([axis.type.word(values[key]) for key in sorted(values)])
        rows = [self.row(cell) for cell in cells]
        self.cells: Places = np.array(rows, dtype=np.int64).reshape(len(rows), len(self.axes))
        self.sizes = [len(words) for words in self.words]

    def row(self, axes: Assignment) -> tuple[int, ...]:
        """Return the places of a cell's values, axis by axis."""
        named = zip(self.axes, self.places, strict=True)
        return tuple(places[value_key(axes[name])] for name, places in named)

    def columns(self, number: int) -> Iterator[tuple[int, ...]]:
        """Return every choice of so many axes, as columns."""
        return itertools.combinations(range(len(self.axes)), number)

    def held(self, columns: Sequence[int], cells: Places) -> NDArray[np.bool_]:
        """Return which combinations of values on these axes occur in `cells`: one dimension an
        axis."""
        held = np.zeros([self.sizes[column] for column in columns], dtype=np.bool_)
        held[tuple(cells[:, column] for column in columns)] = True
        return held


def _choose(table: _Table, always: Sequence[tuple[int, ...]], strength: int) -> list[int]:
    """Return the places of cells that hold every possible combination of `strength` values."""
    where = {tuple(row): place for place, row in enumerate(table.cells.tolist())}
    rows = covertable.make(
        [list(range(size)) for size in table.sizes],
        strength=strength,
        presets=[dict(enumerate(row)) for row in always],
        # It may be asked about any part of a cell, hence no required fields.
        constraints=[{"operator": "fn", "requires": [], "evaluate": _Possible(table)}],
    )
    chosen = sorted({where[tuple(row)] for row in (*rows, *always)})
    for columns in table.columns(strength):
        missed = table.held(columns, table.cells) & ~table.held(columns, table.cells[chosen])
        if missed.any():
            axes = ", ".join(table.axes[column] for column in columns)
            raise RuntimeError(f"the covering array leaves out combinations of {axes}")
    return chosen


class _Possible:
    """Whether a part of a cell can become an allowed cell; cells are the bits of a number."""

    def __init__(self, table: _Table) -> None:
        self._complete = len(table.axes)
        self._with = [
            [_bits(table.cells[:, column] == place) for place in range(size)]
            for column, size in enumerate(table.sizes)
        ]

    def __call__(self, part: Mapping[int, int]) -> bool | None:
        """Return False if it cannot, True if it is one, None while it is still open."""
        cells = -1
        for column, place in part.items():
            cells &= self._with[column][place]
        if not cells:
            return False
        return True if len(part) == self._complete else None


def _bits(chosen: NDArray[np.bool_]) -> int:
    return int.from_bytes(np.packbits(chosen).tobytes(), "big")


def _interactions(table: _Table, chosen: Sequence[int], strength: int) -> Interactions:
    impossible = [*_impossible(table, strength)]
    larger, larger_covered = 0, 0
    for columns in table.columns(strength + 1):
        larger += int(table.held(columns, table.cells).sum())
        larger_covered += int(table.held(columns, table.cells[list(chosen)]).sum())
    return Interactions(
        strength=strength,
        axes=tuple(table.axes),
        allowed_cells=len(table.cells),
        combinations=sum(
            int(table.held(columns, table.cells).sum()) for columns in table.columns(strength)
        ),
        larger=larger,
        larger_covered=larger_covered,
        impossible_count=len(impossible),
        impossible=tuple(impossible[:MOST_IMPOSSIBLE]),
    )


def _impossible(table: _Table, strength: int) -> Iterator[Combination]:
    """Return the smallest combinations that no allowed cell has, smaller ones first."""
    for number in range(1, strength + 1):
        for columns in table.columns(number):
            missing = ~table.held(columns, table.cells)
            for part in itertools.combinations(range(number), number - 1):
                if number > 1:
                    smaller = table.held([columns[place] for place in part], table.cells)
                    (gone,) = set(range(number)) - set(part)
                    missing &= np.expand_dims(smaller, gone)
            for places in np.argwhere(missing).tolist():
                named = zip(columns, places, strict=True)
                yield tuple((table.axes[c], table.words[c][place]) for c, place in named)
