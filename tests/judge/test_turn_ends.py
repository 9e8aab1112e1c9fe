"""Turns that end at a stop string."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from matrixrun.evidence.verdicts import Severity
from matrixrun.judge import JudgeSettings, ProbeObserved, judge_sweep, patterns
from matrixrun.judge.case import build_case

from .simulator import Pair, changed, cut, simulate

SETTINGS = JudgeSettings(detect_rate=0.1)
CELL = simulate(Pair(prompts=8))
MET = 20  # tokens after which the string is there
PLACES = range(8)


def named(many):
    """Observations or scores under the names of turns."""
    return tuple(replace(one, request=f"conversation.{one.request}") for one in many)


def arm(observations, *, stops, category="string", text=None):
    """An arm's turns, of which those of `stops` end where the string is met."""
    turns = changed(named(observations), PLACES, category=category, text=text)
    return tuple(
        replace(cut(one, MET), finish_reason="stop") if place in stops else one
        for place, one in enumerate(turns)
    )


def past(on, null, category="string"):
    """The findings of answers that go on, where those of `on` and `null` stop as they should."""
    return found_of(
        on=arm(CELL.on, stops=on, category=category),
        off=arm(CELL.off, stops=PLACES, category=category),
        null=arm(CELL.null, stops=null, category=category),
    )


def found_of(**arms):
    """The findings of answers that go on after their end, by arm as given."""
    probe = ProbeObserved(
        kind="conversation",
        compared=True,
        observations=arms,
        scores={
            "on": named(CELL.on_scores),
            "off": named(CELL.off_scores),
            "null": named(CELL.null_scores),
        },
        records={},
    )
    result = judge_sweep([replace(CELL, probes=(probe,))], SETTINGS, final=True).results[0]
    return [one for one in result.findings if one.kind == "past-the-end"]


def test_a_stop_string_that_the_on_arm_misses_is_a_fault():
    (found,) = past(on=range(7), null=PLACES)
    assert found.severity is Severity.FAULT
    assert found.numbers["requests"] == 1


@pytest.mark.parametrize(
    ("on", "null", "category"),
    [
        (PLACES, PLACES, "string"),
        (range(7), range(7), "string"),  # the engine misses it without speculation too
        (range(7), PLACES, "natural"),  # the model's own end may be a near tie
    ],
)
def test_what_is_no_fault_of_speculation_is_not_accused(on, null, category):
    assert past(on, null, category) == []


def test_tokens_behind_the_string_that_are_no_part_of_the_text_are_no_fault():
    """Some engines return the tokens of the whole step in which the string was met."""
    off = arm(CELL.off, stops=PLACES, text="met")
    on = tuple(
        replace(cut(one, MET + 2), finish_reason="stop", category="string", text="met")
        for one in named(CELL.on)
    )
    assert found_of(on=on, off=off, null=off) == []
    longer = tuple(replace(one, text="met, and more") for one in on)
    assert len(found_of(on=longer, off=off, null=off)) == 1


def stops_of(category, requests):
    """The stop tokens of two arms in which the same requests ended on token 9."""
    answers = [
        replace(one, token_ids=np.array([5, 9], np.int32), finish_reason="stop")
        for one in changed(named(CELL.off)[:requests], range(requests), category=category)
    ]
    cell = replace(CELL, on=answers, off=answers, null=answers, prompts={})
    case = build_case(cell, SETTINGS, 1)
    return patterns.stop_tokens(case.off, case.null)


def test_a_stop_token_ends_answers_to_several_requests():
    assert stops_of("natural", 2) == {9}
    assert stops_of("natural", 1) == set()  # in both arms, by the same chance


def test_whatever_token_a_stop_string_ends_on_is_no_stop_token():
    assert stops_of("string", 8) == set()
