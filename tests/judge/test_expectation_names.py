"""Names that an expectations file may use."""

from __future__ import annotations

from pathlib import Path

import pytest

from matrixrun.evidence.errors import UserError
from matrixrun.judge import JudgeSettings, judge_sweep
from matrixrun.judge.case import build_case
from matrixrun.record.expectations import read_expectations, unknown_cells
from matrixrun.signoff.detail import acceptance_of

from .simulator import Pair, simulate


def read(tmp_path: Path, text: str):
    path = tmp_path / "expectations.yaml"
    path.write_text(text, encoding="utf-8")
    return read_expectations(path)


@pytest.mark.parametrize(
    ("metric", "meant"),
    [
        ("acceptance/mean_aceptance_length", "acceptance/mean_acceptance_length"),
        ("mean_acceptance_length", "acceptance/mean_acceptance_length"),
        ("acceptance/draft_acceptance_rates", "acceptance/draft_acceptance_rate"),
        ("acceptance/rate.positon.2", "acceptance/rate.position.2"),
        ("acceptance/rate.position.02", "acceptance/rate.position.2"),
    ],
)
def test_a_misspelt_metric_is_refused_with_the_nearest_one(tmp_path, metric, meant):
    with pytest.raises(UserError) as refused:
        read(tmp_path, f"a.b: {{{metric}: [1, 2]}}\n")
    assert f"a.b: no metric is named {metric!r}" in refused.value.message
    assert refused.value.remedy == f"did you mean {meant!r}?"


def test_a_metric_unlike_any_is_refused_with_those_known(tmp_path):
    with pytest.raises(UserError, match=r"known are acceptance/mean_acceptance_length"):
        read(tmp_path, "a.b: {speed/x: [1, 2]}\n")


def test_a_misspelt_metric_in_a_baseline_is_refused_too(tmp_path):
    text = "matrixrun: baseline 1\ncells: {a.b: {expect: {acceptance/lenght: [1, 2]}}}\n"
    with pytest.raises(UserError, match=r"no metric is named 'acceptance/lenght'"):
        read(tmp_path, text)


def test_every_figure_that_a_baseline_expects_is_read_and_can_be_judged(tmp_path):
    cell = simulate(Pair())
    names = acceptance_of(build_case(cell, JudgeSettings(), 1))
    assert len(names) == 5
    lines = "".join(f"  {name}: [0, 9]\n" for name in names)
    expectations = read(tmp_path, f"{cell.cell.id}:\n{lines}")
    assert [entry.metric for entry in expectations] == list(names)
    settings = JudgeSettings(detect_rate=0.1, expectations=expectations)
    assert judge_sweep([cell], settings).results[0].verdict.value == "PASS"


def test_a_misspelt_cell_is_told_with_the_nearest_one(tmp_path):
    cell = simulate(Pair()).cell
    wrong = cell.id.replace("ngram", "ngarm")
    assert wrong != cell.id
    text = f"{wrong}: {{acceptance/mean_acceptance_length: [1, 2]}}\n"
    (told,) = unknown_cells(read(tmp_path, text), [cell])
    assert told.startswith(f"expectations: {wrong} is no cell of this matrix")
    assert told.endswith(f"did you mean {cell.id}?")


def test_cells_of_a_larger_grid_are_told_and_no_mistake(tmp_path):
    cell = simulate(Pair()).cell
    lines = [f"other{n}: {{acceptance/mean_acceptance_length: [1, 2]}}\n" for n in range(8)]
    told = unknown_cells(read(tmp_path, "".join(lines)), [cell])
    assert len(told) == 6
    assert "did you mean" not in told[0]
    assert told[-1] == "expectations: 3 more cells are not in this matrix"
