"""Turns that end at a stop string."""

from __future__ import annotations

from dataclasses import replace

import pytest

from matrixrun.evidence.verdicts import Severity
from matrixrun.judge import JudgeSettings, ProbeObserved, judge_sweep

from .simulator import Pair, changed, cut, simulate

SETTINGS = JudgeSettings(detect_rate=0.1)
CELL = simulate(Pair(prompts=8))
MET = 20  # tokens after which the string is there


def arm(observations, *, stops, category="string"):
    """An arm's turns, of which those of `stops` end where the string is met."""
    turns = changed(observations, range(8), category=category)
    return tuple(
        replace(cut(one, MET), finish_reason="stop") if place in stops else one
        for place, one in enumerate(turns)
    )


def past(on, null, category="string"):
    """The findings of answers that go on, where those of `on` and `null` stop as they should."""
    probe = ProbeObserved(
        kind="conversation",
        compared=True,
        observations={
            "on": arm(CELL.on, stops=on, category=category),
            "off": arm(CELL.off, stops=range(8), category=category),
            "null": arm(CELL.null, stops=null, category=category),
        },
        scores={"on": CELL.on_scores, "off": CELL.off_scores, "null": CELL.null_scores},
        records={},
    )
    result = judge_sweep([replace(CELL, probes=(probe,))], SETTINGS, final=True).results[0]
    return [one for one in result.findings if one.kind == "past-the-end"]


def test_a_stop_string_that_the_on_arm_misses_is_a_fault():
    (found,) = past(on=range(7), null=range(8))
    assert found.severity is Severity.FAULT
    assert found.numbers["requests"] == 1


@pytest.mark.parametrize(
    ("on", "null", "category"),
    [
        (range(8), range(8), "string"),
        (range(7), range(7), "string"),  # the engine misses it without speculation too
        (range(7), range(8), "natural"),  # the model's own end may be a near tie
    ],
)
def test_what_is_no_fault_of_speculation_is_not_accused(on, null, category):
    assert past(on, null, category) == []
