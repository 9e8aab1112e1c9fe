"""What each turn of a conversation takes from the cache."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrixrun.evidence.cells import Speculation
from matrixrun.evidence.requests import Observation
from matrixrun.evidence.verdicts import Severity, Verdict
from matrixrun.judge import JudgeSettings, ProbeObserved, testimony
from matrixrun.judge.witnesses import ProbeExamination
from matrixrun.judge.witnesses.reuse import Boundary, examine_reuse, full_blocks_lost

from .simulator import Pair, simulate

ANSWER, NEXT, BLOCK, LONG = 24, 10, 16, 32


def told(
    *, lost=(0, 0, 0), method="ngram", block=BLOCK, attached=False, **fields
) -> testimony.Testimony:
    """Return what is said of conversations whose arms (on, off, null) lose so many tokens of every
    turn beside the last block."""
    observations = {
        arm: conversation(tokens, block=block, **fields)
        for arm, tokens in zip(("on", "off", "null"), lost, strict=True)
    }
    return judged(observations, method=method, block=block, attached=attached)


def talks(*, lost, count: int, block=LONG, attached=False) -> testimony.Testimony:
    """Return what is said of so many conversations whose answers are shorter than a block."""
    observations = {
        arm: tuple(
            turn
            for number in range(count)
            for turn in conversation(tokens, block=block, name=f"p{number}", opening=40 + number)
        )
        for arm, tokens in zip(("on", "off", "null"), lost, strict=True)
    }
    return judged(observations, block=block, attached=attached)


def judged(observations, *, method="ngram", block=BLOCK, attached=False) -> testimony.Testimony:
    probe = ProbeObserved(
        kind="conversation", compared=True, observations=observations, scores={}, records={}
    )
    evidence = simulate(Pair(prompts=2, tokens=4)).evidence
    facts = {"block_size": block} if block > 1 else {}
    facts |= {"attached": "http://staging"} if attached else {}
    outcomes = {
        role: type(one)(launch=one.launch, fingerprint="", end=one.end, facts=facts)
        for role, one in evidence.outcomes.items()
    }
    speculation = Speculation(method=method, num_speculative_tokens=3)
    cell = type(evidence.cell)(id="cell", axes={"speculation": speculation}, fingerprint="")
    evidence = type(evidence)(
        cell=cell,
        outcomes=outcomes,
        records={},
        workload_sha256="",
        settings_sha256="",
        program="",
    )
    return examine_reuse(ProbeExamination(evidence, JudgeSettings(), probe, None))


def conversation(
    lost: int,
    *,
    block: int,
    reason: str = "stop",
    caches: bool = True,
    name: str = "p",
    opening: int = 40,
):
    history = np.arange(opening, dtype=np.int32)
    found: list[Observation] = []
    for turn in range(1, 4):
        cached = 0
        if turn > 1 and caches:
            known = found[-1].sent.size + ANSWER - 1 - lost
            cached = known // block * block
        found.append(
            Observation(
                request=f"conversation.{name}.t{turn}",
                prompt=f"conversation.{name}",
                category="stop",
                sent=history,
                token_ids=np.arange(100, 100 + ANSWER, dtype=np.int32),
                prompt_tokens=history.size,
                cached_tokens=cached,
                finish_reason=reason,
                started=1.0,
                first_token=1.5,
                finished=2.0,
            )
        )
        history = np.concatenate([history, found[-1].token_ids, np.arange(NEXT, dtype=np.int32)])
    return tuple(found)


def faults(found: testimony.Testimony) -> list[str]:
    return [one.kind for one in found.findings if one.severity is Severity.FAULT]


def test_an_answer_prefilled_again_with_speculation_alone_is_a_fault():
    found = told(lost=(ANSWER + 4, 0, 0), block=4)
    assert faults(found) == ["reuse"]
    assert "at 2 of 2 turns" in found.findings[0].text
    assert found.findings[0].numbers["answer"] == ANSWER


def test_on_servers_that_others_use_too_a_loss_is_nobodys_fault_and_no_pass():
    found = told(lost=(ANSWER + 4, 0, 0), attached=True)
    assert faults(found) == []
    assert [one.verdict for one in found.objections] == [Verdict.INCONCLUSIVE]
    assert told(attached=True).objections == ()
    assert told(lost=(ANSWER + 4, 0, ANSWER + 4), attached=True).objections == ()


def test_a_blocks_rounding_is_none():
    assert faults(told(lost=(BLOCK - 1, 0, 0))) == []


def test_without_blocks_more_than_a_last_step_is_enough():
    assert faults(told(lost=(5, 0, 0), block=1)) == ["reuse"]
    assert faults(told(lost=(4, 0, 0), block=1)) == []  # of four rows, three of them drafts


@given(
    answer=st.tuples(st.integers(0, 90), st.integers(0, 90)),
    late=st.integers(1, 4),
    block=st.sampled_from([1, 16, 32]),
)
def test_an_engine_that_keeps_all_but_the_last_step_is_not_accused_whatever_its_histories(
    answer, late, block
):
    """Histories of other lengths: one arm's ends just behind a block's border, the other's before
    it. With speculation up to four tokens of the last step are missing, without it one."""
    observations = {
        arm: (
            opening,
            replace(later, cached_tokens=(later.sent.size - missing) // block * block),
        )
        for arm, size, missing in (
            ("on", answer[0], late),
            ("off", answer[1], 1),
            ("null", answer[1], 1),
        )
        for opening, later in [turns_of(size)]
    }
    assert faults(judged(observations, block=block)) == []


def turns_of(answer):
    """Two turns, the first answered with so many tokens, all of which the second one repeats."""
    first = conversation(0, block=BLOCK)[0]
    first = replace(first, token_ids=np.arange(100, 100 + answer, dtype=np.int32))
    history = np.concatenate([first.sent, first.token_ids])
    later = replace(first, request="conversation.p.t2", sent=history, prompt_tokens=history.size)
    return first, later


def test_a_drafter_that_drops_the_last_block_by_design_is_allowed_one_block_more():
    assert faults(told(lost=(BLOCK + 8, 0, 0))) == ["reuse"]
    assert faults(told(lost=(BLOCK, 0, 0), method="eagle3")) == []


def test_what_the_control_does_too_is_no_matter_of_speculation():
    found = told(lost=(ANSWER + 4, 0, ANSWER + 4))
    assert faults(found) == []
    assert [one.kind for one in found.findings] == ["reuse"]


def test_an_off_arm_that_loses_more_is_no_fault():
    assert faults(told(lost=(0, ANSWER + 4, 0))) == []


def test_repair_and_repeated_prefill_are_told_apart_in_the_costs():
    metrics = told(lost=(ANSWER - 1 + 10, 0, 0), block=1).metrics
    assert metrics["conversation/cost.repair.on"] == 2 * ANSWER
    assert metrics["conversation/cost.repeated_prefill.on"] == 2 * 10
    assert metrics["conversation/cost.generated.on"] == 3 * ANSWER
    assert metrics["conversation/cost.repair.off"] == 2
    assert metrics["conversation/share_of_answer.on"] == (ANSWER + 10) / ANSWER
    assert metrics["conversation/turn2.first_token_seconds.on"] == 0.5


def test_turns_that_reuse_nothing_in_either_arm_show_nothing():
    found = told(caches=False)
    assert [one.verdict for one in found.objections] == [Verdict.INCONCLUSIVE]
    assert "in either arm" in found.objections[0].reason


def test_stop_tokens_that_no_answer_reaches_are_told():
    found = told(reason="length")
    assert "no answer ended at its stop token" in found.objections[0].reason
    assert found.coverage["conversation.end.stop_token"] == 0
    assert found.coverage["conversation.end.length"] == 3


def test_a_cell_without_prefix_caching_says_so():
    evidence = simulate(Pair(prompts=2, tokens=4)).evidence
    probe = ProbeObserved(
        kind="conversation", compared=True, observations={}, scores={}, records={}
    )
    found = examine_reuse(ProbeExamination(evidence, JudgeSettings(), probe, None))
    assert "prefix caching is off" in found.findings[0].text
    assert found.findings[0].severity is Severity.NOTICE


def test_turns_that_were_not_answered_are_no_boundary():
    some = conversation(0, block=1)
    broken = (some[0], replace(some[1], error="broke"), some[2])
    from matrixrun.judge.witnesses.reuse import boundaries

    assert len(boundaries(some)) == 2
    assert boundaries(broken) == {}


def test_full_blocks_lost_at_most_turns_are_a_rate_though_none_is_beyond_a_block():
    found = talks(lost=(ANSWER, 0, 0), count=12)
    assert faults(found) == []
    (rate,) = found.rates
    assert rate.finding.severity is Severity.FAULT
    assert rate.finding.numbers["turns"] >= 14
    assert rate.p_value == pytest.approx(0.5 ** rate.finding.numbers["turns"])


@pytest.mark.parametrize("lost", [(0, 0, 0), (0, ANSWER, ANSWER), (ANSWER, ANSWER, ANSWER)])
def test_arms_that_lose_alike_and_an_off_arm_that_loses_more_are_no_rate(lost):
    (rate,) = talks(lost=lost, count=12).rates
    assert rate.p_value == 1.0


def test_what_the_control_loses_too_is_no_rate():
    (rate,) = talks(lost=(ANSWER, 0, ANSWER), count=12).rates
    assert rate.p_value == 1.0


def test_histories_that_differ_have_other_roundings_and_no_other_full_blocks():
    """Answers of other lengths in each arm, and an engine that keeps every block it can."""
    observations = {
        arm: tuple(
            turn
            for number in range(12)
            for turn in conversation(0, block=BLOCK, name=f"p{number}", opening=40 + number * step)
        )
        for arm, step in (("on", 5), ("off", 3), ("null", 2))
    }
    (rate,) = judged(observations).rates
    assert rate.p_value == 1.0


@given(
    known=st.integers(0, 400),
    rows=st.integers(1, 9),
    block=st.sampled_from([1, 16, 32, 528]),
    late=st.integers(0, 9),
)
def test_a_cache_that_lacks_no_more_than_the_last_step_loses_no_full_block(
    known, rows, block, late
):
    kept = max(0, known - min(late, rows)) // block * block
    boundary = Boundary(known=known, cached=kept, answer=20, repair=0, repeated=0, seconds=0.0)
    assert full_blocks_lost(boundary, block, rows) == 0
    dropped = replace(boundary, cached=max(0, kept - block))
    assert full_blocks_lost(dropped, block, rows, dropped=1) == 0


def test_without_the_allowance_a_lost_block_counts():
    boundary = Boundary(known=100, cached=64, answer=40, repair=36, repeated=0, seconds=0.0)
    assert full_blocks_lost(boundary, 32, rows=4) == 1
    assert full_blocks_lost(boundary, 32, rows=5) == 0
    assert full_blocks_lost(boundary, 32, rows=4, dropped=1) == 0


def test_a_server_that_others_use_brings_a_notice():
    (rate,) = talks(lost=(ANSWER, 0, 0), count=12, attached=True).rates
    assert rate.finding.severity is Severity.NOTICE
