"""The task is put to every arm, once for each batch size."""

from __future__ import annotations

import dataclasses

import pytest
from probe_sweeps import matrix, plan, workload

from matrixrun.evidence.launches import Role
from matrixrun.evidence.requests import Task
from matrixrun.matrix import Matrix
from matrixrun.probes import get

TASK = Task(name="t", yaml="", files={}, metric="exact_match")


def asked(control: str, task: Task | None = TASK) -> Matrix:
    made = matrix(control=control, probes=["equality", "accuracy"], accuracy={"task": "t.yaml"})
    return made.located(dataclasses.replace(made.source, task=task))


def sent(made: Matrix):
    """The passes by launch."""
    swept = plan(made)
    probe = get("accuracy")
    return swept, {
        one.id: list(
            probe.passes(one, [c for c in swept.cells if c.id in one.cells], workload(), made)
        )
        for one in swept.launches
    }


@pytest.mark.parametrize("control", ["within-launch", "between-launches"])
def test_every_source_of_a_cell_is_sent_in_a_cache_namespace_of_its_own(control: str) -> None:
    swept, passes = sent(asked(control))
    known = {(name, one.id) for name, many in passes.items() for one in many}
    salts = [one.salt for many in passes.values() for one in many]
    assert len(set(salts)) == len(salts)
    for cell, pair in zip(swept.cells, swept.pairs, strict=True):
        sources = get("accuracy").sources(cell, pair)
        assert set(sources) == {"on", "off", "null"}
        assert {tuple(one) for many in sources.values() for one in many} <= known


def test_only_its_own_control_is_asked_twice() -> None:
    swept, passes = sent(asked("within-launch"))
    twice = {one.role for one in swept.launches if any("null" in p.id for p in passes[one.id])}
    assert twice == {Role.A}


def test_concurrency_is_the_batch_size_and_the_task_comes_along() -> None:
    _, passes = sent(asked("between-launches"))
    for one in (one for many in passes.values() for one in many):
        assert (one.task, one.requests, one.scores) == (TASK, (), ())
        assert one.id == f"accuracy.b{one.concurrency}"


def test_a_matrix_made_in_code_has_no_task_to_put() -> None:
    assert not any(sent(asked("between-launches", task=None))[1].values())
