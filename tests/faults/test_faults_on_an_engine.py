"""A part of the bench on a real engine: one off launch and two on launches, one seed of each."""

from __future__ import annotations

from pathlib import Path

import pytest

from matrixrun.faultbench import BenchOptions, BenchResult, run_bench
from matrixrun.faultbench.table import Line, Outcome

pytestmark = pytest.mark.engine

FAULTS = {
    "let-through-50": "unexplained-token",
    "drift-large": "drift",
    "drafts-shifted": "inactive",
    "first-only": "acceptance-by-position",
    "ngram-off-in-a-third": "predicted-acceptance",
    "unreduced-residual": "distribution",
    "draftless-history": "misprocessed-token",
    "grammar-skipped-in-drafts": "forbidden-text",
    "warm-drafts-wrong": "repeated-acceptance",
    "stop-ignored": "past-the-end",
    "kept-rejected": "unexplained-token",
    "stale-row": "unexplained-token",
}
HARMLESS = ("healthy", "noise-0.01", "healthy-samples", "healthy-surface")


@pytest.fixture(scope="module")
def bench(cache: Path) -> BenchResult:
    options = BenchOptions(only=(*FAULTS, *HARMLESS), seeds=1)
    return run_bench(options, cache=cache, say=print)


def line(bench: BenchResult, name: str) -> Line:
    return next(one for one in bench.lines if one.specimen == name)


@pytest.mark.parametrize(("name", "finding"), FAULTS.items())
def test_the_fault_is_caught_by_what_it_breaks(bench: BenchResult, name: str, finding: str):
    found = line(bench, name)
    assert found.struck > 0
    assert (found.outcome, found.finding) == (Outcome.CAUGHT, finding)


@pytest.mark.parametrize("name", HARMLESS)
def test_what_is_harmless_is_not_accused(bench: BenchResult, name: str):
    trial = next(one for one in bench.trials if one.specimen == name)
    assert trial.verdict == "PASS", trial.reason


def test_the_bench_is_good_as_a_whole(bench: BenchResult):
    assert bench.good
