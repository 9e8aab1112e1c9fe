"""Documents lost with speculation, by McNemar's exact test."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import binomtest

from matrixrun.evidence.requests import Observation
from matrixrun.evidence.verdicts import Verdict
from matrixrun.judge import JudgeSettings, ProbeObserved, judge_sweep
from matrixrun.judge.witnesses import ProbeExamination
from matrixrun.judge.witnesses.accuracy import (
    LEAST_RIGHT,
    RATE_TESTS,
    examine_accuracy,
    mcnemar_p_value,
)

from .simulator import Pair, simulate


def answers(right: list[bool]) -> tuple[Observation, ...]:
    return tuple(
        Observation(request=f"accuracy.{i}", prompt=f"accuracy.{i}", category="t", right=one)
        for i, one in enumerate(right)
    )


def observed(on: list[bool], off: list[bool], null: list[bool] | None = None) -> ProbeObserved:
    arms = {"on": answers(on), "off": answers(off), "null": answers(off if null is None else null)}
    return ProbeObserved(kind="accuracy", compared=False, observations=arms, scores={}, records={})


def told(seen: ProbeObserved):
    evidence = simulate(Pair(prompts=2, tokens=4)).evidence
    return examine_accuracy(ProbeExamination(evidence, JudgeSettings(), seen, None))


def lost(count: int, of: int = 40) -> list[bool]:
    return [False] * count + [True] * (of - count)


@given(st.integers(0, 300), st.integers(0, 300))
def test_the_p_value_is_the_exact_binomial_tail(losses: int, gains: int) -> None:
    expected = (
        binomtest(losses, losses + gains, 0.5, alternative="greater").pvalue
        if losses + gains
        else 1.0
    )
    assert mcnemar_p_value(losses, gains) == pytest.approx(expected, rel=1e-9)


def test_thousands_of_discordant_documents_are_no_trouble() -> None:
    assert mcnemar_p_value(700, 700) == pytest.approx(0.511, abs=0.001)


def test_a_loss_names_the_documents_and_both_accuracies() -> None:
    seen = told(observed(lost(12), [True] * 40))
    (rate,) = seen.rates
    assert rate.p_value == 2**-12
    assert "70.0% of 40 documents right with speculation, 100.0% without" in rate.finding.text
    assert "lost: 0, 1, 2" in rate.finding.text
    assert rate.finding.numbers["lost_documents"][:2] == ["accuracy.0", "accuracy.1"]
    assert (seen.metrics["accuracy/right.on"], seen.metrics["accuracy/right.off"]) == (0.7, 1.0)
    assert seen.objections == ()


def test_documents_that_flip_both_ways_are_no_loss() -> None:
    on = lost(5) + [True] * 5
    off = [True] * 40 + [False] * 5
    (rate,) = told(observed(on, off)).rates
    assert rate.p_value > 0.5


def test_a_gain_is_no_loss() -> None:
    (rate,) = told(observed([True] * 40, lost(12))).rates
    assert rate.p_value == pytest.approx(1.0)


def reason(seen: ProbeObserved) -> str:
    (objection,) = told(seen).objections
    assert objection.verdict is Verdict.INCONCLUSIVE
    return objection.reason


def with_arms(seen: ProbeObserved, arms) -> ProbeObserved:
    return ProbeObserved(kind=seen.kind, compared=False, observations=arms, scores={}, records={})


def test_a_task_that_was_not_put_leaves_the_cell_inconclusive_in_its_words() -> None:
    seen = observed([True] * 40, [True] * 40)
    failed = Observation(request="accuracy", prompt="accuracy", category="t", error="lm-eval ended")
    arms = dict(seen.observations) | {"on": (failed,)}
    assert "on arm: lm-eval ended" in reason(with_arms(seen, arms))
    unasked = dict(seen.observations) | {"null": ()}
    assert "not put to the null arm" in reason(with_arms(seen, unasked))


def test_too_few_right_answers_are_inconclusive() -> None:
    few = [True] * (LEAST_RIGHT - 1) + [False] * 30
    assert f"answers {LEAST_RIGHT - 1} of 43 documents rightly" in reason(observed(few, few))


def test_off_arms_that_differ_themselves_are_inconclusive() -> None:
    assert "the off arms differ" in reason(observed([True] * 40, [True] * 40, lost(20)))


def test_arms_with_different_documents_are_inconclusive() -> None:
    assert "different documents" in reason(observed([True] * 39, [True] * 40))


def verdict(on: list[bool], off: list[bool]):
    cell = simulate(Pair(prompts=40, tokens=24))
    view = replace(cell, probes=(observed(on, off),))
    (result,) = judge_sweep([view], JudgeSettings(), final=True).results
    return result


def test_the_test_joins_the_sweeps_error_budget() -> None:
    assert RATE_TESTS == 1
    plain = verdict([True] * 40, [True] * 40)
    assert [one for one in plain.findings if one.kind == "accuracy"] == []
    assert plain.metrics["accuracy/documents"] == 40
    damaged = verdict(lost(12), [True] * 40)
    assert damaged.verdict is Verdict.FAIL
    assert [one.kind for one in damaged.findings if one.severity == "fault"] == ["accuracy"]
    # 6 lost of 6: below 5 % alone, not with the other tests of the cell.
    assert [one for one in verdict(lost(6), [True] * 40).findings if one.kind == "accuracy"] == []
