"""First tokens, which no draft precedes, tell whether both arms serve the same target."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from matrixrun.evidence.verdicts import Severity, Verdict
from matrixrun.judge import JudgeSettings, judge_sweep

from .simulator import Arm, Pair, Target, gathered, observe, simulate

SETTINGS = JudgeSettings(detect_rate=0.1)
SHARE = "target/first_tokens_moved.on"


def judged(cell):
    return judge_sweep([cell], SETTINGS, final=True).results[0]


def faults(result):
    return [one.kind for one in result.findings if one.severity is Severity.FAULT]


def with_other_target(other, arms=("on",)):
    pair = Pair()
    answers = {
        name: observe(replace(pair, target=other) if name in arms else pair, arm, name)
        for name, arm in (("on", pair.on), ("off", pair.off), ("null", pair.null))
    }
    return gathered(pair, answers["on"], answers["off"], answers["null"])


@pytest.mark.parametrize("other", [Target(seed=9), Target(spread=6.0)], ids=["weights", "scale"])
def test_another_target_in_the_on_arm_is_named_as_the_cause(other):
    result = judged(with_other_target(other))
    assert result.verdict is Verdict.FAIL
    assert faults(result)[0] == "target-path"
    assert "the target is another one" in result.reason


@pytest.mark.parametrize("noise", [0.0, 0.05, 0.15, 0.3])
def test_healthy_arms_serve_the_same_target(noise):
    result = judged(simulate(Pair().noisy(noise)))
    assert result.metrics[SHARE] < 0.05
    assert "target-path" not in faults(result)


def test_a_fault_of_speculation_leaves_first_tokens_alone():
    result = judged(simulate(replace(Pair(), on=Arm(accept=0.7, seed=1, let_through=0.5))))
    assert result.verdict is not Verdict.PASS
    assert result.metrics[SHARE] == 0.0
    assert "target-path" not in faults(result)


def test_a_control_that_differs_likewise_accuses_nobody():
    result = judged(with_other_target(Target(seed=9), ("on", "null")))
    assert "target-path" not in faults(result)


def test_placeholders_for_logprobs_are_no_other_target():
    cell = simulate(Pair())
    on = tuple(replace(one, logprobs=np.full_like(one.logprobs, -0.5)) for one in cell.on)
    result = judged(replace(cell, on=on))
    assert SHARE not in result.metrics
    assert "target-path" not in faults(result)


def test_answers_behind_a_cached_prefix_are_left_out():
    cell = simulate(Pair())
    result = judged(replace(cell, on=tuple(replace(one, cached_tokens=2) for one in cell.on)))
    assert SHARE not in result.metrics
