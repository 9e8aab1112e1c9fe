"""Gangs on a real Ray cluster of several nodes on this machine: raylets and actors are real,
accelerators are declared, and the engine is a double (`standin.py`)."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import psutil
import pytest
from doubles import plan

from matrixrun.evidence.launches import Command, Gang, Launch, LaunchEnd, Recipe
from matrixrun.evidence.requests import Pass, Request, Sampling
from matrixrun.fanout import cluster
from matrixrun.fanout.actor import LaunchSettings, PassAnswer
from matrixrun.fanout.gang import ImpossibleError, RunningLaunch
from matrixrun.plan import Placement

STANDIN = str(Path(__file__).with_name("standin.py"))


@pytest.fixture(scope="module")
def on_ray() -> Iterator[None]:
    """A head without accelerators and two nodes of eight."""
    import ray
    from ray.cluster_utils import Cluster

    settings = {
        "RAY_AUTH_MODE": "disabled",
        "PYTHONPATH": cluster.PACKAGE_PARENT,
    }
    before = {name: os.environ.get(name) for name in settings}
    os.environ |= settings
    made = Cluster()
    made.add_node(num_cpus=2, num_gpus=0, include_dashboard=False)
    for _ in range(2):
        made.add_node(num_cpus=8, num_gpus=8, resources={"accelerator_type:H100": 8})
    try:
        ray.init(address=made.address, logging_level="ERROR", log_to_driver=False)
        yield
    finally:
        ray.shutdown()
        made.shutdown()
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


def launch(gang: Gang, *last: str) -> Launch:
    """A launch of the stand-in over the gang's nodes; `last` goes to its followers."""
    words = ("$PYTHON", STANDIN, "$HOST", "$PORT", "$HEAD", "$HEAD_PORT", str(gang.nodes))
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
