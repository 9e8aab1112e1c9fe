"""What the bench says of a specimen, from its trials."""

from __future__ import annotations

import json

import msgspec
import numpy as np
import pytest

from matrixrun.evidence.requests import Observation
from matrixrun.faultbench.result import TrialResult
from matrixrun.faultbench.specimen import Harm, Injection, Specimen
from matrixrun.faultbench.table import Outcome, as_json, summarise
from matrixrun.faultbench.trial import stop_token

FAULT = Specimen(name="f", what="breaks", report="x#1", injection=Injection(name="n"))
HARMLESS = Specimen(name="h", what="is fine", report="none", harmless=True)
CAUGHT = TrialResult(
    specimen="f", seed=0, verdict="FAIL", caught=True, finding="unexplained-token", reason="",
    requests=4, tokens=256, sent=43, struck=3, steps=100, regret_max=2.0, regret_mean=0.01,
    logprob_shift=0.0, ceiling=0.25, acceptance=0.5,
)  # fmt: skip
MISSED = msgspec.structs.replace(CAUGHT, verdict="PASS", caught=False, finding="", seed=1)
SMALL = msgspec.structs.replace(MISSED, regret_max=0.1)
IDLE = msgspec.structs.replace(MISSED, struck=0, regret_max=0.0)


@pytest.mark.parametrize(
    ("trials", "outcome"),
    [
        ([CAUGHT, CAUGHT], Outcome.CAUGHT),
        ([CAUGHT, MISSED], Outcome.PARTLY),
        ([MISSED, MISSED], Outcome.MISSED),
        ([SMALL, SMALL], Outcome.BELOW),
        ([CAUGHT, SMALL], Outcome.CAUGHT),
        ([IDLE, IDLE], Outcome.IDLE),
        ([SMALL, IDLE], Outcome.BELOW),
        ([MISSED, IDLE], Outcome.MISSED),
    ],
)
def test_a_fault_is_caught_missed_or_too_small(trials: list[TrialResult], outcome: Outcome):
    assert summarise(FAULT, trials, {}).outcome is outcome


def test_a_fault_without_a_size_cannot_be_below_the_floor():
    slow = msgspec.structs.replace(FAULT, harm=Harm.OTHER)
    assert summarise(slow, [SMALL, SMALL], {}).outcome is Outcome.MISSED


@pytest.mark.parametrize(
    ("accepted", "outcome"), [(0.49, Outcome.BELOW), (0.4, Outcome.MISSED), (None, Outcome.MISSED)]
)
def test_a_loss_of_acceptance_is_small_beside_a_healthy_launchs_alone(accepted, outcome):
    worse = msgspec.structs.replace(FAULT, harm=Harm.ACCEPTANCE)
    trial = msgspec.structs.replace(SMALL, regret_max=0.0, acceptance=accepted or 0.49)
    healthy = {} if accepted is None else {SMALL.seed: msgspec.structs.replace(SMALL)}
    assert summarise(worse, [trial], healthy).outcome is outcome


def test_logprobs_off_by_more_than_the_ceiling_are_not_small():
    shifted = msgspec.structs.replace(SMALL, logprob_shift=0.5)
    assert summarise(FAULT, [shifted], {}).outcome is Outcome.MISSED


def test_something_harmless_is_accused_by_one_seed():
    clear = msgspec.structs.replace(MISSED, specimen="h")
    accused = msgspec.structs.replace(CAUGHT, specimen="h")
    assert summarise(HARMLESS, [clear, clear], {}).outcome is Outcome.CLEAR
    assert summarise(HARMLESS, [clear, accused], {}).outcome is Outcome.ACCUSED


def test_figures_are_of_the_seeds_that_caught_it():
    later = msgspec.structs.replace(CAUGHT, requests=10, tokens=640, finding="regret")
    line = summarise(FAULT, [CAUGHT, later, SMALL], {})
    assert (line.caught, line.trials, line.requests, line.tokens) == (2, 3, 7, 448)
    assert line.finding == "unexplained-token, regret"
    assert line.regret_max == 2.0


def test_the_json_holds_lines_and_trials():
    line = summarise(FAULT, [CAUGHT], {})
    told = json.loads(as_json([line], [CAUGHT], {"seconds": 1.0}))
    assert told["lines"][0]["outcome"] == "caught"
    assert told["trials"][0]["requests"] == 4
    assert told["about"] == {"seconds": 1.0}


def test_the_stop_token_stands_in_about_half_of_the_answers():
    def answer(*tail: int) -> Observation:
        tokens = np.array([1] * 8 + list(tail), dtype=np.int32)
        return Observation(request="r", prompt="p", category="c", token_ids=tokens)

    answers = (answer(1, 2, 3), answer(1, 2, 4), answer(1, 5, 6), answer(1, 7, 8))
    assert stop_token(answers) == 2
