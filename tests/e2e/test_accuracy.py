"""A task put by lm-evaluation-harness to real servers of a real small model: healthy arms answer
alike, and an on arm whose rotary frequencies are another's loses what they answer.

Four launches side by side. The first run installs the harness (760 MB)."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from matrixrun import plan as planning
from matrixrun.evidence.cells import Cell
from matrixrun.evidence.launches import LaunchEnd, Role
from matrixrun.evidence.requests import Observation
from matrixrun.evidence.verdicts import CellEvidence
from matrixrun.fanout.actor import LaunchBody, LaunchSettings, PassAnswer
from matrixrun.judge import JudgeSettings, ProbeObserved
from matrixrun.judge.witnesses import ProbeExamination
from matrixrun.judge.witnesses.accuracy import examine_accuracy
from matrixrun.matrix import Matrix, expand, load
from matrixrun.plan import Plan
from matrixrun.probes import get
from matrixrun.record.cache import cache_folder
from matrixrun.workloads import Workload

pytestmark = [pytest.mark.engine, pytest.mark.timeout(2700)]

FOLDER = Path(__file__).with_name("accuracy_task")
DAMAGE = 'on: {args: ["--rope-freq-scale", "0.25"]}, '
DOCUMENTS = 36
Seen = dict[str, tuple[Observation, ...]]


def planned(folder: Path, name: str, damage: str) -> tuple[Matrix, Plan]:
    text = (FOLDER / "matrix.yaml").read_text()
    task = FOLDER / "word-pairs.yaml"
    text = text.replace("word-pairs.yaml", f"{task}, limit: {DOCUMENTS}")
    text = text.replace("control: within-launch", "control: between-launches")
    text = text.replace("{kind: llamacpp, ", f"{{kind: llamacpp, {damage}")
    file = folder / f"{name}.yaml"
    file.write_text(text)
    matrix = load(file)
    return matrix, planning.build(matrix, expand(matrix, file=str(file)))


def answers(matrix: Matrix, plan: Plan, role: Role) -> tuple[Observation, ...]:
    """What a launch of its own answers to the task."""
    launch = next(one for one in plan.launches if one.role is role)
    empty = Workload(prompts=(), sha256="")
    (asked,) = list(get("accuracy").passes(launch, plan.cells, empty, matrix))
    settings = LaunchSettings(cache_folder(), 600.0, 300.0, 1800.0, 900.0)
    body = LaunchBody(launch, settings)
    try:
        outcome = body.start()
        assert outcome.end is LaunchEnd.SERVED, outcome
        answer = body.run(asked)
        assert isinstance(answer, PassAnswer), answer
        return answer.observations
    finally:
        body.finish()


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    folder = tmp_path_factory.mktemp("accuracy")
    healthy, damaged = planned(folder, "healthy", ""), planned(folder, "damaged", DAMAGE)
    arms = {
        "on": (*healthy, Role.ON),
        "off": (*healthy, Role.A),
        "null": (*healthy, Role.B),
        "damaged": (*damaged, Role.ON),
    }
    with ThreadPoolExecutor(len(arms)) as pool:
        found = {name: pool.submit(answers, *arm) for name, arm in arms.items()}
        yield {name: one.result() for name, one in found.items()}


def told(seen: Seen, on: str):
    arms = {"on": seen[on], "off": seen["off"], "null": seen["null"]}
    observed = ProbeObserved(
        kind="accuracy", compared=False, observations=arms, scores={}, records={}
    )
    cell = Cell(id="c", axes={}, fingerprint="f")
    evidence = CellEvidence(
        cell=cell, outcomes={}, records={}, workload_sha256="", settings_sha256="", program="0"
    )
    return examine_accuracy(ProbeExamination(evidence, JudgeSettings(), observed, None))


def test_every_document_is_answered_and_none_is_told_as_an_error(seen: Seen) -> None:
    for arm, many in seen.items():
        assert len(many) == DOCUMENTS, arm
        assert {one.error for one in many} == {None}
        assert all(one.text is not None and one.right is not None for one in many)


def test_healthy_arms_lose_nothing(seen: Seen) -> None:
    found = told(seen, "on")
    assert found.objections == ()
    assert 0.2 < found.metrics["accuracy/right.off"] < 0.95
    (rate,) = found.rates
    assert rate.p_value > 0.05


def test_a_damaged_on_arm_loses_documents(seen: Seen) -> None:
    (rate,) = told(seen, "damaged").rates
    assert rate.p_value < 0.001
    assert len(rate.finding.numbers["lost_documents"]) >= 10
