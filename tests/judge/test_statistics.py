"""The tests and intervals against what is known of them."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy import stats

from matrixrun.judge import required_requests, statistics, visible_fault_rate
from matrixrun.judge.power import confidence_of


@pytest.mark.parametrize(
    ("rate", "confidence", "requests"),
    [(0.01, 0.95, 299), (0.1, 0.95, 29), (0.004, 0.95, 748), (0.01, 0.99, 459), (0.05, 0.99, 90)],
)
def test_the_requests_needed_are_the_published_ones(rate, confidence, requests):
    assert required_requests(rate, confidence) == requests
    assert (
        visible_fault_rate(requests, confidence)
        <= rate
        < visible_fault_rate(requests - 1, confidence)
    )


def test_a_judge_that_sees_half_of_the_faults_needs_twice_the_requests():
    assert required_requests(0.01, 0.95, 0.5) == pytest.approx(2 * 299, abs=2)


def test_866_requests_a_cell_hold_for_300_cells_at_once():
    assert confidence_of(866, 0.01, cells=300) >= 0.95 > confidence_of(864, 0.01, cells=300)


@given(st.floats(0.001, 1.0), st.floats(0.5, 0.999), st.floats(0.1, 1.0))
def test_the_number_needed_is_the_least_that_suffices(rate, confidence, sensitivity):
    needed = required_requests(rate, confidence, sensitivity)
    assert confidence_of(needed, rate, sensitivity) >= confidence - 1e-9
    if needed > 1:
        assert confidence_of(needed - 1, rate, sensitivity) < confidence


def test_impossible_claims_are_refused():
    with pytest.raises(ValueError, match="confidence"):
        required_requests(0.1, 1.0)


def test_sign_flips_are_exact_for_few_prompts():
    assert statistics.sign_flip_p_value(np.ones(7)) == 2.0**-7
    assert statistics.sign_flip_p_value(np.array([3.0, -1.0])) == 0.5
    assert statistics.sign_flip_p_value(np.zeros(9)) == 1.0


@pytest.mark.parametrize("seed", range(8))
def test_the_saddlepoint_agrees_with_the_enumeration(seed, monkeypatch):
    random = np.random.default_rng(seed)
    differences = random.exponential(size=16) * random.choice([1, 1, 1, -1], 16)
    exact = statistics.sign_flip_p_value(differences)
    monkeypatch.setattr(statistics, "MOST_COUNTED", 0)
    monkeypatch.setattr(statistics, "ALWAYS_COUNTED", 0)
    near = statistics.sign_flip_p_value(differences)
    assert near == pytest.approx(exact, rel=0.15)
    against = statistics.sign_flip_p_value(-differences)
    assert against == pytest.approx(1.0 - exact, abs=0.05)


def test_the_smallest_p_value_of_many_prompts_is_the_attainable_one():
    assert statistics.sign_flip_p_value(np.ones(40)) == 2.0**-40


def test_sign_flip_p_values_are_valid_under_the_null():
    random = np.random.default_rng(0)
    p_values = np.array([
        statistics.sign_flip_p_value(random.standard_t(2, size=size) * (random.random(size) < 0.5))
        for size in random.integers(5, 80, 4000)
    ])  # fmt: skip
    for level in (0.2, 0.05, 0.01):
        count = int((p_values <= level).sum())
        assert stats.binom.sf(count - 1, p_values.size, level) > 1e-3


def test_a_small_p_value_is_exact_however_many_prompts_there_are():
    """One small difference against sixteen large ones: its sign alone may be turned."""
    against = np.array([-0.0625, *[1.0] * 16])
    assert statistics.sign_flip_p_value(against) == 2 * 0.5**17
    assert statistics.sign_flip_p_value(np.ones(40)) == 0.5**40
    # Of 40 equal ones two are negative: so are at most two of a vector that reaches the sum.
    two = np.array([-1.0, -1.0, *[1.0] * 38])
    assert statistics.sign_flip_p_value(two) == pytest.approx((1 + 40 + 780) * 0.5**40)


def enumerated(differences: list[int]) -> float:
    """The share of all sign vectors that reach the sum, by trying each."""
    signs = itertools.product((-1, 1), repeat=len(differences))
    sums = [sum(s * d for s, d in zip(vector, differences, strict=True)) for vector in signs]
    return sum(one >= sum(differences) for one in sums) / len(sums)


@given(st.lists(st.integers(-4, 4).filter(bool), min_size=1, max_size=11))
def test_both_ways_of_counting_count_what_there_is(differences):
    """By halves, and by subsets of what may be turned."""
    expected = enumerated(differences)
    values = np.array(differences, dtype=float)
    assert statistics.sign_flip_p_value(values) == expected
    if sum(differences) > 0:
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(statistics, "ALWAYS_COUNTED", 0)
            assert statistics.sign_flip_p_value(values) == expected


@given(
    arrays.arrays(np.float64, st.integers(1, 24), elements=st.floats(-3, 3)),
    st.integers(0, 23),
    st.floats(0.001, 6),
)
@example(np.array([-0.5, *[0.25, -0.25] * 8, 0.0]), 17, 0.001)
@example(np.array([0.0, -1.0, *[0.5] * 8, *[-0.5] * 8]), 0, 0.1)
def test_one_larger_difference_never_raises_a_p_value_above_one_half_either(values, place, more):
    values = np.round(values, 3)
    larger = values.copy()
    larger[place % values.size] += more
    before, after = (statistics.sign_flip_p_value(one) for one in (values, larger))
    assert after <= before + 1e-12


@given(st.integers(27, 60), st.integers(0, 10_000))
@settings(deadline=None, max_examples=20)
def test_beyond_what_is_counted_both_sides_of_one_half_meet(size, seed):
    differences = np.random.default_rng(seed).exponential(size=size)
    differences[::2] *= -1.0
    for shift in np.linspace(-0.5, 0.5, 9):
        moved = (differences + shift, differences + shift + 0.05)
        one, other = (statistics.sign_flip_p_value(values) for values in moved)
        assert other <= one + 0.02
        assert one >= 0.5 or (differences + shift).sum() > 0


@example(np.array([-0.0625, *[1.0] * 16]), 2.0)
@example(np.array([-3.6e-17, 1.0, *[7.3e-141] * 17]), 1.0)
@given(arrays.arrays(np.float64, st.integers(1, 30), elements=st.floats(-5, 5)), st.floats(0.1, 5))
def test_a_larger_excess_never_has_a_larger_p_value(differences, more):
    larger = differences + more * (differences > 0)
    before, after = (statistics.sign_flip_p_value(x) for x in (differences, larger))
    # Two approximations may differ in their last digits where enumeration is too long.
    assert after <= before * (1.05 if differences.size > statistics.ALWAYS_COUNTED else 1.0) + 1e-9


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12))
def test_holm_lies_between_the_p_value_and_bonferroni_and_keeps_the_order(p_values):
    adjusted = statistics.holm(p_values)
    for p_value, corrected in zip(p_values, adjusted, strict=True):
        assert p_value <= corrected <= min(1.0, p_value * len(p_values)) + 1e-12
    order = np.argsort(p_values, kind="stable")
    assert list(np.array(adjusted)[order]) == sorted(adjusted)


def test_the_tail_of_an_exponential_is_found_and_extrapolated():
    values = np.random.default_rng(1).exponential(scale=0.1, size=40_000)
    tail = statistics.fit_tail(values, share=0.05, least=30)
    assert tail is not None
    assert tail.level(1e-7) == pytest.approx(0.1 * math.log(1e7), rel=0.35)


def test_a_tail_is_never_bounded():
    tail = statistics.fit_tail(np.linspace(0, 1, 5000), share=0.05, least=30)
    assert tail is not None
    assert tail.level(1e-6) > 1.1


def test_the_extrapolated_level_is_rarely_passed_by_gaussian_movements():
    random = np.random.default_rng(2)
    passed = 0
    for _ in range(100):
        values = np.abs(random.standard_normal(3000))
        tail = statistics.fit_tail(values, share=0.05, least=30)
        assert tail is not None
        passed += bool((np.abs(random.standard_normal(3000)) > tail.level(0.01 / 3000)).any())
    assert passed <= 5


def test_too_small_a_tail_is_not_fitted():
    assert statistics.fit_tail(np.arange(100.0), share=0.05, least=30) is None


def test_intervals_grow_with_what_requests_have_in_common():
    random = np.random.default_rng(3)
    steps = np.full(200, 20.0)
    alone = random.binomial(20, 0.6, 200).astype(float)
    together = 20.0 * (random.random(200) < 0.6)
    narrow = statistics.clustered_ratio(alone, steps, level=0.95)
    wide = statistics.clustered_ratio(together, steps, level=0.95)
    assert narrow is not None
    assert wide is not None
    assert wide.error > 3 * narrow.error
    assert narrow.low < 0.6 < narrow.high
    assert statistics.clustered_ratio(np.zeros(3), np.zeros(3), level=0.95) is None


@pytest.mark.parametrize("taken", [0, 7, 30])
def test_a_rates_interval_is_no_narrower_than_that_of_independent_trials(taken: int):
    """Though all clusters are alike, as they are where nothing was taken, or everything."""
    offered = np.full(10, 3.0)
    found = statistics.rate(np.full(10, taken / 10.0), offered, level=0.99)
    exact = stats.binomtest(taken, 30).proportion_ci(0.99)
    assert found is not None
    assert found.value == pytest.approx(taken / 30)
    assert (found.low, found.high) == pytest.approx((exact.low, exact.high))
