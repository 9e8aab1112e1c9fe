"""Probes whose passes build on what was answered: what is sent, kept, scored and judged."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from doubles import launches, matrix, new_store, plan, sweep

from matrixrun.evidence.cells import Cell
from matrixrun.evidence.launches import Launch
from matrixrun.evidence.requests import Pass, Request
from matrixrun.evidence.verdicts import Verdict
from matrixrun.fanout import sweep as driver
from matrixrun.fanout.cluster import Node
from matrixrun.judge import settings_for
from matrixrun.matrix import Matrix
from matrixrun.plan import PlannedPair
from matrixrun.probes import Data, Passes, Source, registry
from matrixrun.record.replay import Reader, judge_store
from matrixrun.workloads import Workload


class Echoing:
    """A double of a probe: its second pass asks with what the first was answered."""

    kind = "echoing"
    rides_on: str | None = None
    compared = True
    needs = frozenset({Data.TOKENS, Data.SCORES})

    def passes(
        self, launch: Launch, cells: Sequence[Cell], workload: Workload, matrix: Matrix
    ) -> Passes:
        first = yield self._pass("first", workload.prompts[0].token_ids)
        yield self._pass("second", tuple(first.observations[0].token_ids.tolist()))

    def _pass(self, name: str, token_ids: tuple[int, ...]) -> Pass:
        request = Request(
            id=f"echoing.{name}", prompt="p-0", category="c", token_ids=token_ids, max_tokens=16
        )
        return Pass(id=f"echoing.{name}", requests=(request,), salt="s")

    def sources(self, cell: Cell, pair: PlannedPair) -> dict[str, tuple[Source, ...]]:
        arms = {"on": pair.on, "off": pair.off, "null": pair.null or pair.off}
        names = ("echoing.first", "echoing.second")
        return {arm: tuple(Source(launch, name) for name in names) for arm, launch in arms.items()}


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    """The results of a sweep with the probe."""
    monkeypatch.setitem(registry.PROBES, "echoing", Echoing())
    monkeypatch.setattr(driver, "RunningLaunch", launches({}, []))
    monkeypatch.setattr(driver.cluster, "nodes", lambda: [Node("n", 8, 0, None)])
    monkeypatch.setattr(driver.cluster, "free", lambda nodes, _: nodes)
    store = new_store(tmp_path / "out")
    made = sweep(store, plan())
    made.matrix = matrix().model_copy(update={"probes": ("equality", "acceptance", "echoing")})
    made.__post_init__()
    asyncio.run(made.run())
    return store


def test_a_pass_is_built_on_the_answers_before_it_and_its_prompt_is_kept(store) -> None:
    (evidence, *_) = store.evidences()
    (probe,) = Reader(store).cell(evidence).probes
    for arm in ("on", "off", "null"):
        first, second = probe.answers(arm)
        assert first.sent.size == 0  # the workload's own prompt
        assert second.sent.tolist() == first.token_ids.tolist()
        assert len(probe.scores[arm]) == 2


def test_what_a_probe_saw_counts_in_the_verdict_and_outlives_the_sweep(store) -> None:
    results = judge_store(store, settings_for(matrix()))
    assert {result.verdict for result in results} == {Verdict.PASS}
    for result in results:
        assert result.metrics["echoing.same/exact_match"] == 1.0


def test_a_cells_files_are_all_known_to_it(store) -> None:
    (evidence, *_) = store.evidences()
    records = evidence.all_records()
    assert {"on", "on.scores", "echoing.on.1", "echoing.on.1.scores"} <= set(records)
    assert all((store.root / record.path).exists() for record in records.values())
