"""The driver: one launch never costs another its cells; nothing is lost or counted twice."""

from __future__ import annotations

import asyncio
from pathlib import Path
from types import SimpleNamespace

import pytest
from doubles import Trouble, launches, matrix, new_store, plan, sweep
from ray.exceptions import OutOfMemoryError

from matrixrun.evidence.errors import StoreError
from matrixrun.evidence.launches import LaunchEnd, LaunchOutcome
from matrixrun.evidence.verdicts import Verdict
from matrixrun.fanout import sweep as driver
from matrixrun.fanout.gang import RunningLaunch
from matrixrun.fanout.waiting import LostError
from matrixrun.judge import settings_for
from matrixrun.plan import Node
from matrixrun.record import Store
from matrixrun.record.replay import judge_store

NGRAM = "on.vllm.dense.ngram-k2"
SUFFIX = "on.vllm.dense.suffix-k2"
SCORER = "A.vllm.dense"


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch):
    """Run a part of the plan into a store; returns the launches started, in order."""

    def run_part(store: Store, trouble: Trouble | None = None, only: tuple[str, ...] = ()):
        started: list[str] = []
        monkeypatch.setattr(driver, "RunningLaunch", launches(trouble or {}, started))
        monkeypatch.setattr(driver.cluster, "nodes", lambda: [Node("n", 8, 0, None)])
        monkeypatch.setattr(driver.cluster, "free", lambda nodes, _: nodes)
        asyncio.run(sweep(store, plan(only)).run())
        return started

    return run_part


def verdicts(store: Store) -> dict[str, Verdict]:
    results = judge_store(store, settings_for(matrix()))
    return {result.cell.id: result.verdict for result in results}


def of(method: str, found: dict[str, Verdict]) -> set[Verdict]:
    return {verdict for cell, verdict in found.items() if method in cell}


def test_healthy_launches_give_every_cell_its_evidence_and_a_pass(run, tmp_path: Path) -> None:
    store = new_store(tmp_path / "out")
    started = run(store)
    assert sorted(started) == [SCORER, NGRAM, SUFFIX]
    assert started[-1] == SCORER
    assert set(verdicts(store).values()) == {Verdict.PASS}
    assert len(verdicts(store)) == 4


@pytest.mark.parametrize(
    ("trouble", "expected"),
    [
        (LaunchEnd.DIED, Verdict.ERROR),
        (LaunchEnd.REFUSED, Verdict.REFUSED),
        (LaunchEnd.HUNG, Verdict.ERROR),
        (LaunchEnd.UNBUILT, Verdict.ERROR),
        (ValueError("a fault of ours"), Verdict.ERROR),
    ],
)
def test_what_ends_one_launch_leaves_the_others_cells_alone(
    run, tmp_path: Path, trouble: LaunchEnd | Exception, expected: Verdict
) -> None:
    store = new_store(tmp_path / "out")
    run(store, {NGRAM: [trouble]})
    found = verdicts(store)
    assert of("ngram", found) == {expected}
    assert of("suffix", found) == {Verdict.PASS}


def test_a_lost_launch_is_tried_again_and_counted_once(run, tmp_path: Path) -> None:
    store = new_store(tmp_path / "out")
    started = run(store, {NGRAM: [LostError("its node went away")], SCORER: [LostError("again")]})
    assert started.count(NGRAM) == started.count(SCORER) == 2
    assert set(verdicts(store).values()) == {Verdict.PASS}
    assert store.outcome(NGRAM).attempts == 2
    assert len(store.read_observations(store.evidences()[0].records["on"])) == 12


def test_an_engine_that_was_killed_from_outside_is_tried_again(run, tmp_path: Path) -> None:
    store = new_store(tmp_path / "out")
    started = run(store, {NGRAM: [LaunchEnd.LOST], SCORER: [LaunchEnd.LOST]})
    assert started.count(NGRAM) == started.count(SCORER) == 2
    assert set(verdicts(store).values()) == {Verdict.PASS}


def test_a_launch_that_is_lost_every_time_is_an_error_of_its_cells(run, tmp_path: Path) -> None:
    store = new_store(tmp_path / "out")
    run(store, {NGRAM: [LostError("gone")] * 9})
    assert of("ngram", verdicts(store)) == {Verdict.ERROR}
    assert "gone" in store.outcome(NGRAM).message
    assert of("suffix", verdicts(store)) == {Verdict.PASS}


def test_an_off_launch_that_dies_is_an_error_of_all_its_cells(run, tmp_path: Path) -> None:
    store = new_store(tmp_path / "out")
    run(store, {SCORER: [LaunchEnd.DIED]})
    assert set(verdicts(store).values()) == {Verdict.ERROR}
    assert len(verdicts(store)) == 4


