"""Sampling above temperature 0: the target's own law, independence, seeds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import special

from matrixrun.evidence.verdicts import Finding, Severity, Verdict
from matrixrun.judge import JudgeSettings, Setting, drawn_with, judge_sweep
from matrixrun.judge.betting import (
    Draws,
    _nearest_before,
    wager,
    wager_on_a_favourite,
    wager_on_collisions,
    wager_on_leaks,
    wager_on_parts,
    wager_on_strangers,
)
from matrixrun.judge.laws import law_of, law_under
from matrixrun.judge.sampled import offers_single_tokens, sampled
from matrixrun.judge.testimony import where_rare

from .sampling_simulator import Sampler, cell, greedy, observed, under, unreduced

SETTINGS = JudgeSettings(detect_rate=0.1)


GREEDY_DRAFTS = {"engine": "vllm", "speculative_method": "draft_model"}
CHAIN = {"engine": "sglang", "speculative_algorithm": "EAGLE", "speculative_eagle_topk": 1}


def result_of(seen, facts=None):
    return judge_sweep([cell(seen, facts)], SETTINGS).results[0]


def faults(result):
    return {one.kind for one in result.findings if one.severity is Severity.FAULT}


@pytest.mark.parametrize("noise", [0.0, 0.1])
def test_right_samples_pass(noise):
    result = result_of(observed(Sampler(seed=1, noise=noise), noise=noise))
    assert result.verdict is Verdict.PASS, result.reason
    assert result.metrics["sampling.draft_tokens"] > 0


@pytest.mark.parametrize("residual", [unreduced, greedy])
def test_a_wrong_residual_fails(residual):
    result = result_of(observed(Sampler(seed=1, residual=residual)))
    assert result.verdict is Verdict.FAIL
    assert "distribution" in faults(result)


def test_drafts_taken_too_often_fail():
    result = result_of(observed(Sampler(seed=1, leak=0.25), prompts=24))
    assert "distribution" in faults(result)


def test_drafts_accepted_by_the_same_numbers_in_every_step_fail():
    """Over all answers tokens come about as often as they should; within one they do not."""
    for seed in range(3):
        result = result_of(observed(Sampler(seed=seed, stuck=True), tokens=48))
        assert result.verdict is Verdict.FAIL
        told = next(one.text for one in result.findings if one.kind == "distribution")
        assert "what came of the place most like it" in told


@given(st.lists(st.floats(0.0, 1.0), min_size=2, max_size=12))
def test_the_place_most_alike_lies_before(values):
    found = _nearest_before(np.array(values))
    assert len(found) == len(values) - 1
    for place, before in enumerate(found, start=1):
        assert before < place
        apart = [abs(values[place] - value) for value in values[:place]]
        assert apart[before] == min(apart)


def test_drafts_let_through_now_and_then_fail_where_a_place_has_a_single_draft_token():
    """Few enough that the tokens alone do not show it: what is taken of the drafts does."""
    seen = observed(Sampler(seed=1, let_through=0.1), prompts=24)
    result = result_of(seen, GREEDY_DRAFTS)
    assert result.verdict is Verdict.FAIL
    told = next(one.text for one in result.findings if one.kind == "distribution")
    assert "draft tokens let through" in told
    assert "distribution" not in faults(result_of(seen))


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.3])
def test_right_drafts_of_single_tokens_are_not_let_through(noise):
    for seed in range(3):
        result = result_of(observed(Sampler(seed=seed, noise=noise), noise=noise), GREEDY_DRAFTS)
        assert result.verdict is Verdict.PASS, result.reason


def leak_bets(chances, taken):
    """What the bets on single draft tokens of these chances make of 1, by stake."""
    size = len(chances)
    one = {name: np.zeros(size, dtype=np.int64) for name in Draws.__dataclass_fields__}
    one |= {"taken": np.asarray(taken), "logprob": np.log(chances)}
    return np.exp(wager_on_leaks(Draws(**one)))


@given(chance=st.floats(1e-4, 1.0))
def test_a_draft_taken_at_its_own_probability_pays_1_on_average(chance):
    mean = chance * leak_bets([chance], [True]) + (1.0 - chance) * leak_bets([chance], [False])
    assert mean == pytest.approx(np.ones_like(mean))


def test_right_acceptance_hardly_ever_makes_20_of_1():
    random = np.random.default_rng(6)
    chances = np.repeat([0.002, 0.02, 0.2, 0.9], 25)
    wealth = [leak_bets(chances, random.random(100) < chances).mean() for _ in range(2000)]
    assert np.mean(np.array(wealth) >= 20.0) <= 0.05


@pytest.mark.parametrize(
    ("single", "facts"),
    [
        (True, GREEDY_DRAFTS),
        (True, {**GREEDY_DRAFTS, "speculative_draft_sample_method": "greedy"}),
        (False, {**GREEDY_DRAFTS, "speculative_draft_sample_method": "probabilistic"}),
        (False, {**GREEDY_DRAFTS, "speculative_rejection_sample_method": "block"}),
        (False, {"engine": "vllm"}),
        (True, {"engine": "llamacpp"}),
        (True, CHAIN),
        (True, {**CHAIN, "speculative_algorithm": "EAGLE3"}),
        (False, {**CHAIN, "speculative_eagle_topk": 4}),
        (False, {**CHAIN, "speculative_algorithm": "NGRAM"}),
        (False, {**CHAIN, "speculative_accept_threshold_single": 0.8}),
        (False, {**CHAIN, "speculative_use_rejection_sampling": True}),
        (False, {}),
    ],
)
def test_which_drafters_offer_single_tokens_follows_from_what_the_launch_says(single, facts):
    assert offers_single_tokens(facts) is single


def test_samples_that_share_their_noise_fail_although_each_follows_the_law():
    result = result_of(observed(Sampler(seed=1, shared=0.3)))
    assert faults(result) == {"correlated-samples"}


def test_what_chance_does_to_whole_answers_now_and_then_is_a_notice():
    text = Finding(kind="sample-similarity", severity=Severity.FAULT, text="less alike", numbers={})
    for p_value, rates, notices in ((5e-5, 1, 0), (5e-3, 0, 1), (5e-2, 0, 0)):
        told = where_rare(p_value, text)
        assert len(told.rates) == rates
        assert [one.severity for one in told.findings] == [Severity.NOTICE] * notices


def test_scores_of_another_target_accuse_nobody():
    """The off arms lose to the same bets: it is A's law that is not theirs."""
    result = result_of(observed(Sampler(seed=1, noise=2.0), noise=0.0))
    assert not faults(result)
    assert result.verdict is Verdict.INCONCLUSIVE


