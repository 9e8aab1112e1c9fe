"""What the judge says of whole cells: healthy pairs, strict equality, launches that did not serve,
and verdicts that were expected."""

from __future__ import annotations

import msgspec
import pytest

from matrixrun.evidence.launches import LaunchEnd
from matrixrun.evidence.verdicts import Severity, Verdict
from matrixrun.judge import CellObservations, ExpectedVerdict, judge_sweep

from .judging import SETTINGS, answers, judged, kinds
from .simulator import Arm, Pair, changed, evidence, gathered, outcome, simulate


def test_a_bit_identical_pair_passes_and_says_what_it_claims():
    result = judged(simulate(Pair()), Pair())
    assert result.verdict is Verdict.PASS
    assert result.metrics["same/exact_match"] == 1.0
    assert result.findings == ()
    assert "48 prompts" in result.reason
    assert "assumed" in result.reason


@pytest.mark.parametrize("noise", [0.02, 0.05, 0.15])
def test_noise_in_every_launch_is_not_accused_however_many_requests_fork(noise):
    pair = Pair(prompts=80).noisy(noise)
    result = judged(simulate(pair), pair)
    assert result.verdict is Verdict.PASS
    assert result.metrics["same/exact_match"] < 0.9
    assert kinds(result) == set()


def test_small_noise_of_the_on_arm_alone_is_a_notice():
    pair = Pair(on=Arm(noise=0.01, accept=0.7, seed=1))
    result = judged(simulate(pair), pair)
    assert result.verdict is Verdict.PASS
    assert "numerics-changed" in kinds(result, Severity.NOTICE)


def test_the_learned_ceiling_lets_honest_noise_pass_that_exceeds_the_floor():
    pair = Pair(prompts=80).noisy(0.15)
    cell = simulate(pair)
    result = judged(cell, pair)
    floor = result.metrics["regret/floor"]
    assert max(float(score.regret.max()) for score in cell.on_scores) > floor
    assert result.metrics["regret/ceiling"] > floor
    assert result.verdict is Verdict.PASS


def test_speed_and_reuse_are_figures_of_both_arms():
    pair = Pair()
    on, off, null = answers(pair)
    on = changed(on, range(24), cached_tokens=4)
    metrics = judged(gathered(pair, on, off, null), pair).metrics
    assert metrics["speed/tokens_per_second.on"] == 48 * 48 / 1.0
    assert metrics["speed/speedup"] == pytest.approx(1.5)
    assert (metrics["reuse/cached_tokens.on"], metrics["reuse/cached_tokens.off"]) == (96, 0)


def test_strict_equality_makes_every_difference_a_fault():
    pair = Pair(on=Arm(noise=0.01, accept=0.7, seed=1))
    settings = msgspec.structs.replace(SETTINGS, equality="strict")
    result = judged(simulate(pair), pair, settings)
    assert result.verdict is Verdict.FAIL
    assert kinds(result) == {"equality"}


def test_strict_equality_against_an_off_arm_that_differs_from_itself_proves_nothing():
    pair = Pair(null=Arm(noise=0.05, seed=3))
    settings = msgspec.structs.replace(SETTINGS, equality="strict")
    result = judged(simulate(pair), pair, settings)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "baseline unsound" in result.reason


@pytest.mark.parametrize(
    ("role", "end", "verdict"),
    [
        ("on", LaunchEnd.REFUSED, Verdict.REFUSED),
        ("A", LaunchEnd.REFUSED, Verdict.REFUSED),
        ("on", LaunchEnd.DIED, Verdict.ERROR),
        ("A", LaunchEnd.DIED, Verdict.ERROR),
        ("B", LaunchEnd.HUNG, Verdict.ERROR),
        ("on", LaunchEnd.LOST, Verdict.ERROR),
        ("on", LaunchEnd.UNBUILT, Verdict.ERROR),
        ("on", LaunchEnd.STOPPED, Verdict.INCONCLUSIVE),
    ],
)
def test_a_launch_that_did_not_serve_decides_in_its_own_words(role, end, verdict):
    ended = outcome(role, end, "pipeline parallelism is not supported with n-gram")
    cell = CellObservations(evidence=evidence(ends={role: ended}))
    result = judge_sweep([cell], SETTINGS).results[0]
    assert result.verdict is verdict
    assert "pipeline parallelism is not supported" in result.reason


def test_a_crash_is_not_hidden_by_a_refusal_of_the_other_arm():
    ends = {"on": outcome("on", LaunchEnd.REFUSED, "no"), "A": outcome("A", LaunchEnd.DIED, "oom")}
    result = judge_sweep([CellObservations(evidence=evidence(ends=ends))], SETTINGS).results[0]
    assert result.verdict is Verdict.ERROR


def test_an_expected_verdict_is_marked_and_its_absence_is_a_notice():
    refused = outcome("on", LaunchEnd.REFUSED, "no")
    cells = [
        CellObservations(evidence=evidence("a", ends={"on": refused}, tensor_parallel_size=2)),
        simulate(Pair(), cell_id="b", tensor_parallel_size=2),
        simulate(Pair(), cell_id="c"),
    ]
    expect = ExpectedVerdict(
        when={"tensor_parallel_size": 2, "speculation": {"method": "ngram"}},
        verdict=Verdict.REFUSED,
        reason="the engine says no",
    )
    settings = msgspec.structs.replace(SETTINGS, expect=(expect,))
    first, second, third = judge_sweep(cells, settings).results
    assert first.expected
    assert not second.expected
    assert "expected-verdict" in kinds(second, Severity.NOTICE)
    assert third.findings == ()