def test_a_model_whose_prompts_could_not_be_tokenized_costs_its_own_cells_and_no_launch(
    run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = driver.Sweep.__init__

    def without(self, *args, **kwargs):
        made(self, *args, **kwargs)
        self.unstaged = {"dense": "no engine could be built"}
        self.workloads = {}

    monkeypatch.setattr(driver.Sweep, "__init__", without)
    store = new_store(tmp_path / "out")
    assert run(store) == []
    assert set(verdicts(store).values()) == {Verdict.ERROR}
    assert len(verdicts(store)) == 4
    assert "no engine could be built" in store.outcome(NGRAM).message


def test_no_off_launch_is_started_for_pairs_that_cannot_be_judged(run, tmp_path: Path) -> None:
    store = new_store(tmp_path / "out")
    started = run(store, {NGRAM: [LaunchEnd.REFUSED], SUFFIX: [LaunchEnd.REFUSED]})
    assert SCORER not in started
    assert set(verdicts(store).values()) == {Verdict.REFUSED}
    assert len(verdicts(store)) == 4


def test_running_the_rest_later_keeps_what_was_finished(run, tmp_path: Path) -> None:
    """Launch A serves both methods: running it again must not touch the first one's evidence."""
    store = new_store(tmp_path / "out")
    run(store, only=("*ngram*",))
    first = {e.cell.id: e for e in store.evidences()}
    assert set(first) == {"vllm.dense.ngram-k2.b1", "vllm.dense.ngram-k2.b4"}
    again = Store.open(tmp_path / "out")
    run(again, only=("*suffix*",))
    assert set(verdicts(again).values()) == {Verdict.PASS}
    assert len(verdicts(again)) == 4
    for cell, evidence in first.items():
        assert again.evidence(cell) == evidence
        assert again.finished(evidence.cell.fingerprint) == evidence


@pytest.mark.parametrize("lost", [True, False])
def test_a_node_that_is_lost_while_checkpoints_are_hashed_costs_no_pass(
    lost: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[str] = []
    launch = launches({}, started)
    if lost:

        async def gone(_: object) -> dict[str, str]:
            raise LostError("a node of its gang was lost")

        monkeypatch.setattr(launch, "identities", gone)
    monkeypatch.setattr(driver, "RunningLaunch", launch)
    monkeypatch.setattr(driver.cluster, "nodes", lambda: [Node("n", 8, 0, None)])
    monkeypatch.setattr(driver.cluster, "free", lambda nodes, _: nodes)
    store = new_store(tmp_path / "out")
    asyncio.run(sweep(store, plan()).run())
    assert len(started) == len(set(started))  # none is run again
    assert set(verdicts(store).values()) == {Verdict.PASS}
    outcomes = [one for evidence in store.evidences() for one in evidence.outcomes.values()]
    known = {} if lost else {"target": "5" * 64}
    assert [one.checkpoints for one in outcomes] == [known] * len(outcomes)


def test_a_results_folder_that_cannot_be_written_stops_the_sweep(
    run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = new_store(tmp_path / "out")

    def full(*_: object, **__: object) -> None:
        raise StoreError("no space left")

    monkeypatch.setattr(store, "write_observations", full)
    with pytest.raises(StoreError):
        run(store)


@pytest.mark.parametrize("first", ["head", "follower"])
@pytest.mark.parametrize("end", [LaunchEnd.LOST, LaunchEnd.DIED])
def test_a_head_that_dies_of_a_follower_that_was_killed_is_lost(
    first: str, end: LaunchEnd, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("matrixrun.fanout.gang.KILLED_SECONDS", 0.5)
    died = LaunchOutcome(launch="on", fingerprint="f", end=LaunchEnd.DIED, message="NCCL error")

    async def head() -> LaunchOutcome:
        await asyncio.sleep(0.0 if first == "head" else 0.1)
        return died

    async def ended() -> tuple[LaunchEnd, str, str]:
        await asyncio.sleep(0.1 if first == "head" else 0.0)
        return end, "its process group on node 1 was killed", ""

    async def abandon(how: LaunchEnd, why: str, _tail: str) -> LaunchOutcome:
        return LaunchOutcome(launch="on", fingerprint="f", end=how, message=why)

    async def run() -> LaunchOutcome:
        running = RunningLaunch(plan().launches[0], None)  # type: ignore[arg-type]
        running._followers = SimpleNamespace(ended=ended)  # type: ignore[assignment]
        running._actor = SimpleNamespace(abandon=SimpleNamespace(remote=abandon))
        return await running._with_followers(asyncio.ensure_future(head()))

    if end is LaunchEnd.DIED:
        assert asyncio.run(run()) is died
    elif first == "head":
        with pytest.raises(LostError, match="node 1 was killed"):
            asyncio.run(run())
    else:
        assert asyncio.run(run()).end is LaunchEnd.LOST


def test_what_ray_raises_for_a_worker_it_killed_counts_as_a_lost_attempt() -> None:
    async def killed() -> None:
        raise OutOfMemoryError("node low on memory")

    running = RunningLaunch(plan().launches[0], None)  # type: ignore[arg-type]
    running._actor = SimpleNamespace(start=SimpleNamespace(remote=killed))
    with pytest.raises(LostError, match="low on memory"):
        asyncio.run(running.start())