def test_a_drafter_that_is_silent_above_temperature_0_is_not_tested():
    result = result_of(observed(Sampler(seed=1, drafts=0)))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "no draft was verified above temperature 0" in result.reason


def again_otherwise(seen, share):
    """Samples of which a share of those with a seed sent again came out otherwise in the on arm."""
    again = [one.request for one in seen.observations["on"] if one.request.endswith("again")]
    other = set(again[: round(share * len(again))])
    on = tuple(
        replace(one, token_ids=one.token_ids[::-1].copy()) if one.request in other else one
        for one in seen.observations["on"]
    )
    return replace(seen, observations={**seen.observations, "on": on})


def test_seeds_that_are_kept_without_speculation_alone_are_a_fault():
    result = result_of(again_otherwise(observed(Sampler(seed=1)), 1.0))
    assert "seeds" in faults(result)
    assert result.verdict is Verdict.FAIL


def test_a_seed_that_does_not_repeat_now_and_then_is_a_notice():
    result = result_of(again_otherwise(observed(Sampler(seed=1)), 0.25))
    assert "seeds" in {one.kind for one in result.findings}
    assert result.verdict is Verdict.PASS


def test_seeds_that_no_arm_keeps_are_no_finding():
    seen = again_otherwise(observed(Sampler(seed=1)), 1.0)
    seen = replace(seen, observations={**seen.observations, "off": seen.observations["on"]})
    assert "seeds" not in {one.kind for one in result_of(seen).findings}


def test_the_law_sums_to_one_and_its_last_entry_is_all_others():
    law = law_of(np.log(np.array([[0.5, 0.25], [0.9, 0.05]])))
    assert law.sum(axis=1) == pytest.approx([1.0, 1.0])
    assert law[:, -1] == pytest.approx([0.25, 0.05], abs=1e-6)


def test_settings_that_reach_every_row_pass():
    for seed in range(3):
        result = result_of(observed(Sampler(seed=seed), cut=8))
        assert result.verdict is Verdict.PASS, result.reason


@pytest.mark.parametrize("noise", [0.1, 0.3])
def test_rounding_at_the_border_of_a_cut_accuses_nobody(noise):
    for seed in range(3):
        seen = observed(Sampler(seed=seed, noise=noise), noise=noise, cut=8)
        assert result_of(seen).verdict is Verdict.PASS


