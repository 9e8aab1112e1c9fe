"""Broken answers that the off arms show too: how many absolve how many."""

from __future__ import annotations

import numpy as np
import pytest

from matrixrun.evidence.verdicts import Severity, Verdict
from matrixrun.judge import JudgeSettings, judge_sweep

from .simulator import Pair, changed, cut, gathered, observe

SETTINGS = JudgeSettings(detect_rate=0.1)
PAIR = Pair()
ARMS = {name: observe(PAIR, getattr(PAIR, name), name) for name in ("on", "off", "null")}


def cut_short(arm, indices):
    chosen = set(indices)
    return changed(
        tuple(cut(one, 40) if index in chosen else one for index, one in enumerate(arm)),
        chosen,
        finish_reason="abort",
    )


def undefined(arm, indices):
    def some(one):
        return np.where(np.arange(one.logprobs.size) == 9, np.nan, one.logprobs)

    return changed(arm, indices, logprobs=some)


def failed(arm, indices):
    return changed(arm, indices, error="HTTP 500: internal error")


def result_of(**arms):
    cell = gathered(PAIR, **(ARMS | arms))
    return judge_sweep([cell], SETTINGS, final=True).results[0]


def faults(result):
    return {finding.kind for finding in result.findings if finding.severity is Severity.FAULT}


@pytest.mark.parametrize(
    ("broken", "kind"),
    [(cut_short, "cut-short"), (undefined, "nan"), (failed, "failed-request")],
)
@pytest.mark.parametrize("other", ["null", "off"])
def test_one_broken_answer_of_an_off_arm_does_not_absolve_half_of_the_on_arms(broken, kind, other):
    result = result_of(on=broken(ARMS["on"], range(0, 48, 2)), **{other: broken(ARMS[other], [1])})
    assert result.verdict is Verdict.FAIL
    (finding,) = [one for one in result.findings if one.kind == kind]
    assert finding.severity is Severity.FAULT
    assert (finding.numbers["requests"], finding.numbers["first"]) == (24, "r0000")
    assert (finding.numbers["null"], finding.numbers["off"]) == (
        (1, 0) if other == "null" else (0, 1)
    )
    assert finding.numbers["p_value"] < 1e-6


def test_as_many_broken_answers_as_the_control_gives_are_no_fault():
    result = result_of(
        on=cut_short(ARMS["on"], range(0, 10)), null=cut_short(ARMS["null"], range(8, 18))
    )
    assert result.verdict is Verdict.PASS
    assert faults(result) == set()


def test_a_few_more_than_the_control_gives_do_not_stand_against_all_tests_of_the_cell():
    few = result_of(on=cut_short(ARMS["on"], range(8)), null=cut_short(ARMS["null"], [7]))
    assert few.verdict is Verdict.PASS  # seven prompts one way: 2^-7 times seven tests
    more = result_of(on=cut_short(ARMS["on"], range(9)), null=cut_short(ARMS["null"], [8]))
    assert more.verdict is Verdict.FAIL  # eight: 2^-8 times seven is below 5 %


def test_broken_answers_of_the_on_arm_alone_need_no_test():
    result = result_of(on=cut_short(ARMS["on"], [3]))
    assert result.verdict is Verdict.FAIL
    assert faults(result) == {"cut-short"}
