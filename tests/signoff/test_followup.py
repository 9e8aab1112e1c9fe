"""What further cells may be: the sweep's own values, or simpler ones, within the matrix file."""

from __future__ import annotations

from pathlib import Path

from plan_matrices import DRAFT, GRID, NGRAM, matrix

from matrixrun.evidence.cells import Speculation
from matrixrun.matrix import expand
from matrixrun.signoff.followup import allowed_by, changes

FILE = Path("small.yaml")
RULES = {
    "exclude": [{"prefix_caching": False, "speculation": {"method": "ngram"}}],
    "constraints": ["batch_size * tensor_parallel_size <= 8"],
}


def test_a_further_cell_is_the_one_the_grid_would_have() -> None:
    full = matrix()
    cells = expand(full, file="small.yaml").cells
    allowed = allowed_by(matrix(grid={**GRID, "batch_size": 1}), FILE)

    assert [allowed(cell.axes) for cell in cells] == list(cells)


def test_what_the_matrix_file_takes_out_is_no_further_cell() -> None:
    made = matrix(**RULES, strategy={"kind": "covering", "strength": 1})
    allowed = allowed_by(made, FILE)
    (first, *_) = expand(made, file="small.yaml").cells
    ngram = Speculation(**NGRAM)

    assert allowed({**first.axes, "prefix_caching": True, "speculation": ngram}) is not None
    assert allowed({**first.axes, "prefix_caching": False, "speculation": ngram}) is None
    assert allowed({**first.axes, "batch_size": 8, "tensor_parallel_size": 2}) is None
    missing = Speculation(**{**DRAFT, "draft": "other"})
    assert allowed({**first.axes, "speculation": missing}) is None


def test_an_axis_with_one_value_is_changed_to_the_simpler_one() -> None:
    made = matrix(grid={**GRID, "prefix_caching": True, "batch_size": 8})
    found = changes(made, expand(made, file="small.yaml").cells)

    assert set(found["prefix_caching"]) == {True, False}
    assert set(found["batch_size"]) == {8, 1}
    assert len(found["speculation"]) == 2
    assert found["tensor_parallel_size"] == (1,)
    assert found["engine"] == ("vllm",)
