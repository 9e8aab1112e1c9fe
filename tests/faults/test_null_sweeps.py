"""Null sweeps: what is swapped, and that a healthy judge accuses none of them."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest
from judge.simulator import Pair, simulate

from matrixrun.evidence.verdicts import Verdict
from matrixrun.judge import JudgeSettings, judge_sweep

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "null_sweeps.py"
spec = importlib.util.spec_from_file_location("null_sweeps", SCRIPT)
assert spec is not None
assert spec.loader is not None
null_sweeps = importlib.util.module_from_spec(spec)
spec.loader.exec_module(null_sweeps)

CELL = simulate(Pair().noisy(0.15))


def emitted(many):
    return {one.request: one.token_ids.tobytes() for one in many}


def test_a_swap_exchanges_whole_answers_with_their_scores():
    made = null_sweeps.swapped(CELL, np.random.default_rng(1))
    on, null = emitted(CELL.on), emitted(CELL.null)
    new_on, new_null = emitted(made.on), emitted(made.null)
    moved = [name for name in on if new_on[name] != on[name]]
    assert moved
    for name in on:
        assert {new_on[name], new_null[name]} == {on[name], null[name]}
    scores = {one.request: one for one in made.on_scores}
    theirs = {one.request: one for one in CELL.null_scores}
    assert all(scores[name] is theirs[name] for name in moved)


def test_verification_steps_stay_with_the_on_arm():
    made = null_sweeps.swapped(CELL, np.random.default_rng(1))
    assert all(one.drafted.size > 0 for one in made.on)
    assert all(one.drafted.size == 0 for one in made.null)


def test_null_sweeps_of_a_noisy_target_are_not_accused():
    random, settings = np.random.default_rng(2), JudgeSettings(detect_rate=0.1)
    verdicts = [
        judge_sweep([null_sweeps.swapped(CELL, random)], settings, final=True).results[0].verdict
        for _ in range(20)
    ]
    assert Verdict.FAIL not in verdicts


@pytest.mark.parametrize(("events", "trials", "bound"), [(0, 10_000, 0.0003), (0, 200, 0.0149)])
def test_the_bound_is_the_rule_of_three(events: int, trials: int, bound: float):
    assert null_sweeps.upper_bound(events, trials) == pytest.approx(bound, rel=0.01)
