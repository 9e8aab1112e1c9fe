"""What the judge says of whole cells: real faults, honest noise, and what proves nothing."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from matrixrun.evidence.launches import LaunchEnd
from matrixrun.evidence.requests import Evaluation
from matrixrun.evidence.verdicts import CellResult, Severity, Verdict
from matrixrun.judge import CellObservations, ExpectedVerdict, JudgeSettings, judge_sweep

from .simulator import (
    LOOP,
    VOCABULARY,
    Arm,
    Pair,
    Target,
    answer,
    changed,
    cut,
    evidence,
    gathered,
    observe,
    outcome,
    simulate,
)

SETTINGS = JudgeSettings(detect_rate=0.1)
LEAKY = Arm(accept=0.7, seed=1, let_through=0.02)


def judged(cell: CellObservations, pair: Pair, settings: JudgeSettings = SETTINGS) -> CellResult:
    """Return the final result: what the judge wants to be scored again is scored."""
    first = judge_sweep([cell], settings)
    if not first.wants:
        return first.results[0]
    cell = replace(cell, confirmations=answer(pair, first.wants))
    second = judge_sweep([cell], settings)
    assert second.wants == ()
    return second.results[0]


def answers(pair: Pair):
    return tuple(observe(pair, arm, role) for arm, role in
                 ((pair.on, "on"), (pair.off, "off"), (pair.null, "null")))  # fmt: skip


def kinds(result: CellResult, severity: Severity = Severity.FAULT) -> set[str]:
    return {finding.kind for finding in result.findings if finding.severity is severity}


# --- healthy pairs -------------------------------------------------------------------------


def test_a_bit_identical_pair_passes_and_says_what_it_claims():
    result = judged(simulate(Pair()), Pair())
    assert result.verdict is Verdict.PASS
    assert result.metrics["same/exact_match"] == 1.0
    assert result.findings == ()
    assert "48 prompts" in result.reason
    assert "assumed" in result.reason


@pytest.mark.parametrize("noise", [0.02, 0.05, 0.15])
def test_noise_in_every_launch_is_not_accused_however_many_requests_fork(noise):
    pair = Pair(prompts=80).noisy(noise)
    result = judged(simulate(pair), pair)
    assert result.verdict is Verdict.PASS
    assert result.metrics["same/exact_match"] < 0.9
    assert kinds(result) == set()


def test_small_noise_of_the_on_arm_alone_is_a_notice():
    pair = Pair(on=Arm(noise=0.01, accept=0.7, seed=1))
    result = judged(simulate(pair), pair)
    assert result.verdict is Verdict.PASS
    assert "numerics-changed" in kinds(result, Severity.NOTICE)


def test_the_learned_ceiling_lets_honest_noise_pass_that_exceeds_the_floor():
    pair = Pair(prompts=80).noisy(0.15)
    cell = simulate(pair)
    result = judged(cell, pair)
    floor = result.metrics["regret/floor"]
    assert max(float(score.regret.max()) for score in cell.on_scores) > floor
    assert result.metrics["regret/ceiling"] > floor
    assert result.verdict is Verdict.PASS


# --- faults --------------------------------------------------------------------------------


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


def test_strict_equality_makes_every_difference_a_fault():
    pair = Pair(on=Arm(noise=0.01, accept=0.7, seed=1))
    settings = msgspec.structs.replace(SETTINGS, equality="strict")
    result = judged(simulate(pair), pair, settings)
    assert result.verdict is Verdict.FAIL
    assert kinds(result) == {"equality"}


def test_strict_equality_against_an_off_arm_that_differs_from_itself_proves_nothing():
    pair = Pair(null=Arm(noise=0.05, seed=3))
    settings = msgspec.structs.replace(SETTINGS, equality="strict")
    result = judged(simulate(pair), pair, settings)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "baseline unsound" in result.reason


def test_nan_in_one_request_of_the_on_arm_is_a_fault():
    pair = Pair()
    on, off, null = answers(pair)
    logprobs = on[5].logprobs.copy()
    logprobs[9:] = np.nan
    result = judged(gathered(pair, changed(on, [5], logprobs=logprobs), off, null), pair)
    assert result.verdict is Verdict.FAIL
    assert kinds(result) == {"nan"}
    assert "r0005" in result.reason


def test_logprobs_that_an_engine_leaves_out_for_accepted_drafts_are_no_nan():
    pair = Pair()
    on, off, null = answers(pair)

    def without(values: np.ndarray, nothing: float) -> np.ndarray:
        kept = values.copy()
        kept[9:12] = nothing
        return kept

    on = changed(
        on, [5, 7], logprobs=lambda one: without(one.logprobs, np.nan),
        top_ids=lambda one: without(one.top_ids, -1),
        top_logprobs=lambda one: without(one.top_logprobs, np.nan),
    )  # fmt: skip
    assert judged(gathered(pair, on, off, null), pair).verdict is Verdict.PASS


def test_one_failed_request_on_a_live_engine_is_a_fault_in_the_engines_words():
    pair = Pair()
    on, off, null = answers(pair)
    on = changed(on, [5], error="HTTP 500: internal error", token_ids=np.zeros(0, np.int32),
                 logprobs=np.zeros(0, np.float32))  # fmt: skip
    result = judged(gathered(pair, on, off, null), pair)
    assert result.verdict is Verdict.FAIL
    assert "HTTP 500" in result.reason


def test_an_empty_answer_of_the_on_arm_alone_is_a_fault():
    pair = Pair()
    on, off, null = answers(pair)
    on = tuple(cut(one, 0) if index == 4 else one for index, one in enumerate(on))
    on = changed(on, [4], finish_reason="stop")
    result = judged(gathered(pair, on, off, null), pair)
    assert result.verdict is Verdict.FAIL
    assert "empty-output" in kinds(result)


def test_constant_loops_in_some_requests_are_caught_though_the_target_loops_too():
    pair = Pair(target=Target(loops=(40, 41)))
    on, off, null = answers(pair)
    loop = {"token_ids": lambda one: np.concatenate([one.token_ids[:10], np.full(38, LOOP)])}
    result = judged(gathered(pair, changed(on, range(3, 40, 3), **loop), off, null), pair)
    assert result.metrics["degenerate/cycles.on"] == 15
    assert result.metrics["degenerate/cycles.null"] == 2
    assert result.verdict is Verdict.FAIL
    assert {"degeneration", "unexplained-token"} <= kinds(result)


def test_a_target_that_loops_by_itself_is_not_accused():
    pair = Pair(target=Target(loops=tuple(range(20))))
    result = judged(simulate(pair), pair)
    assert result.metrics["degenerate/cycles.on"] == 20
    assert result.verdict is Verdict.PASS


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


# --- ends of answers -------------------------------------------------------------------------


def test_a_shorter_answer_at_the_same_limit_is_a_fault():
    pair = Pair()
    on, off, null = answers(pair)
    on = tuple(cut(one, 40) if index == 9 else one for index, one in enumerate(on))
    result = judged(gathered(pair, on, off, null), pair)
    assert result.verdict is Verdict.FAIL
    assert kinds(result) == {"length-limit"}


def test_an_answer_that_stops_early_where_the_off_arm_clearly_goes_on_is_a_fault():
    pair = Pair()
    on, off, null = answers(pair)
    leads = off[9].top_logprobs[:, 0] - off[9].top_logprobs[:, 1]
    place = int(leads[10:].argmax()) + 10
    on = tuple(cut(one, place) if index == 9 else one for index, one in enumerate(on))
    on = changed(on, [9], finish_reason="stop")
    result = judged(gathered(pair, on, off, null), pair)
    assert result.verdict is Verdict.FAIL
    assert kinds(result) == {"stopped-early"}


def test_an_answer_that_differs_in_length_alone_at_a_near_tie_is_a_notice():
    pair = Pair()
    on, off, null = answers(pair)
    leads = off[9].top_logprobs[:, 0] - off[9].top_logprobs[:, 1]
    place = int(leads[10:].argmin()) + 10
    on = tuple(cut(one, place) if index == 9 else one for index, one in enumerate(on))
    on = changed(on, [9], finish_reason="stop")
    result = judged(gathered(pair, on, off, null), pair)
    assert result.verdict is Verdict.PASS
    assert "length" in kinds(result, Severity.NOTICE)
    assert result.metrics["same/forks_length_only.on"] == 1


def test_tokens_after_a_stop_token_are_a_fault():
    pair = Pair()
    on, off, null = answers(pair)
    stop = VOCABULARY - 1

    def stopped(one):
        ids = one.token_ids[:30].copy()
        ids[29] = stop
        return replace(cut(one, 30), token_ids=ids, finish_reason="stop")

    def ignored(one):
        ids = one.token_ids.copy()
        ids[29] = stop
        return ids

    off, null = (
        tuple(stopped(one) if index < 5 else one for index, one in enumerate(arm))
        for arm in (off, null)
    )
    on = tuple(stopped(one) if index < 4 else one for index, one in enumerate(on))
    on = changed(on, [4], token_ids=ignored)
    result = judge_sweep([gathered(pair, on, off, null)], SETTINGS).results[0]
    assert "past-the-end" in {finding.kind for finding in result.findings}


# --- what proves nothing ---------------------------------------------------------------------


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


def test_speed_and_reuse_are_figures_of_both_arms():
    pair = Pair()
    on, off, null = answers(pair)
    on = changed(on, range(24), cached_tokens=4)
    metrics = judged(gathered(pair, on, off, null), pair).metrics
    assert metrics["speed/tokens_per_second.on"] == 48 * 48 / 1.0
    assert metrics["speed/speedup"] == pytest.approx(1.5)
    assert (metrics["reuse/cached_tokens.on"], metrics["reuse/cached_tokens.off"]) == (96, 0)


# --- launches that did not serve -------------------------------------------------------------


@pytest.mark.parametrize(
    ("role", "end", "verdict"),
    [
        ("on", LaunchEnd.REFUSED, Verdict.REFUSED),
        ("A", LaunchEnd.REFUSED, Verdict.REFUSED),
        ("on", LaunchEnd.DIED, Verdict.ERROR),
        ("A", LaunchEnd.DIED, Verdict.ERROR),
        ("B", LaunchEnd.HUNG, Verdict.ERROR),
        ("on", LaunchEnd.LOST, Verdict.ERROR),
        ("on", LaunchEnd.UNBUILT, Verdict.ERROR),
        ("on", LaunchEnd.STOPPED, Verdict.INCONCLUSIVE),
    ],
)
def test_a_launch_that_did_not_serve_decides_in_its_own_words(role, end, verdict):
    ended = outcome(role, end, "pipeline parallelism is not supported with n-gram")
    cell = CellObservations(evidence=evidence(ends={role: ended}))
    result = judge_sweep([cell], SETTINGS).results[0]
    assert result.verdict is verdict
    assert "pipeline parallelism is not supported" in result.reason


def test_a_crash_is_not_hidden_by_a_refusal_of_the_other_arm():
    ends = {"on": outcome("on", LaunchEnd.REFUSED, "no"), "A": outcome("A", LaunchEnd.DIED, "oom")}
    result = judge_sweep([CellObservations(evidence=evidence(ends=ends))], SETTINGS).results[0]
    assert result.verdict is Verdict.ERROR


# --- expected verdicts -----------------------------------------------------------------------


def test_an_expected_verdict_is_marked_and_its_absence_is_a_notice():
    refused = outcome("on", LaunchEnd.REFUSED, "no")
    cells = [
        CellObservations(evidence=evidence("a", ends={"on": refused}, tensor_parallel_size=2)),
        simulate(Pair(), cell_id="b", tensor_parallel_size=2),
        simulate(Pair(), cell_id="c"),
    ]
    expect = ExpectedVerdict(
        when={"tensor_parallel_size": 2, "speculation": {"method": "ngram"}},
        verdict=Verdict.REFUSED,
        reason="the engine says no",
    )
    settings = msgspec.structs.replace(SETTINGS, expect=(expect,))
    first, second, third = judge_sweep(cells, settings).results
    assert first.expected
    assert not second.expected
    assert "expected-verdict" in kinds(second, Severity.NOTICE)
    assert third.findings == ()
