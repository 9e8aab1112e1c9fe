"""Gangs on a real Ray cluster of several nodes on this machine: raylets and actors are real,
accelerators are declared, and the engine is a double (`standin.py`)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import psutil
import pytest
from doubles import plan

from matrixrun.evidence.launches import Command, Gang, Launch, LaunchEnd, Recipe
from matrixrun.evidence.requests import Pass, Request, Sampling
from matrixrun.fanout import cluster
from matrixrun.fanout.actor import LaunchSettings, PassAnswer
from matrixrun.fanout.gang import ImpossibleError, RunningLaunch
from matrixrun.fanout.waiting import LostError
from matrixrun.plan import Placement

STANDIN = str(Path(__file__).with_name("standin.py"))


@pytest.fixture(scope="module")
def on_ray() -> Iterator[Any]:
    """A cluster: a head without accelerators and two nodes of eight."""
    import ray
    from ray_nodes import PatientCluster

    settings = {
        "RAY_AUTH_MODE": "disabled",
        "PYTHONPATH": cluster.PACKAGE_PARENT,
    }
    before = {name: os.environ.get(name) for name in settings}
    os.environ |= settings
    made = PatientCluster()
    made.add_node(num_cpus=2, num_gpus=0, include_dashboard=False)
    for _ in range(2):
        made.add_node(num_cpus=8, num_gpus=8, resources={"accelerator_type:H100": 8})
    try:
        ray.init(address=made.address, logging_level="ERROR", log_to_driver=False)
        yield made
    finally:
        ray.shutdown()
        made.shutdown()
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


def launch(gang: Gang, *last: str) -> Launch:
    """A launch of the stand-in over the gang's nodes; `last` goes to its followers."""
    meeting = ("$HEAD", "$HEAD_PORT") if gang.nodes > 1 else ("nowhere", "0")
    words = ("$PYTHON", STANDIN, "$HOST", "$PORT", *meeting, str(gang.nodes))
    env = {"NODE_IP": "$NODE_IP"}
    one = plan().launches[0]
    config = msgspec.structs.replace(one.config, recipe=Recipe(python=sys.executable))
    return msgspec.structs.replace(
        one,
        id=f"standin-{'-'.join(last) or 'stays'}",
        config=config,
        command=Command(argv=(*words, "0"), env=env),
        follower=Command(argv=(*words, "$NODE_RANK", *last), env=env),
        gang=gang,
    )


def settings(tmp_path: Path) -> LaunchSettings:
    return LaunchSettings(tmp_path / "cache", 60.0, 20.0, 60.0)


def one_pass() -> Pass:
    request = Request(
        id="r", prompt="p", category="decided", token_ids=(1, 2, 3), max_tokens=4,
        sampling=Sampling(),
    )  # fmt: skip
    return Pass(id="pass", salt="s", concurrency=1, logprobs=0, requests=(request,))


def standins() -> list[int]:
    found = []
    for process in psutil.process_iter():
        try:
            if process.cmdline()[1:2] == [STANDIN]:
                found.append(process.pid)
        except psutil.Error:
            continue
    return found


PLAIN = Gang(accelerators=0, cpus=1)
OVER = Gang(accelerators=16, accelerator="H100", cpus=2, nodes=2)


def test_a_launch_over_nodes_is_one_process_group_on_each_with_all_its_accelerators(
    on_ray: None, tmp_path: Path
) -> None:
    async def run() -> tuple[object, str]:
        running = RunningLaunch(launch(OVER), settings(tmp_path))
        try:
            await running.place()
            outcome = await running.start()
            assert outcome.end is LaunchEnd.SERVED, outcome
            assert len(standins()) == 2
            answer = await running.run(one_pass())
            ended = await running.finish()
            return answer, ended.log.decode()
        finally:
            running.release()

    answer, log = asyncio.run(run())
    assert isinstance(answer, PassAnswer)
    said = json.loads(log.splitlines()[0])
    assert said["rank"] == 0
    assert said["visible"] == "0,1,2,3,4,5,6,7"
    assert said["node_ip"] == said["head"][0] != "127.0.0.1"
    wait_until(lambda: standins() == [])


