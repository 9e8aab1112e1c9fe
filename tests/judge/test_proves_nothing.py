"""What proves nothing: unsound baselines, idle drafters, too little evidence, arms not alike."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np

from matrixrun.evidence.verdicts import Severity, Verdict
from matrixrun.judge import judge_sweep

from .judging import LEAKY, SETTINGS, answers, judged, kinds
from .simulator import VOCABULARY, Arm, Pair, changed, evidence, gathered, outcome, simulate


def test_the_same_fault_in_both_arms_is_an_unsound_baseline_and_never_a_pass():
    pair = Pair(on=LEAKY, off=replace(LEAKY, seed=2), null=replace(LEAKY, seed=3))
    result = judged(simulate(pair), pair)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "baseline unsound" in result.reason
    assert kinds(result) == set()


def test_a_failed_request_in_both_arms_is_an_unsound_baseline():
    pair = Pair()
    broken = [changed(arm, [2], error="HTTP 500") for arm in answers(pair)]
    result = judged(gathered(pair, *broken), pair)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "baseline unsound" in result.reason
    assert "HTTP 500" in result.reason


def test_a_failed_off_request_does_not_hide_a_fault_in_the_others():
    pair = Pair(on=LEAKY)
    on, off, null = answers(pair)
    result = judged(gathered(pair, on, changed(off, [2], error="HTTP 500"), null), pair)
    assert result.verdict is Verdict.FAIL


def test_an_off_arm_that_says_one_token_over_and_over_is_unsound():
    pair = Pair()
    constant = [
        tuple(replace(one, token_ids=np.full_like(one.token_ids, 5)) for one in arm)
        for arm in answers(pair)
    ]
    result = judge_sweep([gathered(pair, *constant)], SETTINGS).results[0]
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "repeat one token" in result.reason


def test_an_off_arm_noisier_than_its_arithmetic_allows_is_unsound():
    pair = Pair().noisy(0.05)
    settings = msgspec.structs.replace(SETTINGS, dtype="float32")
    result = judged(simulate(pair), pair, settings)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "beyond" in result.reason


def test_a_drafter_that_is_silently_off_is_inactive():
    pair = Pair(on=Arm(accept=0.7, silent=True, seed=1))
    assert judged(simulate(pair), pair).verdict is Verdict.INACTIVE


def test_a_drafter_that_speculates_on_one_request_in_twenty_is_inactive():
    pair = Pair(prompts=40)
    on, off, null = answers(pair)
    none = np.zeros(0, np.int32)
    on = changed(on, range(2, 40), accepted=none, drafted=none)
    settings = msgspec.structs.replace(SETTINGS, min_speculated_share=0.1)
    result = judged(gathered(pair, on, off, null), pair, settings)
    assert result.verdict is Verdict.INACTIVE
    assert "4.9% of tokens" in result.reason


def test_a_fault_of_an_inactive_drafter_is_still_a_fault():
    pair = Pair()
    on, off, null = answers(Pair(on=Arm(accept=0.7, silent=True, seed=1)))
    ids = on[3].token_ids.copy()
    ids[30] = (ids[30] + 1) % (VOCABULARY - 1)
    result = judged(gathered(pair, changed(on, [3], token_ids=ids), off, null), pair)
    assert result.verdict is Verdict.FAIL


def test_when_everything_is_accepted_nothing_about_rejection_was_tested():
    pair = Pair(on=Arm(accept=1.0, seed=1))
    result = judged(simulate(pair), pair)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "position 0 (0)" in result.reason
    assert result.coverage["rejections.position.0"] == 0
    assert "all-accepted" in kinds(result, Severity.NOTICE)


def test_rejections_are_counted_at_every_position():
    result = judged(simulate(Pair()), Pair())
    positions = [result.coverage[f"rejections.position.{position}"] for position in range(3)]
    assert positions[0] > positions[1] > positions[2] > 0


def test_too_few_prompts_for_the_claim_are_inconclusive_and_say_how_many_it_takes():
    pair = Pair(prompts=20)
    result = judged(simulate(pair), pair)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "needs 29" in result.reason


def test_repeats_of_one_prompt_do_not_count_as_many():
    pair = Pair()
    same = [tuple(replace(one, prompt=f"p{index // 4}") for index, one in enumerate(arm))
            for arm in answers(pair)]  # fmt: skip
    result = judged(gathered(pair, *same), pair)
    assert result.metrics["power/prompts"] == 12
    assert result.verdict is Verdict.INCONCLUSIVE


def test_arms_on_different_hardware_prove_nothing_and_the_difference_is_named():
    pair = Pair()
    other = outcome("on", hardware={"cpu": "cpu", "cores": 2, "accelerators": ["H100"]})
    cell = replace(simulate(pair), evidence=evidence(ends={"on": other}))
    result = judged(cell, pair)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "H100" in result.reason


def test_arms_that_served_different_targets_prove_nothing():
    pair = Pair()
    served = {
        role: outcome(role, checkpoints={"target": digest, "draft": "d"})
        for role, digest in (("on", "a" * 64), ("A", "b" * 64))
    }
    result = judged(replace(simulate(pair), evidence=evidence(ends=served)), pair)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "another target checkpoint" in result.reason


def test_arms_that_refuse_every_request_are_a_bad_baseline_and_not_an_idle_drafter():
    pair = Pair()
    everything = list(range(pair.prompts))
    nothing = np.zeros(0, np.int32)
    arms = [
        changed(arm, everything, error="HTTP 400: no", token_ids=nothing, accepted=nothing,
                drafted=nothing)
        for arm in answers(pair)
    ]  # fmt: skip
    result = judged(gathered(pair, *arms), pair)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "HTTP 400" in result.reason


def test_answers_that_differ_and_could_not_be_scored_are_not_passed():
    pair = Pair().noisy(0.05)
    cell = simulate(pair)
    unscored = tuple(replace(score, error="timeout") for score in cell.on_scores)
    result = judged(replace(cell, on_scores=unscored), pair)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "could not be scored" in result.reason


def test_off_arms_whose_own_answers_could_not_be_scored_are_no_baseline():
    result = judged(replace(simulate(Pair()), on_scores=(), off_scores=(), null_scores=()), Pair())
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "could not be scored" in result.reason


def test_scores_of_the_on_arm_are_not_needed_where_its_answers_are_the_off_arms():
    cell = replace(simulate(Pair()), on_scores=())
    assert judged(cell, Pair()).verdict is Verdict.PASS


def test_a_cell_without_a_control_is_inconclusive():
    cell = replace(simulate(Pair()), null=(), null_scores=())
    assert judged(cell, Pair()).verdict is Verdict.INCONCLUSIVE
