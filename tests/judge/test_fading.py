"""Drafts that get worse while the engine runs."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np

from matrixrun.evidence.verdicts import Severity, Verdict
from matrixrun.judge import JudgeSettings, judge_sweep
from matrixrun.judge.case import build_case
from matrixrun.judge.examination import examine
from matrixrun.judge.witnesses.fading import examine_fading

from .simulator import Pair, changed, simulate

SETTINGS = JudgeSettings(detect_rate=0.1)
CELL = simulate(Pair())
PROMPTS = len(CELL.on)
CELL = replace(CELL, on=tuple(replace(one, started=float(i)) for i, one in enumerate(CELL.on)))


def result_of(cell):
    return judge_sweep([cell], SETTINGS).results[0]


def fading(result):
    return [one for one in result.findings if one.kind == "fading-acceptance"]


def worse_from(place):
    """The cell with drafts of which nothing is taken, from a request on."""
    on = changed(CELL.on, range(place, PROMPTS), accepted=lambda one: np.minimum(one.accepted, 0))
    return replace(CELL, on=on)


def test_a_drafter_that_stays_as_it_is_is_no_finding():
    result = result_of(CELL)
    assert not fading(result)
    assert result.metrics["acceptance/early"] > 0


def test_a_drafter_that_collapses_on_the_way_is_a_fault():
    result = result_of(worse_from(PROMPTS // 3))
    assert result.verdict is Verdict.FAIL
    (found,) = fading(result)
    assert found.severity is Severity.FAULT
    assert found.numbers["late"] < found.numbers["early"]


def test_what_chance_does_in_a_sweep_now_and_then_is_a_notice_at_most(monkeypatch):
    """Ten pairs that all lose are one in a thousand."""
    monkeypatch.setattr("matrixrun.judge.witnesses.fading.LEAST_PAIRS", 10)
    worse = worse_from(10)
    few = replace(worse, on=worse.on[:20], off=CELL.off[:20], null=CELL.null[:20])
    told = examine_fading(examine(build_case(few, SETTINGS, 1)))
    assert told.rates == ()
    assert [one.severity for one in told.findings] == [Severity.NOTICE]


def test_shorter_drafts_later_on_are_not_worse_ones():
    """A drafter may adapt the length of its drafts to the load."""
    on = changed(
        CELL.on,
        range(PROMPTS // 2, PROMPTS),
        accepted=lambda one: np.minimum(one.accepted, 1),
        drafted=lambda one: np.minimum(one.drafted, 1),
    )
    assert not fading(result_of(replace(CELL, on=on)))


def test_when_requests_were_sent_counts_and_not_in_which_order_they_are_read():
    worse = worse_from(PROMPTS // 3)
    assert fading(result_of(replace(worse, on=worse.on[::-1]))) == fading(result_of(worse))


def test_a_prompt_sent_again_is_not_late():
    """Warm prompts come last in a pass; what caching does to them is another witness's."""
    again = changed(
        CELL.on,
        range(PROMPTS),
        request=lambda one: f"{one.request}.again",
        started=lambda one: one.started + PROMPTS,
        accepted=lambda one: np.minimum(one.accepted, 0),
    )
    before, after = result_of(CELL), result_of(replace(CELL, on=CELL.on + again))
    assert after.metrics["acceptance/late"] == before.metrics["acceptance/late"]


def test_in_whatever_order_they_come_few_healthy_sweeps_are_near_an_accusation(monkeypatch):
    monkeypatch.setattr("matrixrun.judge.witnesses.fading.LEAST_LOSS", -99.0)
    monkeypatch.setattr("matrixrun.judge.testimony.RARE", 2.0)
    random, found = np.random.default_rng(4), []
    examination = examine(build_case(CELL, SETTINGS, 1))
    for _ in range(400):
        times = random.permutation(PROMPTS)
        on = tuple(
            replace(one, started=float(time)) for one, time in zip(CELL.on, times, strict=True)
        )
        case = replace(examination.case, observed=replace(CELL, on=on))
        told = examine_fading(replace(examination, case=case))
        found += [rate.p_value for rate in told.rates]
    assert len(found) == 400
    assert np.mean(np.array(found) < 0.05) < 0.08


def test_on_a_server_of_others_it_is_a_notice():
    worse = worse_from(PROMPTS // 3)
    ends = worse.evidence.outcomes
    told = msgspec.structs.replace(ends["on"], facts={**ends["on"].facts, "attached": True})
    evidence = msgspec.structs.replace(worse.evidence, outcomes={**ends, "on": told})
    (found,) = fading(result_of(replace(worse, evidence=evidence)))
    assert found.severity is Severity.NOTICE
