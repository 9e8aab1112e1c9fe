"""Tokens that no evaluation of the target explains: found, scored again, and settled or not."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from matrixrun.evidence.requests import Evaluation
from matrixrun.evidence.verdicts import Verdict
from matrixrun.judge import judge_sweep

from .judging import LEAKY, SETTINGS, answers, judged, kinds
from .simulator import VOCABULARY, Pair, answer, changed, gathered, simulate


def test_a_rejected_token_let_through_once_in_50_steps_fails_with_position_and_tokens():
    pair = Pair(on=LEAKY)
    result = judged(simulate(pair), pair)
    assert result.verdict is Verdict.FAIL
    worst = next(one for one in result.findings if one.kind == "unexplained-token")
    assert worst.numbers["request"] in worst.text
    assert f"token {worst.numbers['position']}" in worst.text
    assert set(worst.numbers["evaluations"]) == {"prefill", "decode", "extend"}
    assert "regret" in kinds(result)


def test_one_unexplained_token_in_a_noisy_pair_is_enough():
    pair = Pair().noisy(0.05)
    on, off, null = answers(pair)
    ids = on[7].token_ids.copy()
    ids[20] = (ids[20] + 1) % (VOCABULARY - 1)
    result = judged(gathered(pair, changed(on, [7], token_ids=ids), off, null), pair)
    assert result.verdict is Verdict.FAIL
    assert "r0007" in result.reason


@pytest.mark.parametrize("seed", range(6))
def test_a_leak_of_one_step_in_500_fails_whenever_it_left_a_mark(seed):
    pair = Pair(prompts=120).noisy(0.05).seeded(seed)
    pair = replace(pair, on=replace(pair.on, let_through=0.002))
    cell = simulate(pair)
    ceiling = judged(cell, pair).metrics["regret/ceiling"]
    marked = any((score.regret > ceiling).any() for score in cell.on_scores)
    assert judged(cell, pair).verdict is (Verdict.FAIL if marked else Verdict.PASS)


def test_a_suspicion_is_provisional_until_scored_again_and_inconclusive_if_it_cannot_be():
    pair = Pair()
    on, off, null = answers(pair)
    ids = on[3].token_ids.copy()
    ids[30] = (ids[30] + 1) % (VOCABULARY - 1)
    cell = gathered(pair, changed(on, [3], token_ids=ids), off, null)
    first = judge_sweep([cell], SETTINGS)
    assert first.results[0].verdict is Verdict.INCONCLUSIVE
    (want,) = first.wants
    asked = {score.evaluation for score in want.scores}
    assert asked == {Evaluation.DECODE, Evaluation.EXTEND}
    assert all(score.start == len(score.token_ids) - 1 for score in want.scores)
    last = judge_sweep([cell], SETTINGS, final=True)
    assert last.wants == ()
    assert last.results[0].verdict is Verdict.INCONCLUSIVE
    failed = tuple(replace(one, error="no answer") for one in answer(pair, first.wants))
    unsettled = judge_sweep([replace(cell, confirmations=failed)], SETTINGS)
    assert unsettled.wants == ()
    assert unsettled.results[0].verdict is Verdict.INCONCLUSIVE


def test_a_token_that_one_evaluation_explains_is_no_fault():
    pair = Pair()
    on, off, null = answers(pair)
    ids = on[3].token_ids.copy()
    ids[30] = (ids[30] + 1) % (VOCABULARY - 1)
    cell = gathered(pair, changed(on, [3], token_ids=ids), off, null)
    told = tuple(
        replace(one, token_logprobs=one.best_logprobs)
        if one.evaluation is Evaluation.EXTEND
        else one
        for one in answer(pair, judge_sweep([cell], SETTINGS).wants)
    )
    result = judge_sweep([replace(cell, confirmations=told)], SETTINGS).results[0]
    assert "unexplained-token" not in kinds(result)


def bounded(one, evaluation, regret):
    """A re-scoring whose token was not among those returned: the regret is `regret` or more."""
    if one.evaluation is not evaluation:
        return one
    return replace(one, token_logprobs=one.best_logprobs - np.float32(regret), bounded=True)


@pytest.mark.parametrize("evaluation", [Evaluation.DECODE, Evaluation.EXTEND])
@pytest.mark.parametrize(("regret", "settled"), [(0.0, False), (0.1, False), (30.0, True)])
def test_a_bounded_score_confirms_beyond_the_ceiling_and_explains_nothing_within(
    evaluation, regret, settled
):
    pair = Pair()
    on, off, null = answers(pair)
    ids, best = on[3].token_ids.copy(), 30
    ids[best] = (ids[best] + 1) % (VOCABULARY - 1)
    cell = gathered(pair, changed(on, [3], token_ids=ids), off, null)
    # A regret below the band: without an extension it cannot settle by prefill and decoding alone.
    scores = cell.on_scores[3]
    near = scores.best_logprobs - np.where(np.arange(48) == best, 1.0, 0.0).astype(np.float32)
    scores = replace(scores, token_logprobs=near)
    cell = replace(cell, on_scores=(*cell.on_scores[:3], scores, *cell.on_scores[4:]))
    told = answer(pair, judge_sweep([cell], SETTINGS).wants)
    assert {one.evaluation for one in told} == {Evaluation.DECODE, Evaluation.EXTEND}
    told = tuple(bounded(one, evaluation, regret) for one in told)
    second = judge_sweep([replace(cell, confirmations=told)], SETTINGS)
    assert second.wants == ()
    assert ("unexplained-token" in kinds(second.results[0])) is settled
    wanted = Verdict.FAIL if settled else Verdict.INCONCLUSIVE
    assert second.results[0].verdict is wanted
    assert settled or "re-scoring could not settle them" in second.results[0].reason
