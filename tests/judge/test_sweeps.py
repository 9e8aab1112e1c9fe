"""Whole sweeps: false alarms over many null sweeps, order that must not matter, and speed."""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from scipy import stats

from matrixrun.evidence.verdicts import Severity, Verdict
from matrixrun.judge import CellObservations, JudgeSettings, judge_sweep, settings_for
from matrixrun.judge.case import build_case
from matrixrun.judge.ceiling import learn_ceiling
from matrixrun.judge.statistics import sign_flip_p_value
from matrixrun.judge.witnesses import RATE_TESTS
from matrixrun.matrix.schema import Matrix

from .simulator import Arm, Pair, answer, observe, simulate

SETTINGS = JudgeSettings(detect_rate=0.1)


def swapped(cell: CellObservations, flips: np.ndarray) -> CellObservations:
    """Return the cell with on and null exchanged in the prompts where `flips` is set.

    Steps stay with the on arm, so that it still speculates.
    """
    on, null, on_scores, null_scores = [], [], [], []
    for index, flip in enumerate(flips):
        one, other = cell.on[index], cell.null[index]
        first, second = (other, one) if flip else (one, other)
        steps = {"accepted": one.accepted, "drafted": one.drafted}
        on.append(replace(first, **steps))
        null.append(replace(second, accepted=other.accepted, drafted=other.drafted))
        scores = (cell.on_scores[index], cell.null_scores[index])
        on_scores.append(scores[flip])
        null_scores.append(scores[1 - flip])
    return replace(cell, on=tuple(on), null=tuple(null), on_scores=tuple(on_scores),
                   null_scores=tuple(null_scores))  # fmt: skip


def test_null_sweeps_made_by_swapping_within_prompts_fail_no_oftener_than_claimed():
    random = np.random.default_rng(5)
    pairs = [Pair(prompts=40, tokens=32).noisy(noise).seeded(seed)
             for seed, noise in enumerate([0.1, 0.2, 0.3])]  # fmt: skip
    cells = [simulate(pair, cell_id=f"c{number}") for number, pair in enumerate(pairs)]
    sweeps, failed, unsettled = 200, 0, 0
    for _ in range(sweeps):
        sweep = [swapped(cell, random.integers(0, 2, 40)) for cell in cells]
        judgement = judge_sweep(sweep, SETTINGS)
        told = {want.cell: want for want in judgement.wants}
        sweep = [
            replace(cell, confirmations=answer(pair, [told[cell.cell.id]]))
            if cell.cell.id in told
            else cell
            for cell, pair in zip(sweep, pairs, strict=True)
        ]
        verdicts = {one.verdict for one in judge_sweep(sweep, SETTINGS, final=True).results}
        failed += Verdict.FAIL in verdicts
        unsettled += Verdict.INCONCLUSIVE in verdicts
    # The rate tests may accuse 5 % of sweeps; beyond that only with probability 1e-3.
    assert failed <= stats.binom.isf(1e-3, sweeps, SETTINGS.alpha)
    assert unsettled == 0


def test_ten_thousand_null_cells_keep_the_combined_p_value_honest():
    """The statistics alone, over observations stored once: swaps change signs and nothing else."""
    random = np.random.default_rng(6)
    p_values = []
    for seed in range(5):
        pair = Pair(prompts=60, tokens=32).noisy(0.25).seeded(10 + seed)
        case = build_case(simulate(pair), SETTINGS, 1)
        floor = learn_ceiling(case).floor
        beyond = [np.maximum(arm.regrets - floor, 0.0) for arm in (case.on, case.null)]
        sums = case.on.total(beyond[0]) - case.null.total(beyond[1])
        worst = case.on.largest(beyond[0]) - case.null.largest(beyond[1])
        for _ in range(2000):
            flips = random.choice([-1.0, 1.0], 60)
            least = min(sign_flip_p_value(flips * sums), sign_flip_p_value(flips * worst))
            p_values.append(min(1.0, RATE_TESTS * least))
    count = int((np.array(p_values) <= 0.05).sum())
    assert stats.binom.sf(count - 1, len(p_values), 0.05) > 1e-3
    assert count > 0


def test_a_hundred_healthy_noisy_cells_with_their_own_prompts_are_not_accused():
    counts: Counter[Verdict] = Counter()
    for seed in range(100):
        pair = Pair(prompts=30, tokens=24).noisy(0.12).seeded(1000 + seed)
        cell = simulate(pair)
        first = judge_sweep([cell], SETTINGS)
        cell = replace(cell, confirmations=answer(pair, first.wants))
        counts[judge_sweep([cell], SETTINGS).results[0].verdict] += 1
    assert counts[Verdict.FAIL] <= stats.binom.isf(1e-3, 100, SETTINGS.alpha)
    assert counts[Verdict.PASS] >= 90


def small_sweep() -> list[CellObservations]:
    healthy, leaky = Pair(prompts=30, tokens=24).noisy(0.05), Pair(prompts=30, tokens=24)
    leaky = replace(leaky, on=Arm(accept=0.6, seed=1, let_through=0.1))
    silent = replace(leaky, on=Arm(accept=0.6, seed=1, silent=True))
    return [
        simulate(healthy, cell_id="healthy", batch_size=1),
        simulate(leaky, cell_id="leaky", batch_size=8),
        simulate(silent, cell_id="silent", batch_size=32),
    ]