@pytest.mark.parametrize("field", ["temperature", "top_k", "top_p"])
def test_settings_that_do_not_reach_draft_positions_fail(field):
    result = result_of(observed(Sampler(seed=1, unreached=(field,)), tokens=64, cut=16))
    assert result.verdict is Verdict.FAIL
    told = next(one.text for one in result.findings if one.kind == "distribution")
    assert "tokens under" in told or "request's settings" in told


def test_an_engine_that_tells_the_best_token_alone_is_not_tested_by_what_it_cuts():
    seen = observed(Sampler(seed=1), prompts=4, cut=4)
    alone = [
        replace(one, top_ids=np.zeros(0, np.int32), top_logprobs=np.zeros(0, np.float32))
        for one in seen.scores["on"]
    ]
    draws = sampled(seen.observations["on"], alone).draws()
    assert draws is not None
    assert not draws.cut.any()
    assert np.isfinite(sampled(seen.observations["on"], alone).pairs()).all()


@pytest.mark.parametrize("setting", [Setting.COOLED, Setting.NUCLEUS])
def test_places_of_which_fewer_tokens_are_told_are_left_out(setting):
    told = np.log(np.array([[0.5, 0.3, 0.1] + 17 * [np.nan]]))
    assert not law_under(setting, told).clear.any()


LOGITS = st.lists(st.floats(-6.0, 6.0), min_size=24, max_size=40)


@given(logits=LOGITS, setting=st.sampled_from(Setting))
def test_no_bet_gains_on_average_under_any_setting(logits, setting):
    """Whatever is bet on, the odds of what was drawn from pay at most 1 on average."""
    law = np.asarray(special.softmax(np.array(logits)))
    order = np.argsort(-law, kind="stable")
    known = law_under(setting, np.log(law[order[:20]])[None])
    drawn = under(law.copy(), drawn_with(setting, None))[order]
    column = np.concatenate([known.column[0], np.full(law.size - 20, 20)])
    mass = np.bincount(column, weights=drawn, minlength=21)
    assert known.uncut[0].sum() == pytest.approx(1.0)
    if known.clear[0]:
        assert (mass <= known.odds[0] + 1e-9).all()


@given(logits=LOGITS)
def test_tokens_tied_with_the_last_one_kept_may_be_kept_too(logits):
    """As an engine does that masks what is less than the last one's logit."""
    order = np.sort(np.array(logits))[::-1]
    known = law_under(Setting.COOLED, special.log_softmax(order)[None, :20])
    cooled = np.where(order >= order[7], np.exp((order - order[0]) / 0.7), 0.0)
    column = np.concatenate([known.column[0], np.full(order.size - 20, 20)])
    mass = np.bincount(column, weights=cooled / cooled.sum(), minlength=21)
    if known.clear[0]:
        assert (mass <= known.odds[0] + 1e-9).all()


@given(logits=LOGITS, setting=st.sampled_from([Setting.COOLED, Setting.NUCLEUS]), data=st.data())
def test_a_little_rounding_hardly_moves_the_odds(logits, setting, data):
    size = len(logits)
    noise = data.draw(st.lists(st.floats(-0.02, 0.02), min_size=size, max_size=size))
    law = special.softmax(np.array(logits))
    order = np.argsort(-law, kind="stable")
    known = law_under(setting, np.log(law[order[:20]])[None])
    moved = special.softmax(np.array(logits) + np.array(noise))
    drawn = under(np.asarray(moved), drawn_with(setting, None))[order]
    column = np.concatenate([known.column[0], np.full(size - 20, 20)])
    mass = np.bincount(column, weights=drawn, minlength=21)
    if known.clear[0]:
        assert mass[20] == pytest.approx(0.0, abs=1e-9)
        assert (mass[:20] <= known.odds[0][:20] * 1.1 + 1e-9).all()


def test_nobody_can_expect_to_win_at_the_targets_odds():
    """The mean capital over many draws of the same laws is at most 1, whatever is bet on."""
    seen = observed(Sampler(seed=1), prompts=4, tokens=8, cut=2)
    draws = sampled(seen.observations["on"], seen.scores["on"]).draws()
    assert draws is not None
    assert draws.cut.any()
    random, wealth = np.random.default_rng(5), []
    for _ in range(400):
        chance = random.random(draws.token.size)[:, None]
        outcome = (draws.law.cumsum(axis=1) < chance).sum(axis=1)
        wealth.append(np.exp(wager(replace(draws, outcome=outcome)).log))
    assert np.mean(wealth) == pytest.approx(1.0, abs=0.3)
    assert np.mean(np.array(wealth) >= 20.0) <= 0.05


