"""Logprobs that are off though no token flips: drift, placeholders, and what is neither."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from matrixrun.evidence.verdicts import Severity, Verdict

from .judging import answers, judged, kinds
from .simulator import Pair, gathered


def test_systematic_damage_beyond_the_floor_fails_though_nothing_flips():
    pair = Pair()
    on, off, null = answers(pair)
    on = tuple(replace(one, logprobs=one.logprobs - np.float32(0.4)) for one in on)
    result = judged(gathered(pair, on, off, null), pair)
    assert result.metrics["same/exact_match"] == 1.0
    assert result.verdict is Verdict.FAIL
    assert kinds(result) == {"drift", "target-path"}


def test_systematic_damage_below_the_floor_is_a_notice():
    pair = Pair()
    on, off, null = answers(pair)
    on = tuple(replace(one, logprobs=one.logprobs - np.float32(0.02)) for one in on)
    result = judged(gathered(pair, on, off, null), pair)
    assert result.verdict is Verdict.PASS
    assert "drift" in kinds(result, Severity.NOTICE)


def spread(observations, seed):
    """The observations with logprobs that are too low by up to 0.5 nats, in a tenth of all."""
    random = np.random.default_rng(seed)
    return tuple(
        replace(one, logprobs=(one.logprobs - random.uniform(0.0, 0.5, one.logprobs.size)
                               * (random.random(one.logprobs.size) < 0.1)).astype(np.float32))
        for one in observations
    )  # fmt: skip


def test_logprobs_that_spread_in_the_on_arm_alone_fail():
    pair = Pair()
    on, off, null = answers(pair)
    result = judged(gathered(pair, spread(on, 1), off, null), pair)
    assert result.verdict is Verdict.FAIL
    assert "drift" in kinds(result)


@pytest.mark.parametrize("seed", range(10))
def test_kernels_that_depend_on_the_number_of_rows_are_not_taken_for_drift(seed):
    """Decoding differs from prefill as the on arm's verification does, at other tokens; both off
    arms decode alike, so that the control shows nothing of it."""
    pair = Pair()
    on, off, null = answers(pair)
    cell = gathered(pair, spread(on, seed), spread(off, 50 + seed), spread(null, 50 + seed))
    result = judged(cell, pair)
    assert result.metrics["drift/p99.on"] > 0.25 > result.metrics["drift/p99.null"] == 0.0
    assert "drift" not in kinds(result)


def test_placeholder_logprobs_of_the_on_arm_are_named_and_not_taken_for_drift():
    pair = Pair()
    on, off, null = answers(pair)
    on = tuple(replace(one, logprobs=np.zeros_like(one.logprobs)) for one in on)
    result = judged(gathered(pair, on, off, null), pair)
    assert result.verdict is Verdict.PASS
    assert "logprob-contract" in kinds(result, Severity.NOTICE)


def test_logprobs_that_an_engine_is_known_to_withhold_are_no_notice():
    pair = Pair()
    on, off, null = answers(pair)
    on = tuple(replace(one, logprobs=np.full_like(one.logprobs, np.nan)) for one in on)
    silent = gathered(pair, on, off, null)
    outcome = silent.evidence.outcomes["on"]
    facts = {**outcome.facts, "logprobs_when_speculating": "withheld: placeholders"}
    outcomes = {
        **silent.evidence.outcomes,
        "on": msgspec.structs.replace(outcome, facts=facts),
    }
    known = replace(silent, evidence=msgspec.structs.replace(silent.evidence, outcomes=outcomes))

    assert "logprob-contract" in kinds(judged(silent, pair), Severity.NOTICE)
    assert "logprob-contract" not in kinds(judged(known, pair), Severity.NOTICE)
    assert "drift/mean.on" not in judged(known, pair).metrics
