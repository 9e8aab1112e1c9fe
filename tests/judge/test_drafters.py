"""What a drafter must have proposed, and what its own steps say of it."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from matrixrun.evidence.cells import Speculation
from matrixrun.evidence.verdicts import Severity, Verdict
from matrixrun.judge import JudgeSettings, judge_sweep
from matrixrun.judge.prompt_lookup import PromptLookup, drafts_of, predicted_steps

from .simulator import Arm, Pair, changed, outcome, simulate

SETTINGS = JudgeSettings(detect_rate=0.1)
DRAFTER = PromptLookup(1, 2, 3, 4096)
FACTS = {"engine": "vllm", "speculative_method": "ngram", "speculative_prompt_lookup_min": 1,
         "speculative_prompt_lookup_max": 2, "speculative_num_speculative_tokens": 3,
         "max_model_len": 4096}  # fmt: skip
DRAFT_MODEL = Speculation(method="draft_model", draft="draft", num_speculative_tokens=3)


def result_of(cell):
    return judge_sweep([cell], SETTINGS).results[0]


def kinds(result, severity=Severity.FAULT):
    return [one.kind for one in result.findings if one.severity is severity]


def proposed_by_search(text: list[int], place: int, drafter: PromptLookup) -> list[int]:
    """The rule as it is told: longest n-gram first, earliest place first."""
    before = text[:place]
    for length in range(drafter.most, drafter.least - 1, -1):
        for start in range(place - length):
            if before[start : start + length] == before[place - length :]:
                left = max(0, (drafter.longest or place + 99) - place)
                return before[start + length :][: min(drafter.tokens, left)]
    return []


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.integers(0, 3), min_size=1, max_size=30),
    st.integers(1, 2), st.integers(0, 2), st.integers(1, 4), st.sampled_from([None, 20]),
)  # fmt: skip
def test_drafts_are_those_of_the_rule(text, least, more, tokens, longest):
    drafter = PromptLookup(least, least + more, tokens, longest)
    drafts = drafts_of(drafter, text)
    for place in range(len(text) + 1):
        draft = proposed_by_search(text, place, drafter)
        same = [a == b for a, b in zip(draft, text[place:], strict=False)]
        assert drafts.offered[place] == len(draft)
        assert drafts.matching[place] == [*same, False].index(False)


def with_ngram_steps(drop=0, change=None):
    """A cell whose steps are the n-gram drafter's own; the first `drop` requests have none."""
    cell = simulate(Pair())
    on = []
    for index, one in enumerate(cell.on):
        prompt = cell.prompts[one.request]
        drafts = drafts_of(DRAFTER, [*prompt, *one.token_ids.tolist()])
        drafted, accepted = predicted_steps(drafts, len(prompt))
        if index < drop:
            drafted, accepted = drafted[:0], accepted[:0]
        elif change is not None:
            accepted = change(accepted)
        on.append(replace(one, drafted=drafted.astype(np.int32),
                          accepted=accepted.astype(np.int32)))  # fmt: skip
    ends = {**cell.evidence.outcomes, "on": outcome("on", facts=FACTS)}
    evidence = msgspec.structs.replace(cell.evidence, outcomes=ends)
    return replace(cell, on=tuple(on), evidence=evidence)


def test_steps_as_predicted_are_no_finding():
    result = result_of(with_ngram_steps())
    assert "predicted-acceptance" not in kinds(result) + kinds(result, Severity.NOTICE)
    assert result.metrics["acceptance/as_predicted"] == 1.0
    length = result.metrics["acceptance/predicted_length"]
    assert length > 1.0
    assert length == pytest.approx(result.metrics["acceptance/predicted_length.off"])


def test_a_drafter_that_is_off_in_one_request_of_eight_is_a_fault():
    result = result_of(with_ngram_steps(drop=6))
    assert kinds(result) == ["predicted-acceptance"]
    assert result.verdict is Verdict.FAIL


@pytest.mark.parametrize("change", [np.zeros_like, lambda many: np.full_like(many, 3)])
def test_steps_that_accept_less_than_the_rule_says_or_more_than_answers_hold_are_a_fault(change):
    assert "predicted-acceptance" in kinds(result_of(with_ngram_steps(change=change)))


def test_a_drafter_that_is_better_than_the_rule_is_a_notice():
    """It may remember other requests' texts: its steps are fewer, and take more each."""
    cell = with_ngram_steps()
    fewer = [
        replace(one, accepted=np.array([3, 3], np.int32), drafted=np.array([3, 3], np.int32))
        for one in cell.on
    ]
    better = result_of(replace(cell, on=tuple(fewer)))
    due = (one.accepted[:-1].sum() for one in cell.on)
    assert sum(due) < 3 * len(fewer)
    assert "predicted-acceptance" in kinds(better, Severity.NOTICE)
    assert "predicted-acceptance" not in kinds(better)


def test_one_request_with_other_steps_is_a_notice():
    result = result_of(with_ngram_steps(drop=1))
    assert "predicted-acceptance" in kinds(result, Severity.NOTICE)
    assert not kinds(result)


def drafted_by_a_model(change=lambda one: one.accepted, **speculation):
    cell = simulate(Pair(on=Arm(accept=0.6, seed=1)), speculation=msgspec.structs.replace(
        DRAFT_MODEL, **speculation))  # fmt: skip
    return replace(cell, on=changed(cell.on, range(len(cell.on)), accepted=change))


def first_only(one):
    return np.minimum(one.accepted, 1)


def test_positions_that_are_taken_alike_are_no_finding():
    result = result_of(drafted_by_a_model())
    assert "acceptance-by-position" not in kinds(result) + kinds(result, Severity.NOTICE)
    assert result.metrics["acceptance/conditional.position.2"] == pytest.approx(0.6, abs=0.1)


