"""The matrix of verdicts: target configurations down, speculation and batch size across."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from matrixrun.evidence.cells import AxisValue, Cell
from matrixrun.evidence.verdicts import CellResult, Verdict
from matrixrun.record.naming import CLIENT_AXES, label, labels, plainly, varying

# Verdicts by how much they say against shipping; each has a sign besides its colour.
ORDER = (
    Verdict.FAIL,
    Verdict.ERROR,
    Verdict.INCONCLUSIVE,
    Verdict.INACTIVE,
    Verdict.REFUSED,
    Verdict.PASS,
)
SIGNS = {
    Verdict.PASS: "✓",
    Verdict.FAIL: "✗",
    Verdict.ERROR: "✗",
    Verdict.INCONCLUSIVE: "?",
    Verdict.INACTIVE: "○",
    Verdict.REFUSED: "-",
}


HEAD_LINES = 4  # of each table: header, rule, and the lines between tables


@dataclass(frozen=True)
class Grid:
    """A table of results. `constant` says what all rows share; `rows` are (label, results by
    column), None where the matrix has no such cell."""

    constant: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[CellResult | None, ...]], ...]

    def width(self, column: int) -> int:
        """Characters that a column needs: its header, or its longest verdict and sign."""
        words = [_words(row[1][column]) for row in self.rows]
        return max(map(len, [*self.columns[column].split(" "), *words]))

    def split(self, width: int, *, gap: int = 2) -> list[list[int]]:
        """Columns in groups that fit into `width` characters beside the rows' labels."""
        label = max([len(self.constant), *(len(row) for row, _ in self.rows)], default=0)
        groups: list[list[int]] = []
        left = 0
        for column in range(len(self.columns)):
            needed = self.width(column) + gap
            if not groups or needed > left:
                groups.append([])
                left = width - label
            groups[-1].append(column)
            left -= needed
        return groups


def verdict_words(result: CellResult) -> str:
    """A verdict as it stands in a table: sign, word, `*` where the matrix file expects it."""
    return f"{SIGNS[result.verdict]} {result.verdict}" + ("*" if result.expected else "")


def _words(result: CellResult | None) -> str:
    return "" if result is None else verdict_words(result)


def lay_out(results: Sequence[CellResult], *, across: Sequence[str] | None = None) -> Grid:
    """Lay out results; `across` are the axes that become columns (default: speculation and the
    client's axes)."""
    across = ("speculation", *CLIENT_AXES) if across is None else across
    results = plainly(results)
    cells = [result.cell for result in results]
    differing = varying(cells)
    down_axes = [axis for axis in differing if axis not in across]
    across_axes = [axis for axis in differing if axis in across]
    table: dict[str, dict[str, CellResult]] = {}
    columns: dict[str, None] = {}
    for result in _in_order(results, across_axes):
        columns[labels(result.cell.axes, across_axes) or "verdict"] = None
    # One row needs no name, and where the column says `verdict` already, the row does not.
    alone = "default" if down_axes else "verdict" if across_axes else ""
    for result in _in_order(results, down_axes):
        row = labels(result.cell.axes, down_axes) or alone
        column = labels(result.cell.axes, across_axes) or "verdict"
        table.setdefault(row, {})[column] = result
    return Grid(
        constant=_constant(cells, differing),
        columns=tuple(columns),
        rows=tuple((row, tuple(by.get(c) for c in columns)) for row, by in table.items()),
    )


def _in_order(results: Sequence[CellResult], axes: Sequence[str]) -> list[CellResult]:
    """Sorted by these axes: numbers by size, everything else in the order of appearance."""
    seen: dict[str, int] = {}
    for result in results:
        for axis in axes:
            seen.setdefault(label(axis, result.cell.axes[axis]), len(seen))

    def rank(result: CellResult) -> list[float]:
        values = [(axis, result.cell.axes[axis]) for axis in axes]
        return [_number(value, seen[label(axis, value)]) for axis, value in values]

    return sorted(results, key=rank)


def _number(value: AxisValue, otherwise: int) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return value
    return otherwise


def fit(results: Sequence[CellResult], width: int) -> Grid:
    """The layout that takes the fewest lines at this width: speculation across, or down."""
    layouts = [lay_out(results), lay_out(results, across=CLIENT_AXES)]
    return min(layouts, key=lambda grid: (len(grid.rows) + HEAD_LINES) * len(grid.split(width)))


def _constant(cells: Sequence[Cell], differing: Sequence[str]) -> str:
    if not cells:
        return ""
    return labels(cells[0].axes, [axis for axis in cells[0].axes if axis not in differing])


def counts(results: Sequence[CellResult]) -> dict[Verdict, int]:
    """How many cells ended with each verdict, worst first, absent ones left out."""
    found = [result.verdict for result in results]
    return {verdict: found.count(verdict) for verdict in ORDER if verdict in found}


def worst_first(results: Sequence[CellResult]) -> list[CellResult]:
    """Results sorted by verdict, then by cell id."""
    return sorted(results, key=lambda r: (ORDER.index(r.verdict), r.cell.id))
