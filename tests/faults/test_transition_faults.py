"""Faults that only the probes of state meet, in a real engine: one off launch, one that speculates,
one with planned drafts, one with a ledger; one seed of each. `pytest -m long tests/faults`."""

from __future__ import annotations

from pathlib import Path

import pytest

from matrixrun.faultbench import BenchOptions, BenchResult, run_bench
from matrixrun.faultbench.catalogue import SPECIMENS
from matrixrun.faultbench.specimen import STATE_PROBES
from matrixrun.faultbench.table import Line, Outcome

pytestmark = [pytest.mark.engine, pytest.mark.long]

FAULTS = {
    "damaged-on-resume": "unexplained-token [pressure]",
    "damaged-bystander": "unexplained-token [pressure]",
    "damaged-at-border": "unexplained-token [rollback]",
    "kept-after-preemption": "unexplained-token [rollback]",
    "wiped-end": "unexplained-token [conversation]",
    "found-after-eviction": "unexplained-token",
    "kept-past-the-end": "ledger",
    "late-rollback": "ledger",
    "leaked-step": "ledger",
    "answers-uncached": "reuse",
    "leaked-block": "leak",
    "short-prefill": "unexplained-token [pressure]",
    "chunk-lost": "unexplained-token",
    "long-context-hole": "unexplained-token [pressure]",
    "hits-lost-in-turns": "reuse",
    "dies-on-resume": "died",
    "first-hit-lost": "reuse",
    "stop-string-missed": "past-the-end [conversation]",
}
HARMLESS = tuple(f"healthy-{probe}" for probe in STATE_PROBES)


@pytest.fixture(scope="module")
def bench(cache: Path) -> BenchResult:
    options = BenchOptions(only=(*FAULTS, *HARMLESS), seeds=1)
    return run_bench(options, cache=cache, say=print)


def line(bench: BenchResult, name: str) -> Line:
    return next(one for one in bench.lines if one.specimen == name)


def test_each_fault_of_the_bench_is_among_these():
    known = {one.name for one in SPECIMENS if one.of_state and not one.harmless}
    assert FAULTS.keys() == known


@pytest.mark.parametrize(("name", "finding"), FAULTS.items())
def test_the_fault_is_caught_by_the_probe_that_meets_it(
    bench: BenchResult, name: str, finding: str
):
    found = line(bench, name)
    assert found.struck > 0
    # On so small a cache `equality` may meet it as well, and then it is found there first.
    assert (found.outcome, found.finding.partition(" ")[0]) == (
        Outcome.CAUGHT,
        finding.partition(" ")[0],
    )


@pytest.mark.parametrize("name", HARMLESS)
def test_a_healthy_engine_passes_with_every_transition_that_was_asked_for(
    bench: BenchResult, name: str
):
    trial = next(one for one in bench.trials if one.specimen == name)
    assert trial.verdict == "PASS", trial.reason
