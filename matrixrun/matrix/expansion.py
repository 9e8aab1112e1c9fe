"""From a matrix to its cells: product, exclude, checkpoints, constraints, include, strategy."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import msgspec

from matrixrun.evidence.cells import AxisValue, Cell, Excluded
from matrixrun.matrix.axes import AXES, matches
from matrixrun.matrix.cell_identity import identify, sort_key
from matrixrun.matrix.checkpoints import unavailable
from matrixrun.matrix.checks import check
from matrixrun.matrix.constraints import Constraint, ConstraintError
from matrixrun.matrix.covering import Interactions, cover
from matrixrun.matrix.grid import complete_include, read_grid, read_include, read_rule
from matrixrun.matrix.problems import error_at
from matrixrun.matrix.schema import Matrix

MAX_COMBINATIONS = 200_000
"""Far beyond what anyone runs: a grid above it is a slip, and would take minutes to list."""

Assignment = dict[str, AxisValue]
Identity = tuple[tuple[int, str | int, str], ...]
Reason = Callable[[Assignment], str | None]
Rules = list[tuple[dict[str, Any], str]]


class Expansion(msgspec.Struct, frozen=True, kw_only=True):
    """The cells to run and the assignments taken out, both in canonical order.

    `interactions` says what a covering array holds; None where all allowed cells are run. `idle`
    are exclude rules that match no combination of the grid, `unmet` are `expect` entries that match
    no allowed cell.
    """

    cells: tuple[Cell, ...]
    excluded: tuple[Excluded, ...]
    interactions: Interactions | None = None
    idle: tuple[str, ...] = ()
    unmet: tuple[str, ...] = ()


def expand(matrix: Matrix, *, file: str) -> Expansion:
    """Every cell of a matrix, and what was taken out by which rule.

    The order of axes and values in the grid changes nothing of the result.
    `file` names the file in messages.

    Raises:
        MatrixError: a mistake in grid, rules or constraints (see `check`), or too large a grid.
    """
    check(matrix, file=file)
    grid = read_grid(matrix.grid, [])
    _bound(grid, matrix, file)
    constraint = _constraint_reason(matrix, file)
    rules = _exclude_rules(matrix)
    reasons = (_exclude_reason(rules), lambda axes: unavailable(matrix.models, axes), constraint)
    kept: dict[Identity, Assignment] = {}
    out: dict[Identity, Excluded] = {}
    for axes in _product(grid):
        reason = next(filter(None, (find(axes) for find in reasons)), None)
        if reason is None:
            kept[sort_key(axes)] = axes
        else:
            out[sort_key(axes)] = Excluded(axes=axes, reason=reason)
    included: list[Assignment] = []
    for i, include in enumerate(matrix.include):
        key = ("include", i)
        axes = complete_include(read_include(include, key, []), grid, key, []) or {}
        identity, reason = sort_key(axes), constraint(axes)
        if reason is None:
            kept[identity] = axes
            included.append(axes)
            out.pop(identity, None)
        else:
            out[identity] = Excluded(axes=axes, reason=f"included, but {reason}")
    unmet = _unmet(matrix, list(kept.values()))
    chosen, interactions = [kept[identity] for identity in sorted(kept)], None
    if matrix.strategy.kind == "covering":
        places, interactions = cover(chosen, included, grid, matrix.strategy.strength)
        chosen = [chosen[place] for place in places]
    return Expansion(
        cells=identify(chosen, matrix),
        excluded=tuple(out[identity] for identity in sorted(out)),
        interactions=interactions,
        idle=_idle(rules, grid),
        unmet=unmet,
    )


def _product(grid: dict[str, list[AxisValue]]) -> Iterator[Assignment]:
    if len(grid) < len(AXES):
        return
    for values in itertools.product(*grid.values()):
        yield dict(zip(grid, values, strict=True))


def _bound(grid: dict[str, list[AxisValue]], matrix: Matrix, file: str) -> None:
    size = math.prod(len(values) for values in grid.values())
    if size > MAX_COMBINATIONS:
        message = f"{size:,} combinations, more than the {MAX_COMBINATIONS:,} that can be expanded"
        remedy = "give the axes fewer values, or split the matrix"
        raise error_at(file, matrix.source.positions, ("grid",), message, remedy)


def _exclude_rules(matrix: Matrix) -> Rules:
    return [
        (read_rule(rule, (), []), f"exclude[{i}]: {_rule_text(rule)}")
        for i, rule in enumerate(matrix.exclude)
    ]


def _idle(rules: Rules, grid: dict[str, list[AxisValue]]) -> tuple[str, ...]:
    """The rules that match nothing. Each axis is asked by itself, the grid being a product."""
    return tuple(
        text
        for rule, text in rules
        if not all(any(matches({name: part}, {name: v}) for v in grid.get(name, ()))
                   for name, part in rule.items())
    )  # fmt: skip


def _unmet(matrix: Matrix, cells: Sequence[Assignment]) -> tuple[str, ...]:
    """The expectations of no cell. Cells that a covering array leaves out count: another strength
    may take them."""
    rules = [
        (read_rule(expect.when, (), []), f"expect[{i}].when: {_rule_text(expect.when)}")
        for i, expect in enumerate(matrix.expect)
    ]
    return tuple(text for rule, text in rules if not any(matches(rule, axes) for axes in cells))


def _exclude_reason(rules: Rules) -> Reason:
    def reason(axes: Assignment) -> str | None:
        return next((text for rule, text in rules if matches(rule, axes)), None)

    return reason


def _rule_text(rule: dict[str, Any]) -> str:
    parts = [f"{name}: {_value_text(value)}" for name, value in rule.items()]
    return "{" + ", ".join(parts) + "}"


def _value_text(value: Any) -> str:
    if isinstance(value, dict):
        return _rule_text(value)
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return str(value)


def _constraint_reason(matrix: Matrix, file: str) -> Reason:
    constraints = [Constraint(text) for text in matrix.constraints]

    def reason(axes: Assignment) -> str | None:
        for i, constraint in enumerate(constraints):
            try:
                holds = constraint.holds(axes)
            except ConstraintError as error:
                positions, key = matrix.source.positions, ("constraints", i)
                raise error_at(file, positions, key, error.message, error.remedy) from None
            if not holds:
                return f"constraint `{constraint.text}` does not hold"
        return None

    return reason
