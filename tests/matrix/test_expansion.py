"""Grid, exclude, constraints and include become cells."""

from __future__ import annotations

import json
from itertools import product
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matrix_files import GOOD, Expand, changed

from matrixrun.evidence.cells import Speculation
from matrixrun.matrix import AXES, Expansion, Matrix, expand, matches

NGRAM = {"method": "ngram", "num_speculative_tokens": 4}
DRAFT = {"method": "draft_model", "draft": "small", "num_speculative_tokens": 3}
VALUES: dict[str, list[Any]] = {
    "engine": ["vllm", "other"],
    "model": ["dense", "ladder"],
    "quantization": ["none", "fp8"],
    "tensor_parallel_size": [1, 2, 4],
    "pipeline_parallel_size": [1, 2],
    "prefix_caching": [True, False, None],
    "batch_size": [1, 8, 10],
    "speculation": [NGRAM, DRAFT, {**NGRAM, "prompt_lookup_max": 3}],
}


def matrix(grid: dict[str, Any], **sections: Any) -> Matrix:
    model = {"target": {"path": "x"}, "drafts": {"small": {"path": "y"}}}
    engines = {"vllm": {"kind": "vllm"}, "other": {"kind": "vllm", "args": ["--x"]}}
    models = {"dense": model, "ladder": model}
    data = {"name": "n", "engines": engines, "models": models, "grid": grid, **sections}
    return Matrix.model_validate(data)


def expanded(grid: dict[str, Any], **sections: Any) -> Expansion:
    return expand(matrix(grid, **sections), file="file")


def ids(expansion: Expansion) -> list[str]:
    return [cell.id for cell in expansion.cells]


def grids() -> st.SearchStrategy[dict[str, Any]]:
    def some(values: list[Any]) -> st.SearchStrategy[list[Any]]:
        return st.lists(st.sampled_from(values), min_size=1, max_size=2)

    required = {name: some(VALUES[name]) for name in ("engine", "model", "speculation")}
    optional = {name: some(values) for name, values in VALUES.items() if name not in required}
    return st.fixed_dictionaries(required, optional=optional)


def rules() -> st.SearchStrategy[dict[str, Any]]:
    parts = {name: st.sampled_from(values) for name, values in VALUES.items()}
    return st.fixed_dictionaries({}, optional=parts).filter(bool)


def shuffled(grid: dict[str, Any], draw: st.DataObject) -> dict[str, Any]:
    names = draw.draw(st.permutations(list(grid)))
    return {name: draw.draw(st.permutations(grid[name])) for name in names}


@given(grids(), st.lists(rules(), max_size=2), st.data())
def test_the_order_of_the_grid_changes_nothing(
    grid: dict[str, Any], exclude: list[dict[str, Any]], data: st.DataObject
) -> None:
    assert expanded(grid, exclude=exclude) == expanded(shuffled(grid, data), exclude=exclude)


@given(grids())
def test_without_rules_the_cells_are_the_product(grid: dict[str, Any]) -> None:
    different = [{json.dumps(value) for value in values} for values in grid.values()]
    assert len(expanded(grid).cells) == len(list(product(*different)))


@given(grids(), rules())
def test_exclude_takes_out_what_matches_and_nothing_else(
    grid: dict[str, Any], rule: dict[str, Any]
) -> None:
    every, left = expanded(grid), expanded(grid, exclude=[rule])
    assert set(ids(left)) <= set(ids(every))
    assert all(not matches(rule, cell.axes) for cell in left.cells)
    assert all(matches(rule, gone.axes) for gone in left.excluded)
    assert len(left.cells) + len(left.excluded) == len(every.cells)


@given(grids(), st.fixed_dictionaries({n: st.sampled_from(v) for n, v in VALUES.items()}))
def test_include_adds_one_cell_or_names_one_that_is_there(
    grid: dict[str, Any], cell: dict[str, Any]
) -> None:
    before, after = expanded(grid), expanded(grid, include=[cell])
    (alone,) = expanded({}, include=[cell]).cells
    assert alone in after.cells
    assert [c for c in after.cells if c in before.cells or c == alone] == list(after.cells)
    assert len(after.cells) == len(before.cells) + (alone not in before.cells)
    assert expanded(grid, include=[cell, cell]) == after


@given(grids())
def test_ids_and_fingerprints_are_unique_and_fit_a_file_name(grid: dict[str, Any]) -> None:
    cells = expanded(grid).cells
    assert len({cell.id for cell in cells}) == len(cells)
    assert len({cell.fingerprint for cell in cells}) == len(cells)
    assert all(set(cell.id) <= set("abcdefghijklmnopqrstuvwxyz0123456789._-") for cell in cells)


@given(grids(), grids())
def test_a_cell_is_the_same_in_every_grid_that_has_it(
    one: dict[str, Any], other: dict[str, Any]
) -> None:
    first = {json.dumps(c.id): c for c in expanded(one).cells}
    for cell in expanded(other).cells:
        assert first.get(json.dumps(cell.id), cell) == cell


def test_every_cell_has_every_axis_in_canonical_order(cells: Expand) -> None:
    for cell in cells(GOOD).cells:
        assert list(cell.axes) == [axis.name for axis in AXES]
        assert isinstance(cell.axes["speculation"], Speculation)
        assert cell.axes["quantization"] == "none"
        assert cell.axes["pipeline_parallel_size"] == 1


