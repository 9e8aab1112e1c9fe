"""What further probes observed is compared as equality's answers are."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from matrixrun.evidence.verdicts import CellResult, Verdict
from matrixrun.judge import CellObservations, JudgeSettings, ProbeObserved, judge_sweep

from .simulator import Arm, Pair, answer, changed, simulate

SETTINGS = JudgeSettings(detect_rate=0.1)
HEALTHY = Pair()
LEAKY = replace(HEALTHY, on=Arm(accept=0.7, seed=1, let_through=0.05))


def observed_by(pair: Pair, *, compared: bool = True) -> ProbeObserved:
    cell = simulate(pair)
    return ProbeObserved(
        kind="further",
        compared=compared,
        observations={"on": cell.on, "off": cell.off, "null": cell.null},
        scores={"on": cell.on_scores, "off": cell.off_scores, "null": cell.null_scores},
        records={},
    )


def judged(probe: ProbeObserved) -> CellResult:
    cell: CellObservations = replace(simulate(HEALTHY), probes=(probe,))
    first = judge_sweep([cell], SETTINGS)
    confirmed = replace(cell, confirmations=answer(HEALTHY, first.wants))
    return judge_sweep([confirmed], SETTINGS, final=True).results[0]


def test_a_fault_that_only_a_further_probe_provokes_fails_the_cell_and_names_the_probe():
    result = judged(observed_by(LEAKY))
    assert result.verdict is Verdict.FAIL
    assert result.reason.startswith("[further] ")
    assert result.metrics["further.unexplained/tokens.on"] > 0
    assert result.metrics["unexplained/tokens.on"] == 0


def test_a_healthy_probe_changes_no_verdict_and_has_figures_of_its_own():
    result = judged(observed_by(HEALTHY))
    assert result.verdict is Verdict.PASS
    assert result.metrics["further.same/exact_match"] == 1.0


def test_answers_that_are_not_to_be_compared_are_not():
    result = judged(observed_by(LEAKY, compared=False))
    assert result.verdict is Verdict.PASS
    assert not [name for name in result.metrics if name.startswith("further.")]


def test_answers_to_other_histories_are_no_evidence():
    probe = observed_by(LEAKY)
    faulty = [
        index
        for index, (on, off) in enumerate(
            zip(probe.observations["on"], probe.observations["off"], strict=True)
        )
        if not np.array_equal(on.token_ids, off.token_ids)
    ]
    assert faulty
    other = np.array([1, 2, 3], np.int32)
    on = changed(probe.observations["on"], faulty, sent=other)
    result = judged(replace(probe, observations={**probe.observations, "on": on}))
    assert result.verdict is Verdict.PASS


def test_every_test_of_a_further_probe_is_paid_for():
    alone = judge_sweep([simulate(LEAKY)], SETTINGS, final=True).results[0]
    beside = replace(simulate(LEAKY), probes=(observed_by(HEALTHY),))
    paid = judge_sweep([beside], SETTINGS, final=True).results[0]
    assert alone.metrics["rates/p_value"] < 1e-3
    assert paid.metrics["rates/p_value"] > 1.4 * alone.metrics["rates/p_value"]


def test_requests_that_their_client_dropped_are_no_evidence():
    probe = observed_by(HEALTHY)
    nothing = np.zeros(0, np.int32)
    on = changed(probe.observations["on"], [0, 1], token_ids=nothing, finish_reason="cancelled")
    result = judged(replace(probe, observations={**probe.observations, "on": on}))
    assert result.verdict is Verdict.PASS
    assert not [one for one in result.findings if one.text.startswith("[further]")]
