"""The state probes through the driver: what is sent to which launch, kept and judged."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from doubles import launches, matrix, new_store, sweep

from matrixrun.evidence.verdicts import Severity, Verdict
from matrixrun.fanout import sweep as driver
from matrixrun.fanout.cluster import Node
from matrixrun.judge import settings_for
from matrixrun.matrix import expand
from matrixrun.plan import build
from matrixrun.record.replay import Reader, judge_store
from matrixrun.signoff.detail import detail_of

PROBES = ("equality", "acceptance", "conversation", "rollback", "pressure")


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory):
    """The results of a sweep of doubles with every state probe."""
    folder: Path = tmp_path_factory.mktemp("state")
    small = matrix()
    speculation = {"method": "ngram", "num_speculative_tokens": 2}
    grid = {**small.grid, "batch_size": 4, "speculation": speculation}
    made = small.model_copy(update={"probes": PROBES, "grid": grid})
    planned = build(made, expand(made, file="double.yaml"))
    kept = new_store(folder / "out")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "RunningLaunch", launches({}, []))
        patch.setattr(driver.cluster, "nodes", lambda: [Node("n", 8, 0, None)])
        patch.setattr(driver.cluster, "free", lambda nodes, _: nodes)
        running = sweep(kept, planned)
        running.matrix = made
        running.__post_init__()
        asyncio.run(running.run())
    return kept


def test_every_cell_holds_what_every_probe_saw(store) -> None:
    for evidence in store.evidences():
        cell = Reader(store).cell(evidence)
        seen = {probe.kind: probe for probe in cell.probes}
        assert set(seen) == {"conversation", "rollback", "pressure"}
        for probe in seen.values():
            assert all(probe.answers(arm) for arm in ("on", "off", "null"))
            assert all(probe.scores[arm] for arm in ("on", "off", "null"))


def test_the_extra_launch_answers_the_rollback_probe_and_no_other(store) -> None:
    for evidence in store.evidences():
        assert {"on", "A", "forced"} == set(evidence.outcomes)
        for probe in Reader(store).cell(evidence).probes:
            role = "forced" if probe.kind == "rollback" else "on"
            launch = evidence.outcomes[role].launch
            assert {record.launch for record in probe.records["on"]} == {launch}


def test_answers_alike_are_no_fault_and_what_never_happened_is_told(store) -> None:
    for result in judge_store(store, settings_for(matrix())):
        assert result.verdict is Verdict.INCONCLUSIVE
        assert not [one for one in result.findings if one.severity is Severity.FAULT]
        # The double reports no cached tokens, drops nothing and stops at no token.
        assert "conversation: no turn followed another" in result.reason
        assert "a request dropped in flight" in result.reason
        assert result.metrics["pressure.same/exact_match"] == 1.0


def test_the_report_shows_conversations_turn_by_turn(store) -> None:
    settings = settings_for(matrix())
    results = {result.cell.id: result for result in judge_store(store, settings)}
    for evidence in store.evidences():
        cell = Reader(store).cell(evidence)
        detail = detail_of(cell, results[evidence.cell.id], settings, 1)
        assert [turn.turn for turn in detail.turns] == [1, 2, 3, 4]
        assert {turn.requests for turn in detail.turns} == {6}
        assert detail.coverage["pressure.border_prompts"] > 0
