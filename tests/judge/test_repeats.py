"""Prompts sent twice in a pass, and drafters that do next to nothing."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from matrixrun.evidence.requests import Observation
from matrixrun.evidence.verdicts import Severity, Verdict
from matrixrun.judge import JudgeSettings, judge_sweep

from .simulator import Arm, Pair, changed, simulate

SETTINGS = JudgeSettings(detect_rate=0.1)
CELL = simulate(Pair())
HALF = len(CELL.on) // 2


def result_of(cell):
    return judge_sweep([cell], SETTINGS).results[0]


def sent_twice(cell, accepted_again=lambda one: one.accepted):
    """The first half of the prompts, each sent once more after all others."""

    def twice(many: tuple[Observation, ...], change=None):
        first = many[:HALF]
        again = changed(first, range(HALF), request=lambda one: f"{one.request}.again")
        if change is not None:
            again = changed(again, range(HALF), accepted=change)
        return first + again

    def scored(many):
        return many[:HALF] + tuple(replace(one, request=f"{one.request}.again")
                                   for one in many[:HALF])  # fmt: skip

    again = {f"{request}.again": ids for request, ids in cell.prompts.items()}
    prompts = {**cell.prompts, **again}
    return replace(
        cell, on=twice(cell.on, accepted_again), off=twice(cell.off), null=twice(cell.null),
        on_scores=scored(cell.on_scores), off_scores=scored(cell.off_scores),
        null_scores=scored(cell.null_scores), prompts=prompts,
    )  # fmt: skip


def repeated(result):
    return [one for one in result.findings if one.kind == "repeated-acceptance"]


def test_equal_acceptance_of_repeated_prompts_is_no_finding():
    result = result_of(sent_twice(CELL))
    assert not repeated(result)
    metrics = result.metrics
    assert metrics["acceptance/repeated.first"] == metrics["acceptance/repeated.later"] > 0


def test_repeated_prompts_that_accept_much_less_are_a_fault():
    result = result_of(sent_twice(CELL, lambda one: np.minimum(one.accepted, 1)))
    assert result.verdict is Verdict.FAIL
    assert repeated(result)[0].severity is Severity.FAULT
    assert str(HALF) in repeated(result)[0].text


def test_repeated_prompts_that_accept_more_are_a_notice():
    result = result_of(sent_twice(CELL, lambda one: np.full_like(one.accepted, 3)))
    assert [one.severity for one in repeated(result)] == [Severity.NOTICE]


def test_the_order_in_which_answers_are_read_is_no_matter():
    cell = sent_twice(CELL, lambda one: np.minimum(one.accepted, 1))
    backwards = replace(cell, on=cell.on[::-1], off=cell.off[::-1], null=cell.null[::-1])
    assert result_of(backwards).verdict is result_of(cell).verdict is Verdict.FAIL


def test_shorter_drafts_the_second_time_are_no_loss():
    """An engine that drafts less when it is busy."""

    def shorter(one):
        return changed((one,), [0], drafted=lambda o: np.minimum(o.drafted, 1),
                       accepted=lambda o: np.minimum(o.accepted, 1))[0]  # fmt: skip

    cell = sent_twice(CELL)
    again = tuple(map(shorter, cell.on[HALF:]))
    assert not repeated(result_of(replace(cell, on=cell.on[:HALF] + again)))


def test_on_a_server_that_others_use_a_loss_is_a_notice():
    cell = sent_twice(CELL, lambda one: np.minimum(one.accepted, 1))
    outcomes = {
        role: replace_facts(one, attached="http://staging")
        for role, one in cell.evidence.outcomes.items()
    }
    evidence = msgspec.structs.replace(cell.evidence, outcomes=outcomes)
    found = repeated(result_of(replace(cell, evidence=evidence)))
    assert [one.severity for one in found] == [Severity.NOTICE]


def replace_facts(outcome, **facts):
    return msgspec.structs.replace(outcome, facts={**outcome.facts, **facts})


def test_prompts_answered_with_other_tokens_the_second_time_are_not_compared():
    other = simulate(replace(Pair(), on=Arm(accept=0.7, seed=9, noise=3.0)))
    cell = sent_twice(CELL)
    again = changed(other.on[:HALF], range(HALF), request=lambda one: f"{one.request}.again",
                    accepted=lambda one: np.zeros_like(one.accepted))  # fmt: skip
    same = sum(
        np.array_equal(one.token_ids, two.token_ids)
        for one, two in zip(cell.on[:HALF], again, strict=True)
    )
    result = result_of(replace(cell, on=cell.on[:HALF] + again))
    compared = repeated(result)[0].numbers["prompts"] if repeated(result) else 0
    assert same < HALF
    assert compared in (0, same)


@pytest.mark.parametrize(("accept", "verdict"), [(0.0, Verdict.INACTIVE), (0.02, Verdict.INACTIVE),
                                                 (0.3, Verdict.PASS)])  # fmt: skip
def test_a_drafter_of_which_next_to_nothing_is_accepted_counts_as_none(accept, verdict):
    cell = simulate(replace(Pair(), on=Arm(accept=accept, seed=1)))
    settings = JudgeSettings(detect_rate=0.1, rejections_per_position=0)
    result = judge_sweep([cell], settings).results[0]
    assert result.verdict is verdict
    if verdict is Verdict.INACTIVE:
        assert "mean acceptance length" in result.reason
