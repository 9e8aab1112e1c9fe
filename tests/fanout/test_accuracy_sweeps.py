"""A task in a sweep: its answers are kept with the cell, judged with the sweep, and judged again
from the folder. The engine and the harness are doubles here."""

from __future__ import annotations

import asyncio
import dataclasses
from pathlib import Path

import pytest
from doubles import launches, matrix, new_store, plan, sweep

from matrixrun.evidence.launches import Role
from matrixrun.evidence.requests import Observation, Pass, Task
from matrixrun.evidence.verdicts import CellResult, Severity, Verdict
from matrixrun.fanout import sweep as driver
from matrixrun.fanout.actor import PassAnswer
from matrixrun.fanout.cluster import Node
from matrixrun.judge import settings_for
from matrixrun.matrix.schema import AccuracySpec
from matrixrun.record import Store
from matrixrun.record.replay import judge_store

TASK = Task(name="sums", yaml="", files={}, metric="exact_match")
DOCUMENTS = 40


def results(
    folder: Path, monkeypatch: pytest.MonkeyPatch, *, lost: int = 0, error: str | None = None
) -> tuple[Store, tuple[CellResult, ...]]:
    """A sweep whose on arms lose the first so many documents, or cannot be put the task."""
    plain = launches({}, [])

    class Asked(plain):  # type: ignore[misc, valid-type]
        async def run(self, pass_: Pass) -> PassAnswer:
            if pass_.task is None:
                return await super().run(pass_)
            on = self.launch.role is Role.ON
            if on and error is not None:
                return answer([Observation(request="a", prompt="a", category="t", error=error)])
            wrong = lost if on else 0
            names = [f"accuracy.{number}" for number in range(DOCUMENTS)]
            return answer(
                [
                    Observation(request=name, prompt=name, category="sums", right=n >= wrong)
                    for n, name in enumerate(names)
                ]
            )

    monkeypatch.setattr(driver, "RunningLaunch", Asked)
    monkeypatch.setattr(driver.cluster, "nodes", lambda: [Node("n", 8, 0, None)])
    monkeypatch.setattr(driver.cluster, "free", lambda nodes, _: nodes)
    store = new_store(folder)
    made = sweep(store, plan())
    asked = matrix().model_copy(
        update={
            "probes": ("equality", "acceptance", "accuracy"),
            "accuracy": AccuracySpec(task="sums.yaml"),
        }
    )
    made.matrix = asked.located(dataclasses.replace(asked.source, task=TASK))
    made.__post_init__()
    asyncio.run(made.run())
    return store, judge_store(store, settings_for(matrix()))


def answer(seen: list[Observation]) -> PassAnswer:
    return PassAnswer(tuple(seen), (), {}, {}, 1.0)


def test_arms_that_answer_alike_pass_and_their_accuracy_is_a_metric(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, found = results(tmp_path / "out", monkeypatch)
    assert {one.verdict for one in found} == {Verdict.PASS}
    for one in found:
        assert one.metrics["accuracy/right.on"] == one.metrics["accuracy/right.off"] == 1.0
    (evidence, *_) = store.evidences()
    record = evidence.all_records()["accuracy.on.0"]
    assert [one.right for one in store.read_observations(record)] == [True] * DOCUMENTS


def test_lost_documents_fail_the_cell_and_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, found = results(tmp_path / "out", monkeypatch, lost=20)
    assert {one.verdict for one in found} == {Verdict.FAIL}
    for one in found:
        (fault,) = [finding for finding in one.findings if finding.severity is Severity.FAULT]
        assert fault.kind == "accuracy"
        assert "20 lost, 0 gained" in fault.text


def test_a_task_that_could_not_be_put_is_inconclusive_in_its_words(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, found = results(tmp_path / "out", monkeypatch, error="lm-eval ended with exit 1: no")
    assert {one.verdict for one in found} == {Verdict.INCONCLUSIVE}
    assert all("lm-eval ended with exit 1: no" in one.reason for one in found)
