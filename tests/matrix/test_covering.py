"""A covering array holds every combination that the full grid holds, in fewer cells."""

from __future__ import annotations

import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matrix_files import GOOD, Expand, changed
from test_expansion import NGRAM, VALUES, expanded, grids, ids, rules, shuffled

from matrixrun.evidence.cells import Cell
from matrixrun.evidence.errors import MatrixError
from matrixrun.matrix import AXES, Expansion, Interactions
from matrixrun.matrix.cell_identity import value_key

LARGE: dict[str, Any] = {**VALUES, "batch_size": [1, 8, 32, 64], "tensor_parallel_size": [1, 2, 4]}


def covering(strength: int, grid: dict[str, Any], **sections: Any) -> Expansion:
    strategy = {"kind": "covering", "strength": strength}
    return expanded(grid, strategy=strategy, **sections)


def held(expansion: Expansion) -> Interactions:
    assert expansion.interactions is not None
    return expansion.interactions


def combinations(cells: tuple[Cell, ...], strength: int) -> set[Any]:
    """All combinations of so many values, by axes: what a covering array must keep."""
    return {
        tuple((name, value_key(cell.axes[name])) for name in names)
        for cell in cells
        for names in itertools.combinations([axis.name for axis in AXES], strength)
    }


def includes() -> st.SearchStrategy[list[dict[str, Any]]]:
    one = st.fixed_dictionaries({name: st.sampled_from(v) for name, v in VALUES.items()})
    return st.lists(one, max_size=2)


CONSTRAINTS = st.lists(
    st.sampled_from(
        [
            "tensor_parallel_size * pipeline_parallel_size <= 4",
            "batch_size < 10 or speculation.method != 'draft_model'",
            "prefix_caching == true or pipeline_parallel_size == 1",
            "quantization == 'none' or engine == 'vllm' and batch_size == 1",
        ]
    ),
    max_size=2,
    unique=True,
)


@given(grids(), st.lists(rules(), max_size=2), CONSTRAINTS, includes(), st.integers(1, 4))
@settings(deadline=None)
def test_every_combination_of_the_allowed_cells_is_covered_by_allowed_cells(
    grid: dict[str, Any],
    exclude: list[dict[str, Any]],
    constraints: list[str],
    include: list[dict[str, Any]],
    strength: int,
) -> None:
    sections = {"exclude": exclude, "constraints": constraints, "include": include}
    full, few = expanded(grid, **sections), covering(strength, grid, **sections)

    assert set(ids(few)) <= set(ids(full))
    assert combinations(few.cells, strength) == combinations(full.cells, strength)
    assert few.excluded == full.excluded
    assert held(few).allowed_cells == len(full.cells)


@given(grids(), includes())
@settings(deadline=None)
def test_what_is_included_is_always_kept(
    grid: dict[str, Any], include: list[dict[str, Any]]
) -> None:
    wanted = {cell.id for one in include for cell in expanded({}, include=[one]).cells}

    assert wanted <= set(ids(covering(1, grid, include=include)))


@given(grids(), st.lists(rules(), max_size=1), st.data())
@settings(deadline=None)
def test_the_order_of_the_grid_changes_nothing(
    grid: dict[str, Any], exclude: list[dict[str, Any]], data: st.DataObject
) -> None:
    other = shuffled(grid, data)

    assert covering(2, grid, exclude=exclude) == covering(2, other, exclude=exclude)


def test_the_chosen_cells_are_the_full_grids_own() -> None:
    full = {cell.id: cell for cell in expanded(VALUES).cells}

    assert all(full[cell.id] == cell for cell in covering(2, VALUES).cells)


def test_pairs_need_a_small_part_of_the_grid() -> None:
    few = covering(2, LARGE)

    assert held(few).allowed_cells == 1_728
    assert len(few.cells) <= 20


def test_the_same_in_every_process() -> None:
    import subprocess
    import sys

    code = (
        "import sys; sys.path[:0] = ['tests/matrix']; from test_covering import *;"
        "print(ids(covering(3, LARGE)))"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={**_environment(), "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert told == {f"{ids(covering(3, LARGE))}\n"}


def _environment() -> dict[str, str]:
    import os

    return dict(os.environ)


def test_strength_beyond_the_axes_is_the_full_grid() -> None:
    grid = {"engine": "vllm", "model": "dense", "batch_size": [1, 8], "speculation": [NGRAM]}

    few = covering(5, grid)

    assert few.cells == expanded(grid).cells
    assert held(few).strength == 1


def test_one_cell_and_none_are_covered_too() -> None:
    grid = {"engine": "vllm", "model": "dense", "speculation": NGRAM}

    assert len(covering(2, grid).cells) == 1
    assert covering(2, grid, exclude=[{"model": "dense"}]).cells == ()


def test_what_no_allowed_cell_has_is_named_once_and_as_small_as_it_is() -> None:
    grid = {
        "engine": "vllm",
        "model": "dense",
        "tensor_parallel_size": [1, 2],
        "pipeline_parallel_size": [1, 2],
        "prefix_caching": [True, False],
        "batch_size": [1, 8],
        "speculation": NGRAM,
    }
    few = covering(
        3,
        grid,
        exclude=[{"tensor_parallel_size": 2, "pipeline_parallel_size": 2}],
        constraints=["batch_size == 1"],
    )

    assert held(few).impossible == (
        (("batch_size", "8"),),
        (("tensor_parallel_size", "2"), ("pipeline_parallel_size", "2")),
    )
    assert held(few).impossible_count == 2


def test_larger_combinations_are_counted_as_they_are() -> None:
    full, few = expanded(VALUES), covering(2, VALUES)
    axes = set(held(few).axes)

    def triples(cells: tuple[Cell, ...]) -> set[Any]:
        return {t for t in combinations(cells, 3) if {name for name, _ in t} <= axes}

    assert held(few).larger == len(triples(full.cells))
    assert held(few).larger_covered == len(triples(few.cells))


def test_a_strength_without_a_covering_array_is_a_mistake(cells: Expand) -> None:
    with pytest.raises(MatrixError) as error:
        cells(GOOD + "strategy: {strength: 3}\n")

    assert "strategy.strength" in str(error.value)
    assert "kind: covering" in str(error.value)


def test_an_unknown_strategy_is_a_mistake(cells: Expand) -> None:
    with pytest.raises(MatrixError, match=r"strategy\.kind"):
        cells(GOOD + "strategy: {kind: pairs}\n")


def test_a_rule_that_matches_nothing_is_told(cells: Expand) -> None:
    slip = "exclude: [{tensor_parallel_size: 4}, {batch_size: 8, speculation: {method: ngram}}]\n"
    found = cells(GOOD + slip)

    assert found.idle == ("exclude[0]: {tensor_parallel_size: 4}",)


def test_a_rule_whose_cells_another_took_out_is_no_slip(cells: Expand) -> None:
    found = cells(GOOD + "exclude: [{batch_size: 8}, {batch_size: 8, prefix_caching: true}]\n")

    assert found.idle == ()


def test_the_strategy_is_no_part_of_a_cell(cells: Expand) -> None:
    text = changed("batch_size: [1, 8]", "batch_size: [1, 2, 4, 8]")
    full = {cell.id: cell.fingerprint for cell in cells(text).cells}
    few = cells(text + "strategy: {kind: covering}\n").cells

    assert json.dumps([full[cell.id] for cell in few]) == json.dumps([c.fingerprint for c in few])
