"""A cell of `matrices/state.yaml` on a real engine: what happened is proven, and nothing is left
behind. Four launches."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from matrixrun.evidence.verdicts import CellResult, Verdict
from matrixrun.record import Store

pytestmark = pytest.mark.engine

STATE = Path(__file__).parents[2] / "matrices" / "state.yaml"
HAPPENED = {
    "conversation.turns_reused",
    "conversation.end.natural",
    "conversation.end.stop_token",
    "conversation.end.stop_string",
    "conversation.end.length",
    "pressure.draft_length_prompts",
    "pressure.border_prompts",
    "pressure.longest_context",
    "pressure.identical_requests",
    "pressure.prefixes_reused",
    "pressure.prefixes_evicted",
    "pressure.preemptions",
    "pressure.requests_dropped",
    "rollback.rejections.position.0",
    "rollback.rejections.position.1",
    "rollback.rejections.position.2",
    "rollback.rejections.at_border",
    "rollback.rejections.reused_prefix",
    "rollback.ended_inside_draft",
    "rollback.preemptions",
    "rollback.rejections.after_preemption",
    "ledger.steps.verified",
    "ledger.ends.stop_token",
    "ledger.ends.stop_string",
    "ledger.ends.length",
    "ledger.preemptions",
    "ledger.dropped",
}


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> tuple[CellResult, ...]:
    folder = tmp_path_factory.mktemp("state")
    command = [sys.executable, "-m", "matrixrun", "run", str(STATE), "--no-tracking"]
    command += ["--only", "*ngram*", "--results", str(folder / "out"), "--deadline", "25"]
    subprocess.run(command, cwd=folder, check=False, timeout=1700)
    return Store.open(folder / "out").results()


def test_it_passes(results: tuple[CellResult, ...]) -> None:
    assert [one.verdict for one in results] == [Verdict.PASS], [one.reason for one in results]


def test_every_transition_happened(results: tuple[CellResult, ...]) -> None:
    for result in results:
        assert not {name for name in HAPPENED if result.coverage.get(name, 0) == 0}


def test_the_arms_reuse_alike_and_leave_nothing_behind(results: tuple[CellResult, ...]) -> None:
    for result in results:
        again = {
            arm: result.metrics[f"conversation/prefilled_again.{arm}"] for arm in ("on", "off")
        }
        turns = result.coverage["conversation.turns"]
        block = result.metrics["conversation/granularity"]
        assert again["on"] - again["off"] <= turns * block
        for name in ("running", "waiting", "usage"):
            assert result.metrics[f"pressure/left_{name}.on"] <= 1e-6
