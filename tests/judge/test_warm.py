"""Prompts sent again, and what they take from the cache."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import pytest

from matrixrun.evidence.verdicts import Severity, Verdict
from matrixrun.judge import JudgeSettings, judge_sweep

from .simulator import Pair, simulate

SETTINGS = JudgeSettings(detect_rate=0.1)
CELL = simulate(Pair())
AGAIN = 8


def sent_again(*, on: int, off: int = 32, null: int = 32, count: int = AGAIN, facts=None):
    """The cell with its first prompts sent once more, which take so many tokens from the cache."""

    def twice(many, cached):
        again = tuple(
            replace(one, request=f"{one.request}.again", cached_tokens=cached, started=9.0)
            for one in many[:count]
        )
        return many + again

    def scored(many):
        return many + tuple(replace(one, request=f"{one.request}.again") for one in many[:count])

    again = {f"{one.request}.again": CELL.prompts[one.request] for one in CELL.on[:count]}
    ends = CELL.evidence.outcomes
    told = msgspec.structs.replace(ends["on"], facts={**ends["on"].facts, **(facts or {})})
    evidence = msgspec.structs.replace(CELL.evidence, outcomes={**ends, "on": told})
    return replace(
        CELL, evidence=evidence, prompts={**CELL.prompts, **again},
        on=twice(CELL.on, on), off=twice(CELL.off, off), null=twice(CELL.null, null),
        on_scores=scored(CELL.on_scores), off_scores=scored(CELL.off_scores),
        null_scores=scored(CELL.null_scores),
    )  # fmt: skip


def result_of(cell):
    return judge_sweep([cell], SETTINGS).results[0]


def reuse(result, severity=Severity.FAULT):
    return [one for one in result.findings if one.kind == "reuse" and one.severity is severity]


def test_a_cache_that_speculation_switches_off_is_a_fault():
    result = result_of(sent_again(on=0))
    assert result.verdict is Verdict.FAIL
    (found,) = reuse(result)
    assert found.numbers["prompts"] == AGAIN


@pytest.mark.parametrize(
    "cell",
    [
        sent_again(on=32),
        sent_again(on=16),  # a part of it: the conversation probe asks how much
        sent_again(on=0, off=0, null=0),  # nothing is cached anywhere
        sent_again(on=0, null=0),  # nor in the control: the off arm was lucky
        sent_again(on=0, count=4),  # too few to say so
        sent_again(on=0, facts={"kv_cache_size_tokens": 64}),  # what was sent is evicted
    ],
)
def test_what_caching_does_by_itself_is_no_fault_of_speculation(cell):
    assert not reuse(result_of(cell))


def test_what_a_head_drops_of_a_match_by_design_does_not_count():
    blocks = sent_again(on=0, off=16, null=16, facts={"block_size": 16})
    speculation = msgspec.structs.replace(blocks.cell.axes["speculation"], method="eagle3")
    cell = msgspec.structs.replace(
        blocks.cell, axes={**blocks.cell.axes, "speculation": speculation}
    )
    evidence = msgspec.structs.replace(blocks.evidence, cell=cell)
    assert not reuse(result_of(replace(blocks, evidence=evidence)))


def test_a_server_that_runs_already_may_have_been_emptied_by_others():
    attached = sent_again(on=0, facts={"attached": True})
    assert not reuse(result_of(attached))
    assert reuse(result_of(attached), Severity.NOTICE)