def test_a_process_group_that_ends_on_another_node_ends_the_launch(
    on_ray: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The head of the stand-in would answer on for ever: its launch died all the same."""
    monkeypatch.setattr("matrixrun.fanout.gang.WORDS_SECONDS", 0.5)

    async def run() -> object:
        running = RunningLaunch(launch(OVER, "quit"), settings(tmp_path))
        try:
            await running.place()
            outcome = await running.start()
            if outcome.end is LaunchEnd.SERVED:  # the warm-up was answered before it was noticed
                for _ in range(20):
                    outcome = await running.run(one_pass())
                    if not isinstance(outcome, PassAnswer):
                        break
            return outcome
        finally:
            running.release()

    outcome = asyncio.run(run())
    assert outcome.end is LaunchEnd.DIED
    assert "node 1" in outcome.message
    assert "had enough" in outcome.log_tail
    wait_until(lambda: standins() == [])


def test_a_launcher_that_is_frozen_is_lost_and_not_waited_for(
    on_ray: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a node whose file system hangs: the actor lives, and never answers again."""
    impatient(monkeypatch, 0.5)

    async def run() -> None:
        running = RunningLaunch(launch(PLAIN), settings(tmp_path))
        frozen: list[psutil.Process] = []
        try:
            await running.place()
            assert (await running.start()).end is LaunchEnd.SERVED
            monkeypatch.setattr("matrixrun.fanout.waiting.SILENT_SECONDS", 2.0)
            frozen = launchers()
            for process in frozen:
                process.suspend()
            with pytest.raises(LostError, match="has not answered for 2 s"):
                await running.run(one_pass())
        finally:
            running.release()
            for process in frozen:
                with contextlib.suppress(psutil.Error):
                    process.resume()

    asyncio.run(run())
    wait_until(lambda: standins() == [])


def test_a_node_that_is_lost_before_the_launcher_has_started_there_is_not_waited_for(
    on_ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray would go on looking for a node with the id of the one that is gone."""
    impatient(monkeypatch, 2.0)
    before = {node.id for node in cluster.nodes()}
    node = on_ray.add_node(num_cpus=1)
    wait_until(lambda: len(cluster.nodes()) > len(before))
    (chosen,) = {node.id for node in cluster.nodes()} - before

    async def run() -> None:
        running = RunningLaunch(launch(PLAIN), settings(tmp_path), (chosen,))
        try:
            await running.place()
            on_ray.remove_node(node, allow_graceful=False)
            with pytest.raises(LostError, match=r"lost|died"):
                await asyncio.wait_for(running.start(), 60)
        finally:
            running.release()

    asyncio.run(run())


def test_so_is_one_that_a_follower_was_to_start_on(
    on_ray: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    impatient(monkeypatch, 2.0)
    before = {node.id for node in cluster.nodes()}
    nodes = [on_ray.add_node(num_cpus=1) for _ in range(2)]
    wait_until(lambda: len(cluster.nodes()) > len(before) + 1)
    chosen = tuple({node.id for node in cluster.nodes()} - before)
    follower = next(node for node in nodes if node.node_id == chosen[1])

    async def run() -> None:
        over = Gang(accelerators=0, cpus=2, nodes=2)
        running = RunningLaunch(launch(over), settings(tmp_path), chosen)
        try:
            await running.place()
            on_ray.remove_node(follower, allow_graceful=False)
            with pytest.raises(LostError, match=r"lost|died"):
                await asyncio.wait_for(running.start(), 60)
        finally:
            running.release()
            on_ray.remove_node(next(node for node in nodes if node is not follower))

    asyncio.run(run())
    wait_until(lambda: standins() == [])


def impatient(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    for name in ("CHECK_SECONDS", "STATE_SECONDS"):
        monkeypatch.setattr(f"matrixrun.fanout.waiting.{name}", seconds)
    for room in ("gang", "followers"):
        monkeypatch.setattr(f"matrixrun.fanout.{room}.STOP_SECONDS", seconds)


def launchers() -> list[psutil.Process]:
    found = psutil.Process().children(recursive=True)
    return [one for one in found if "LaunchBody" in "".join(one.cmdline()[:1])]


def test_a_launch_whose_process_group_on_another_node_was_killed_is_lost_and_not_at_fault(
    on_ray: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("matrixrun.fanout.gang.WORDS_SECONDS", 0.5)

    async def run() -> object:
        running = RunningLaunch(launch(OVER), settings(tmp_path))
        try:
            await running.place()
            assert (await running.start()).end is LaunchEnd.SERVED
            (follower,) = [pid for pid in standins() if psutil.Process(pid).cmdline()[-1] == "1"]
            os.kill(follower, signal.SIGKILL)
            for _ in range(20):
                outcome = await running.run(one_pass())
                if not isinstance(outcome, PassAnswer):
                    return outcome
        finally:
            running.release()

    outcome = asyncio.run(run())
    assert outcome.end is LaunchEnd.LOST
    assert "node 1 was killed" in outcome.message
    wait_until(lambda: standins() == [])


def test_a_gang_goes_to_the_nodes_that_were_chosen_for_it(on_ray: None, tmp_path: Path) -> None:
    import ray.util

    four = Gang(accelerators=4, accelerator="H100", cpus=1)
    with_eight = [node for node in cluster.nodes() if node.accelerators == 8]

    async def placed_on(node: str) -> str:
        running = RunningLaunch(launch(four), settings(tmp_path), (node,))
        try:
            await running.place()
            table = ray.util.placement_group_table(running._group)
            return table["bundles_to_node_id"][0]
        finally:
            running.release()

    for node in with_eight:
        assert asyncio.run(placed_on(node.id)) == node.id


def test_what_another_job_holds_is_seen(on_ray: None) -> None:
    import ray.util

    (node, *_) = [one for one in cluster.nodes() if one.accelerators == 8]
    group = ray.util.placement_group(
        [{"GPU": 2.5}], bundle_label_selector=[{"ray.io/node-id": node.id}]
    )
    try:
        ray.get(group.ready(), timeout=60)
        wait_until(lambda: left(node.id) == 5)
    finally:
        ray.util.remove_placement_group(group)
    wait_until(lambda: left(node.id) == 8)


def left(node: str) -> int:
    free = cluster.free(cluster.nodes(), list[Placement]())
    return next(one.accelerators for one in free if one.id == node)


@pytest.mark.parametrize(
    ("gang", "words"),
    [
        (Gang(accelerators=16, accelerator="H100", cpus=1), "16 accelerators"),
        (Gang(accelerators=24, accelerator="H100", cpus=3, nodes=3), "each of 3 nodes"),
        (Gang(accelerators=1, accelerator="A100", cpus=1), "A100"),
    ],
)
def test_what_no_node_can_hold_is_said_within_seconds(
    on_ray: None, tmp_path: Path, gang: Gang, words: str
) -> None:
    began = time.monotonic()
    with pytest.raises(ImpossibleError, match=words):
        asyncio.run(RunningLaunch(launch(gang), settings(tmp_path)).place())
    assert time.monotonic() - began < 5


def wait_until(condition, seconds: float = 30) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.2)
