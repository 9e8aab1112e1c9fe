"""Intervals of speed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from made_sweeps import HEALTHY, Arm, make_cell, make_store

from matrixrun.signoff.estimates import mean_estimate, median_estimate
from matrixrun.signoff.page import build_page


def test_a_median_lies_within_order_statistics_that_cover_it() -> None:
    found = median_estimate(np.arange(1.0, 41.0))

    assert found is not None
    assert (found.low, found.value, found.high) == (14.0, 20.5, 27.0)


def test_the_interval_of_a_median_covers_as_often_as_it_says() -> None:
    random = np.random.default_rng(1)
    samples = random.exponential(size=(2000, 25))
    found = [median_estimate(sample) for sample in samples]

    covered = np.mean([one.low <= np.log(2) <= one.high for one in found if one is not None])

    assert covered >= 0.95


def test_few_values_have_no_interval() -> None:
    assert median_estimate(np.array([1.0, 2.0])).low is None  # type: ignore[union-attr]
    assert mean_estimate(np.array([1.0])).low is None  # type: ignore[union-attr]
    assert mean_estimate(np.array([np.nan])) is None


@pytest.mark.parametrize("slow", [0.5, 2.0])
def test_speedup_is_off_over_on_with_the_truth_inside(tmp_path: Path, slow: float) -> None:
    cell = make_cell()
    page = build_page(make_store(tmp_path / "sweep", [(cell, Arm(slow=slow))]))

    speedup = page.rows[0].speed.speedup

    assert speedup is not None
    assert speedup.low <= slow <= speedup.high
    assert speedup.value == pytest.approx(slow, rel=0.05)


def test_both_arms_have_first_token_output_token_and_throughput(tmp_path: Path) -> None:
    page = build_page(make_store(tmp_path / "sweep", [(make_cell(), HEALTHY)]))

    for arm in (page.rows[0].speed.on, page.rows[0].speed.off):
        assert arm.first_token_seconds is not None
        assert arm.seconds_per_output_token is not None
        assert arm.tokens_per_second is not None
