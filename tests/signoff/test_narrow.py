"""Further cells say which settings a failure needs: one axis changed at a time, no cell more."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from made_sweeps import DRAFTED, MTP, grid, make_cell

from matrixrun.evidence.cells import AxisValue, Cell, Speculation
from matrixrun.evidence.verdicts import CellResult, Verdict
from matrixrun.matrix.covering import cover
from matrixrun.signoff.narrow import Narrowed, narrow, sentence

NGRAM = Speculation(method="ngram", num_speculative_tokens=4)
AXES: dict[str, list[Any]] = {
    "tensor_parallel_size": [1, 2],
    "pipeline_parallel_size": [1, 2],
    "prefix_caching": [True, False],
    "speculation": [NGRAM, DRAFTED, MTP],
    "batch_size": [1, 8],
}
CELLS = grid(**AXES)
Rule = Callable[[Mapping[str, Any]], bool]


def end(cell: Cell, rule: Rule) -> CellResult:
    verdict = Verdict.FAIL if rule(cell.axes) else Verdict.PASS
    return CellResult(cell=cell, verdict=verdict, reason="", expected=False)


def anything(axes: Mapping[str, AxisValue]) -> Cell | None:
    return make_cell(**axes)


def pairs() -> list[Cell]:
    """A covering array: nothing but pairs of values is sure to be in it."""
    return [CELLS[place] for place in cover([cell.axes for cell in CELLS], [], AXES, 2)[0]]


def followed(
    rule: Rule, cells: list[Cell], **known: Any
) -> tuple[tuple[Narrowed, ...], list[Cell]]:
    """What is known once everything that was wanted has run, and what was run for it."""
    results, ran = [end(cell, rule) for cell in cells], []
    while True:
        found, wanted = narrow(results, AXES, known.get("allowed", anything))
        if not wanted:
            return found, ran
        results += [end(cell, rule) for cell in wanted]
        ran += wanted


def settings_needed(found: Narrowed) -> dict[str, str]:
    return {trial.axis: trial.value for trial in found.needed}


def one_of_four() -> list[Cell]:
    """Four cells in which three pairs of settings fail alike: nobody can tell which it is."""
    chosen = [(True, DRAFTED, 8), (True, NGRAM, 1), (False, DRAFTED, 1), (False, NGRAM, 8)]
    return [make_cell(prefix_caching=p, speculation=s, batch_size=b) for p, s, b in chosen]


def cached_and_drafted(axes: Mapping[str, Any]) -> bool:
    return bool(axes["prefix_caching"]) and axes["speculation"].method == "draft_model"


def test_the_neighbours_of_the_failing_cell_are_what_is_run() -> None:
    cells = one_of_four()
    _, wanted = narrow([end(c, cached_and_drafted) for c in cells], AXES, anything)

    failing = cells[0].axes
    changed = [[axis for axis in failing if cell.axes[axis] != failing[axis]] for cell in wanted]
    assert all(len(axes) == 1 for axes in changed)
    assert {axes[0] for axes in changed} == set(AXES)


def test_they_tell_what_it_takes() -> None:
    (found,), ran = followed(cached_and_drafted, one_of_four())

    assert settings_needed(found) == {"prefix_caching": "true", "speculation": DRAFTED.label}
    assert not found.unknown
    assert len(ran) == len(AXES)
    text = sentence(found)
    needed = f"FAIL needs prefix_caching=true and speculation={DRAFTED.label}"
    assert text.startswith(f"{needed}; good with any one of them changed (")
    assert "batch_size=1 is FAIL too" in text


def test_what_the_sweep_shows_is_not_run_again() -> None:
    found, wanted = narrow([end(cell, cached_and_drafted) for cell in CELLS], AXES, anything)

    assert wanted == ()
    assert settings_needed(found[0]) == {"prefix_caching": "true", "speculation": DRAFTED.label}


def test_what_the_matrix_file_does_not_allow_is_not_run_and_said_to_be_unknown() -> None:
    def no_other_method(axes: Mapping[str, AxisValue]) -> Cell | None:
        return None if axes["speculation"] != DRAFTED else make_cell(**axes)

    (found,), ran = followed(cached_and_drafted, one_of_four(), allowed=no_other_method)

    assert all(cell.axes["speculation"] == DRAFTED for cell in ran)
    assert [trial.axis for trial in found.unknown] == ["speculation"]
    assert "speculation (the matrix file allows no other value here)" in sentence(found)


def test_a_failure_everywhere_is_narrowed_too() -> None:
    alone = [make_cell(prefix_caching=True, speculation=DRAFTED, batch_size=8)]

    (found,), _ = followed(cached_and_drafted, alone)

    assert settings_needed(found) == {"prefix_caching": "true", "speculation": DRAFTED.label}


def test_a_fault_of_every_setting_is_given_none() -> None:
    (found,), _ = followed(lambda _: True, [make_cell(prefix_caching=True)])

    assert not found.needed
    assert "no change of one setting alone helps" in sentence(found)


def test_what_ended_otherwise_is_no_evidence() -> None:
    failing = one_of_four()[0]
    refused = make_cell(**{**failing.axes, "prefix_caching": False})
    results = [
        end(failing, cached_and_drafted),
        CellResult(cell=refused, verdict=Verdict.REFUSED, reason="", expected=False),
    ]

    (found,), wanted = narrow(results, AXES, anything)

    assert refused.id not in [cell.id for cell in wanted]
    (trial,) = [trial for trial in found.unknown if trial.axis == "prefix_caching"]
    assert (trial.cell, trial.verdict) == (refused.id, Verdict.REFUSED)


def test_an_expected_failure_is_left_alone() -> None:
    failing = CellResult(cell=CELLS[0], verdict=Verdict.FAIL, reason="", expected=True)

    assert narrow([failing], AXES, anything) == ((), ())


@given(st.lists(st.sampled_from(sorted(AXES)), min_size=1, max_size=3, unique=True), st.data())
@settings(max_examples=60, deadline=None)
def test_a_planted_combination_is_found_from_pairs_by_a_handful_of_cells(
    axes: list[str], data: st.DataObject
) -> None:
    planted = {axis: data.draw(st.sampled_from(AXES[axis])) for axis in axes}

    def rule(cell: Mapping[str, Any]) -> bool:
        return all(cell[axis] == value for axis, value in planted.items())

    seen = [end(cell, rule) for cell in pairs()]
    if not any(result.verdict is Verdict.FAIL for result in seen):
        return  # three settings need not meet in an array of pairs
    found, ran = followed(rule, pairs())

    assert all(set(settings_needed(one)) == set(planted) for one in found)
    assert len(ran) <= len(AXES)


def test_two_faults_are_narrowed_each() -> None:
    def rule(axes: Mapping[str, Any]) -> bool:
        tall = axes["tensor_parallel_size"] == 2 and axes["batch_size"] == 8
        return tall or (axes["pipeline_parallel_size"] == 2 and axes["speculation"] == MTP)

    found, _ = followed(rule, pairs())

    told = {tuple(settings_needed(one).items()) for one in found}
    assert (("tensor_parallel_size", "2"), ("batch_size", "8")) in told
    assert (("pipeline_parallel_size", "2"), ("speculation", MTP.label)) in told


def test_the_order_of_the_results_changes_nothing() -> None:
    results = [end(cell, cached_and_drafted) for cell in one_of_four()]
    told = [narrow(list(order), AXES, anything) for order in itertools.permutations(results)]

    assert all(one == told[0] for one in told)