SWEEP = small_sweep()


def shuffled(cell: CellObservations, random: np.random.Generator) -> CellObservations:
    fields = ("on", "off", "null", "on_scores", "off_scores", "null_scores", "confirmations")
    return replace(cell, **{name: _permuted(getattr(cell, name), random) for name in fields})


def _permuted(values: tuple, random: np.random.Generator) -> tuple:
    return tuple(values[place] for place in random.permutation(len(values)))


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_the_order_of_requests_and_cells_never_changes_a_byte(seed):
    random = np.random.default_rng(seed)
    order = random.permutation(len(SWEEP))
    mixed = judge_sweep([shuffled(SWEEP[place], random) for place in order], SETTINGS)
    straight = judge_sweep(SWEEP, SETTINGS)
    for rank, place in enumerate(order):
        assert msgspec.json.encode(mixed.results[rank]) == msgspec.json.encode(
            straight.results[place]
        )
    assert {want.cell: want for want in mixed.wants} == {want.cell: want for want in straight.wants}


def test_judging_twice_gives_the_same_bytes_and_they_can_be_read_back():
    encoded = [msgspec.json.encode(judge_sweep(SWEEP, SETTINGS).results) for _ in range(2)]
    assert encoded[0] == encoded[1]
    assert b"NaN" not in encoded[0]
    assert len(msgspec.json.decode(encoded[0])) == 3


UNTOUCHED = Pair(prompts=30, tokens=24)
HEALTHY = simulate(UNTOUCHED)


@given(st.integers(0, 29), st.integers(1, 23), st.floats(3.0, 50.0))
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_whatever_token_is_far_below_the_targets_best_the_cell_no_longer_passes(
    request_index, position, regret
):
    one, scored = HEALTHY.on[request_index], HEALTHY.on_scores[request_index]
    shown = set(HEALTHY.off[request_index].top_ids[position].tolist())
    ids, values = one.token_ids.copy(), scored.token_logprobs.copy()
    ids[position] = next(token for token in range(3) if token not in shown)
    values[position] = scored.best_logprobs[position] - regret
    on, scores = list(HEALTHY.on), list(HEALTHY.on_scores)
    on[request_index] = replace(one, token_ids=ids)
    scores[request_index] = replace(scored, token_logprobs=values)
    cell = replace(HEALTHY, on=tuple(on), on_scores=tuple(scores))
    assert judge_sweep([HEALTHY], SETTINGS).results[0].verdict is Verdict.PASS
    for final in (False, True):
        assert judge_sweep([cell], SETTINGS, final=final).results[0].verdict is not Verdict.PASS


def test_a_rate_fault_must_stand_against_all_cells_of_the_sweep():
    pair = Pair(prompts=40, tokens=32).noisy(0.25)
    worse = replace(pair, on=replace(pair.on, noise=0.42))
    cell = simulate(worse, cell_id="worse")
    alone = judge_sweep([cell], SETTINGS, final=True).results[0]
    others = [simulate(pair.seeded(seed), cell_id=f"n{seed}") for seed in range(20)]
    among = judge_sweep([cell, *others], SETTINGS, final=True).results[0]
    assert alone.metrics["rates/p_value"] == among.metrics["rates/p_value"]
    assert alone.metrics["rates/p_adjusted"] < among.metrics["rates/p_adjusted"]


def test_settings_follow_the_matrix_file():
    matrix = Matrix.model_validate({
        "name": "m",
        "engines": {"e": {"kind": "vllm"}},
        "models": {},
        "grid": {},
        "equality": "strict",
        "detect": {"request_fault_rate": 0.1, "confidence": 0.9},
        "coverage": {"rejections_per_position": 4},
        "expect": [{"when": {"engine": "e"}, "verdict": "REFUSED", "reason": "r"}],
    })  # fmt: skip
    found = settings_for(matrix)
    assert (found.equality, found.detect_rate, found.detect_confidence) == ("strict", 0.1, 0.9)
    assert found.rejections_per_position == 4
    assert found.expect[0].verdict is Verdict.REFUSED


@pytest.fixture(scope="module")
def large() -> CellObservations:
    pair = Pair(prompts=1000, tokens=256).noisy(0.05)
    base = replace(pair, prompts=50)
    arms = {role: observe(base, getattr(base, role), role) for role in ("on", "off", "null")}
    small = simulate(base)

    def many(values):
        """Repeat each prompt's request 20 times: repeats of a prompt are one unit."""
        return tuple(
            replace(one, request=f"{one.request}.{copy}") for copy in range(20) for one in values
        )

    return CellObservations(
        evidence=small.evidence,
        **{role: many(values) for role, values in arms.items()},
        on_scores=many(small.on_scores),
        off_scores=many(small.off_scores),
        null_scores=many(small.null_scores),
        prompts={f"{name}.{copy}": ids for copy in range(20) for name, ids in
                 (small.prompts or {}).items()},
    )  # fmt: skip


def test_a_thousand_requests_of_256_tokens_take_well_under_two_seconds(large):
    assert len(large.on) == 1000
    started = time.process_time()
    result = judge_sweep([large], SETTINGS).results[0]
    assert time.process_time() - started < 1.5
    assert result.metrics["regret/tokens_scored.on"] == 256_000
    assert not any(finding.severity is Severity.FAULT for finding in result.findings)