def test_a_draft_model_whose_later_positions_are_never_taken_is_a_fault():
    result = result_of(drafted_by_a_model(first_only))
    assert "acceptance-by-position" in kinds(result)


def test_heads_whose_later_positions_are_never_taken_get_a_notice():
    result = result_of(drafted_by_a_model(first_only, method="eagle3"))
    assert "acceptance-by-position" in kinds(result, Severity.NOTICE)
    assert "acceptance-by-position" not in kinds(result)


def test_a_better_drafter_that_is_off_in_some_requests_is_a_fault():
    """What it gains elsewhere does not make up for them."""
    cell = with_ngram_steps(drop=6)
    nine = np.array([3] * 9, np.int32)
    better = (*cell.on[:6], *(replace(one, accepted=nine, drafted=nine) for one in cell.on[6:]))
    assert "predicted-acceptance" in kinds(result_of(replace(cell, on=better)))


def lost_behind_whole_drafts(one):
    """The first token of a draft is never taken behind a draft that was taken whole."""
    taken = one.accepted.copy()
    for step in range(1, taken.size):
        if taken[step - 1] == one.drafted[step - 1]:
            taken[step] = 0
    return taken


def test_a_draft_model_that_fails_behind_every_whole_draft_is_a_fault():
    result = result_of(drafted_by_a_model(lost_behind_whole_drafts))
    assert "acceptance-after-whole-draft" in kinds(result)
    assert result.metrics["acceptance/first.after_whole"] == 0.0


def test_answers_that_go_round_are_no_drafters_fault():
    """In a third of them the place that it gets wrong comes behind every whole draft."""
    cell = drafted_by_a_model()
    third = range(0, len(cell.on), 3)
    looping = replace(cell, on=changed(cell.on, third, accepted=lambda one: np.array(
        [3 * (step % 2) for step in range(one.accepted.size)], np.int32)))  # fmt: skip
    result = result_of(looping)
    assert "acceptance-after-whole-draft" not in kinds(result) + kinds(result, Severity.NOTICE)


@pytest.mark.parametrize("accept", [0.05, 0.1, 0.15])
@pytest.mark.parametrize("tokens", [12, 24, 64])
def test_a_drafter_that_is_seldom_right_is_not_accused_by_few_steps(accept, tokens):
    """Zero of 30 is no zero."""
    for seed in range(12):
        cell = simulate(Pair(on=Arm(accept=accept, seed=seed), tokens=tokens),
                        speculation=DRAFT_MODEL)  # fmt: skip
        found = kinds(result_of(cell))
        assert not {"acceptance-after-whole-draft", "acceptance-by-position"} & set(found)


def test_heads_that_fail_behind_every_whole_draft_get_a_notice():
    result = result_of(drafted_by_a_model(lost_behind_whole_drafts, method="eagle3"))
    assert "acceptance-after-whole-draft" in kinds(result, Severity.NOTICE)
    assert "acceptance-after-whole-draft" not in kinds(result)


def test_drafts_behind_whole_ones_are_taken_as_others_are():
    result = result_of(drafted_by_a_model())
    assert "acceptance-after-whole-draft" not in kinds(result) + kinds(result, Severity.NOTICE)
    after, other = (result.metrics[f"acceptance/first.after_{name}"]
                    for name in ("whole", "rejection"))  # fmt: skip
    assert after == pytest.approx(other, abs=0.15)


def off_in_a_third(one):
    return one[: one.size * 2 // 3]


def test_a_drafter_of_whole_drafts_that_is_off_in_a_third_of_the_steps_is_a_fault():
    cell = drafted_by_a_model(lambda one: off_in_a_third(one.accepted))
    cell = replace(cell, on=changed(cell.on, range(len(cell.on)),
                                    drafted=lambda one: off_in_a_third(one.drafted)))  # fmt: skip
    assert "idle-drafter" in kinds(result_of(cell))


def test_a_lookup_that_finds_nothing_is_not_off():
    cell = drafted_by_a_model(lambda one: off_in_a_third(one.accepted), method="ngram-simple")
    cell = replace(cell, on=changed(cell.on, range(len(cell.on)),
                                    drafted=lambda one: off_in_a_third(one.drafted)))  # fmt: skip
    result = result_of(cell)
    assert result.metrics["acceptance/idle_share"] > 0.2
    assert "idle-drafter" not in (*kinds(result), *kinds(result, Severity.NOTICE))


def test_a_drafter_whose_drafts_vary_may_leave_some_out():
    def varying(one):
        return np.where(np.arange(one.drafted.size) % 3 == 0, 2, one.drafted)

    cell = drafted_by_a_model(lambda one: off_in_a_third(np.minimum(one.accepted, 2)))
    on = changed(cell.on, range(len(cell.on)), drafted=lambda one: off_in_a_third(varying(one)))
    assert "idle-drafter" not in kinds(result_of(replace(cell, on=on)))


def two_batch_sizes(accept):
    """The same texts at two batch sizes; the drafter of the second takes its own chances."""
    speculation = {"speculation": DRAFT_MODEL}
    one = simulate(Pair(), cell_id="b1", batch_size=1, **speculation)
    pair = Pair(on=Arm(accept=accept, seed=1))
    return one, simulate(pair, cell_id="b8", batch_size=8, **speculation)


def by_step(cells):
    results = judge_sweep(cells, SETTINGS).results
    return ["acceptance-by-step" in kinds(one) for one in results]


def test_the_same_steps_accept_the_same_in_both_cells():
    assert by_step(two_batch_sizes(0.7)) == [False, False]


def test_the_cell_whose_same_steps_accept_less_is_at_fault():
    assert by_step(two_batch_sizes(0.4)) == [False, True]