def test_an_id_is_what_a_person_types(cells: Expand) -> None:
    found = ids(cells(GOOD))
    assert "vllm.dense.tp2.pc-off.ngram-k4.b8" in found
    assert "vllm.dense.pc-on.draft_model-small-k3.b1" in found
    assert len(found) == 16


def test_options_of_a_speculation_are_told_apart() -> None:
    speculation = [NGRAM, {**NGRAM, "prompt_lookup_max": 3}, {**NGRAM, "prompt_lookup_max": 4}]
    found = ids(expanded({"engine": "vllm", "model": "dense", "speculation": speculation}))
    assert "vllm.dense.ngram-k4.b1" in found
    assert len(set(found)) == 3


def test_names_that_no_file_should_have_are_made_safe_and_stay_apart() -> None:
    grid = {"engine": "vllm", "model": "dense", "speculation": NGRAM}
    strange = ["a/b", "a b", "A.b", "a.B", "../x", "ü" * 300]
    found = ids(expanded({**grid, "quantization": strange}))
    assert len({name.casefold() for name in found}) == len(strange)
    assert all("/" not in name and " " not in name and len(name) <= 160 for name in found)
    assert all(not name.startswith(".") for name in found)


def test_a_speculation_is_excluded_by_part_of_it(cells: Expand) -> None:
    left = cells(GOOD + "exclude: [{speculation: {method: ngram}, batch_size: 8}]\n")
    assert len(left.cells) == 12
    assert {gone.reason for gone in left.excluded} == {
        "exclude[0]: {speculation: {method: ngram}, batch_size: 8}"
    }


def test_an_include_brings_back_what_exclude_took_out(cells: Expand) -> None:
    include = """
include:
  - {tensor_parallel_size: 2, prefix_caching: true, batch_size: 8,
     speculation: {method: ngram, num_speculative_tokens: 4}}
"""
    found = cells(GOOD + "exclude: [{tensor_parallel_size: 2}]\n" + include)
    assert "vllm.dense.tp2.pc-on.ngram-k4.b8" in ids(found)
    assert (len(found.cells), len(found.excluded)) == (9, 7)


def test_an_include_does_not_escape_a_constraint(cells: Expand) -> None:
    include = """
constraints: ["tensor_parallel_size < 4"]
include:
  - {tensor_parallel_size: 4, prefix_caching: true, batch_size: 8,
     speculation: {method: ngram, num_speculative_tokens: 4}}
"""
    found = cells(GOOD + include)
    assert len(found.cells) == 16
    reasons = [gone.reason for gone in found.excluded]
    assert reasons == ["included, but constraint `tensor_parallel_size < 4` does not hold"]


def test_an_include_may_leave_out_axes_with_one_value(cells: Expand) -> None:
    include = """
include:
  - {model: ladder, quantization: fp8, tensor_parallel_size: 1, prefix_caching: null, batch_size: 3,
     speculation: {method: ngram, num_speculative_tokens: 4}}
"""
    assert "vllm.ladder.fp8.ngram-k4.b3" in ids(cells(GOOD + include))


def test_an_empty_grid_leaves_the_included_cells(cells: Expand) -> None:
    head = GOOD[: GOOD.index("grid:")]
    include = (
        "{engine: vllm, model: dense, speculation: {method: ngram, num_speculative_tokens: 4}}"
    )
    assert ids(cells(f"{head}grid: {{}}\ninclude: [{include}]\n")) == ["vllm.dense.ngram-k4.b1"]


def test_a_draft_that_only_some_models_have_takes_the_others_out(cells: Expand) -> None:
    found = cells(changed("model: [dense]", "model: [dense, ladder]"))
    assert {gone.reason for gone in found.excluded} == {"model `ladder` has no draft `small`"}
    assert (len(found.cells), len(found.excluded)) == (24, 8)


def test_a_quantization_that_only_some_models_have_takes_the_others_out(cells: Expand) -> None:
    text = changed("model: [dense]", "model: [dense, ladder]\n  quantization: [none, awq]")
    reasons = {gone.reason for gone in cells(text).excluded}
    assert "model `ladder` has no checkpoint for quantization `awq`" in reasons


def test_ten_thousand_cells_expand_in_a_second() -> None:
    import time

    grid = {
        **{name: VALUES[name] for name in ("engine", "model", "prefix_caching", "speculation")},
        "tensor_parallel_size": [1, 2, 4, 8],
        "pipeline_parallel_size": [1, 2],
        "quantization": ["none", "fp8", "awq", "gptq"],
        "batch_size": list(range(1, 10)),
    }
    started = time.process_time()
    found = expanded(grid, constraints=["tensor_parallel_size * pipeline_parallel_size <= 16"])
    assert len(found.cells) == 10_368
    assert time.process_time() - started < 2


@pytest.mark.parametrize("exclude", [[{"model": "dense"}]])
def test_a_grid_may_end_up_empty(exclude: list[dict[str, Any]]) -> None:
    grid = {"engine": "vllm", "model": "dense", "speculation": NGRAM}
    assert expanded(grid, exclude=exclude).cells == ()