def test_tokens_from_nowhere_are_seen_though_they_are_few():
    """One token of 200 is none of the best 20, which hold 99.9 % and more."""
    seen = observed(Sampler(seed=1), prompts=24, tokens=32)
    draws = sampled(seen.observations["on"], seen.scores["on"]).draws()
    law = draws.law.copy()
    law[:, -1] = 1e-3
    law /= law.sum(axis=1, keepdims=True)
    fair = replace(draws, law=law, uncut=law, outcome=np.zeros_like(draws.outcome))
    few = fair.outcome.copy()
    few[::200] = law.shape[1] - 1
    found = wager_on_strangers(replace(fair, outcome=few))
    assert max(found) > 8.0
    assert max(wager_on_strangers(fair)) < 0.0


def test_one_unlikely_token_again_and_again_is_seen_where_the_law_is_flat():
    """Token 7, of probability 1 in 1,000, in place of one token of 150."""
    seen = observed(Sampler(seed=1), prompts=24, tokens=32)
    draws = sampled(seen.observations["on"], seen.scores["on"]).draws()
    assert max(wager_on_a_favourite(draws)) < 3.0
    token, logprob = draws.token.copy(), draws.logprob.copy()
    token[::150], logprob[::150] = 7, np.log(1e-3)
    assert max(wager_on_a_favourite(replace(draws, token=token, logprob=logprob))) > 3.0


def test_a_part_of_the_vocabulary_that_is_never_drawn_is_seen():
    """Of the best tokens but the first, those of the last quarter of the ids are replaced."""
    seen = observed(Sampler(seed=1), prompts=24, tokens=32)
    draws = sampled(seen.observations["on"], seen.scores["on"]).draws()
    assert max(wager_on_parts(draws)) < 3.0
    places = np.arange(draws.token.size)
    named = np.column_stack([draws.top, np.zeros(draws.token.size, np.int64)])
    lost = (named[places, draws.outcome] >= 0.75 * draws.top.max()) & (draws.outcome > 0)
    assert 0.03 < lost.mean() < 0.3
    left = replace(draws, outcome=np.where(lost, 0, draws.outcome))
    found = wager_on_parts(left)
    assert max(found) == max(found[-len(found) // 4 :]) > 8.0


def test_nobody_can_expect_to_win_by_a_favourite():
    """Tokens of a law that never changes, two in a hundred of which are unlikely ones."""
    seen = observed(Sampler(seed=1), prompts=8, tokens=24)
    draws = sampled(seen.observations["on"], seen.scores["on"]).draws()
    random, wealth = np.random.default_rng(2), []
    law = np.array([0.6, 0.38, *[0.005] * 4])
    for _ in range(400):
        token = random.choice(law.size, draws.token.size, p=law)
        drawn = replace(draws, token=token, logprob=np.log(law[token]))
        wealth.append(np.exp(wager_on_a_favourite(drawn)).mean())
    assert np.mean(wealth) <= 1.3  # few draws win much: most of 400 means lie below 1
    assert np.mean(np.array(wealth) >= 20.0) <= 0.05


@given(share=st.floats(1e-7, 0.02))
def test_tokens_from_nowhere_pay_at_most_their_odds(share):
    """The mean capital after one draw is at most 1 at every stake, whatever the others hold."""
    seen = observed(Sampler(seed=1), prompts=1, tokens=2)
    draws = sampled(seen.observations["on"], seen.scores["on"]).draws()
    one = draws.where(np.arange(draws.token.size) == 0)
    law = np.zeros_like(one.law)
    law[0, 0], law[0, -1] = 1.0 - share, share
    last = law.shape[1] - 1
    came, stayed = (
        np.exp(wager_on_strangers(replace(one, law=law, outcome=np.array([place]))))
        for place in (last, 0)
    )
    assert (share * came + (1.0 - share) * stayed <= 1.0 + 1e-9).all()


def test_collisions_at_the_expected_rate_win_nothing():
    random = np.random.default_rng(3)
    chances = random.uniform(0.05, 0.9, 3000)
    fair = np.column_stack([random.random(3000) < chances, chances])
    assert wager_on_collisions(fair).log < 3.0
    often = np.column_stack([random.random(3000) < chances + 0.1, chances])
    assert wager_on_collisions(often).log > 10.0
