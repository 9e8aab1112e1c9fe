"""Sampling above temperature 0: the target's own law, independence, seeds."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from matrixrun.evidence.verdicts import Severity, Verdict
from matrixrun.judge import JudgeSettings, judge_sweep
from matrixrun.judge.betting import law_of, wager, wager_on_collisions
from matrixrun.judge.sampled import sampled

from .sampling_simulator import Sampler, cell, greedy, observed, unreduced

SETTINGS = JudgeSettings(detect_rate=0.1)


def result_of(seen):
    return judge_sweep([cell(seen)], SETTINGS).results[0]


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


def test_samples_that_share_their_noise_fail_although_each_follows_the_law():
    result = result_of(observed(Sampler(seed=1, shared=0.3)))
    assert faults(result) == {"correlated-samples"}


def test_scores_of_another_target_accuse_nobody():
    """The off arms lose to the same bets: it is A's law that is not theirs."""
    result = result_of(observed(Sampler(seed=1, noise=2.0), noise=0.0))
    assert not faults(result)
    assert result.verdict is Verdict.INCONCLUSIVE


def test_a_drafter_that_is_silent_above_temperature_0_is_not_tested():
    result = result_of(observed(Sampler(seed=1, drafts=0)))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "no draft was verified above temperature 0" in result.reason


def test_a_seed_that_does_not_repeat_is_a_notice():
    seen = observed(Sampler(seed=1))
    on = tuple(
        replace(one, token_ids=one.token_ids[::-1].copy()) if one.request.endswith("again") else one
        for one in seen.observations["on"]
    )
    result = result_of(replace(seen, observations={**seen.observations, "on": on}))
    assert "seeds" in {one.kind for one in result.findings}
    assert result.verdict is Verdict.PASS


def test_the_law_sums_to_one_and_its_last_entry_is_all_others():
    law = law_of(np.log(np.array([[0.5, 0.25], [0.9, 0.05]])))
    assert law.sum(axis=1) == pytest.approx([1.0, 1.0])
    assert law[:, -1] == pytest.approx([0.25, 0.05], abs=1e-6)


def test_nobody_can_expect_to_win_at_the_targets_odds():
    """The mean capital over many draws of the same laws is at most 1, whatever is bet on."""
    seen = observed(Sampler(seed=1), prompts=4, tokens=8)
    draws = sampled(seen.observations["on"], seen.scores["on"]).draws()
    assert draws is not None
    random, wealth = np.random.default_rng(5), []
    for _ in range(400):
        chance = random.random(draws.token.size)[:, None]
        outcome = (draws.law.cumsum(axis=1) < chance).sum(axis=1)
        wealth.append(np.exp(wager(replace(draws, outcome=outcome)).log))
    assert np.mean(wealth) == pytest.approx(1.0, abs=0.3)
    assert np.mean(np.array(wealth) >= 20.0) <= 0.05


def test_collisions_at_the_expected_rate_win_nothing():
    random = np.random.default_rng(3)
    chances = random.uniform(0.05, 0.9, 3000)
    fair = np.column_stack([random.random(3000) < chances, chances])
    assert wager_on_collisions(fair).log < 3.0
    often = np.column_stack([random.random(3000) < chances + 0.1, chances])
    assert wager_on_collisions(often).log > 10.0
