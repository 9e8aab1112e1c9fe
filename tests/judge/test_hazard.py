"""Tokens beyond the floor, and the verification steps that they stand in."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from matrixrun.judge import JudgeSettings, judge_sweep
from matrixrun.judge.witnesses.hazard import _p_value

from .simulator import Arm, Pair, changed, observe, score, simulate

SETTINGS = JudgeSettings(detect_rate=0.1)
PAIR = Pair()
CELL = simulate(PAIR)


def wrong_tokens(chosen):
    """The on arm with another token than the best at every place that `chosen` names."""

    def change(one):
        tokens = one.token_ids.copy()
        for place in chosen(one):
            tokens[place] = int(one.top_ids[place, 1])
        return tokens

    on = changed(observe(PAIR, PAIR.on, "on"), range(48), token_ids=change)
    return replace(CELL, on=on, on_scores=score(PAIR, on, 21))


def starts(one, *, after_rejection):
    """The first place of every step that follows a rejection, or a whole draft."""
    ends = 1 + np.cumsum(one.accepted + 1)
    rejected = one.accepted < one.drafted
    places = ends[:-1][rejected[:-1] == after_rejection]
    return places[places < one.token_ids.size][::3]


def hazard(cell):
    result = judge_sweep([cell], SETTINGS, final=True).results[0]
    return [one for one in result.findings if one.kind == "hazard"]


def test_tokens_that_go_wrong_after_rejections_are_told_to():
    (finding,) = hazard(wrong_tokens(lambda one: starts(one, after_rejection=True)))
    assert finding.numbers["behind"] / finding.numbers["beyond"] > 0.8
    assert "right after a rejection" in finding.text


def test_tokens_that_go_wrong_elsewhere_are_not():
    assert not hazard(wrong_tokens(lambda one: starts(one, after_rejection=False)))


@pytest.mark.parametrize("seed", range(5))
def test_noise_does_not_go_by_steps(seed):
    pair = Pair(on=Arm(accept=0.7, seed=1)).noisy(0.3).seeded(seed)
    assert not hazard(simulate(pair))


def test_the_p_value_is_fishers_in_one_stratum():
    assert _p_value(np.array([[10, 4, 3, 3]])) == pytest.approx(4 * 3 * 2 / (10 * 9 * 8))
    assert _p_value(np.array([[10, 4, 3, 0]])) == pytest.approx(1.0)
