"""Faults of single answers, in what they hold and where they end: NaN, errors, loops, lengths."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from matrixrun.evidence.verdicts import Severity, Verdict
from matrixrun.judge import judge_sweep

from .judging import SETTINGS, answers, judged, kinds
from .simulator import LOOP, VOCABULARY, Pair, Target, changed, cut, gathered, simulate


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
