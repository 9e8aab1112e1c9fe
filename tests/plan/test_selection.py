"""`--only`."""

import pytest
from plan_matrices import plan

from matrixrun.evidence.errors import UserError
from matrixrun.plan import select

CELL = "vllm.dense.pc-on.ngram-k4.b8"


def test_a_cell_keeps_its_launches_and_their_fingerprints():
    whole = plan()
    part = select(whole, [CELL])
    assert [cell.id for cell in part.cells] == [CELL]
    assert {launch.id for launch in part.launches} == {
        "on.vllm.dense.pc-on.ngram-k4",
        "A.vllm.dense.pc-on",
    }
    known = {launch.id: launch for launch in whole.launches}
    for launch in part.launches:
        assert launch.fingerprint == known[launch.id].fingerprint
        assert launch.command == known[launch.id].command
        assert launch.cells == (CELL,)
    assert part.naive_launches == 2
    assert part.confirmation_launches_at_most == 1
    assert part.seconds < whole.seconds


def test_patterns_select_what_they_match():
    part = select(plan(), ["*.pc-off.*.b1", CELL])
    assert {cell.id for cell in part.cells} == {
        "vllm.dense.pc-off.ngram-k4.b1",
        "vllm.dense.pc-off.draft_model-small-k3.b1",
        CELL,
    }
    assert len(part.groups) == 2


def test_nothing_selected_is_everything():
    whole = plan()
    assert select(whole, []) is whole


def test_an_unknown_cell_is_answered_with_the_likely_one():
    with pytest.raises(UserError, match=r"'vllm\.dense\.pc-on\.ngram-k4\.b9'(?s:.*)did you mean"):
        select(plan(), [CELL[:-1] + "9"])


def test_a_pattern_that_matches_nothing_is_the_users_mistake():
    with pytest.raises(UserError, match="no cell is named 'sglang"):
        select(plan(), ["sglang.*"])


def test_refused_cells_can_be_selected_and_need_no_launch():
    lossy = {
        "method": "ngram",
        "num_speculative_tokens": 4,
        "rejection_sample_method": "synthetic",
    }
    whole = plan(grid={"engine": "vllm", "model": "dense", "speculation": lossy})
    part = select(whole, ["vllm.*"])
    assert part.refused
    assert part.launches == ()
    assert part.seconds == 0
