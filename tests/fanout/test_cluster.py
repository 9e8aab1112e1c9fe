"""What a cluster can hold, said before anything waits for it."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import msgspec
import pytest
from doubles import plan

from matrixrun.evidence.errors import ClusterError, UserError
from matrixrun.evidence.launches import Gang, Launch
from matrixrun.fanout import RunOptions, cluster, run_matrix
from matrixrun.fanout.actor import LaunchSettings
from matrixrun.fanout.cluster import bundles, infeasible
from matrixrun.fanout.gang import RunningLaunch
from matrixrun.plan import Node, Placement
from matrixrun.record import Store, SweepState

HEAD = Node(id="head", cpus=4, accelerators=0, accelerator=None)
H100 = Node(id="h", cpus=64, accelerators=8, accelerator="H100")
MATRIX = """\
name: small
engines: {vllm: {kind: vllm}}
models: {dense: {target: {path: org/target}}}
grid: {engine: vllm, model: dense, speculation: {method: ngram, num_speculative_tokens: 2}}
"""
L4 = Node(id="l", cpus=16, accelerators=4, accelerator="L4")


def launch(accelerators: int) -> Launch:
    one = plan().launches[0]
    return msgspec.structs.replace(one, gang=gang(accelerators))


def gang(accelerators: int, cpus: float = 1.0, accelerator: str | None = "H100") -> Gang:
    return Gang(accelerators=accelerators, cpus=cpus, accelerator=accelerator)


def test_a_gang_that_one_node_holds_is_feasible() -> None:
    assert infeasible(gang(8), [HEAD, H100, L4]) is None


def test_two_nodes_together_do_not_hold_a_gang_of_one_node() -> None:
    why = infeasible(gang(16), [HEAD, H100, H100])
    assert why is not None
    assert "16 accelerators" in why
    assert "8 accelerators" in why


def test_an_accelerator_of_another_type_does_not_count_and_what_is_there_is_named() -> None:
    why = infeasible(gang(4, accelerator="A100"), [HEAD, H100, L4])
    assert why is not None
    assert "A100" in why
    assert "H100" in why


def test_a_launch_on_cpu_needs_its_cores_on_one_node() -> None:
    on_cpu = Gang(accelerators=0, cpus=8)
    assert infeasible(on_cpu, [HEAD]) is not None
    assert infeasible(on_cpu, [HEAD, L4]) is None


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        (Gang(accelerators=0, cpus=2), {"CPU": 2}),
        (gang(4, cpus=4), {"CPU": 4, "GPU": 4, "accelerator_type:H100": 0.001}),
        (Gang(accelerators=1, cpus=1, memory_bytes=2**30), {"CPU": 1, "GPU": 1, "memory": 2**30}),
    ],
)
def test_a_gang_is_one_bundle(held: Gang, expected: dict[str, float]) -> None:
    assert bundles(held) == [expected]


def test_a_gang_over_nodes_is_a_bundle_of_its_part_on_each() -> None:
    over = Gang(accelerators=16, cpus=16, accelerator="H100", nodes=2)
    part = {"CPU": 8, "GPU": 8, "accelerator_type:H100": 0.001}
    assert bundles(over) == [part, part]
    assert infeasible(over, [HEAD, H100, H100]) is None
    why = infeasible(over, [HEAD, H100, L4])
    assert why is not None
    assert "on each of 2 nodes" in why


@pytest.mark.parametrize("said", [2.5, 4.5], ids=["up to date", "late"])
def test_what_other_jobs_hold_is_not_ours_to_start_on(
    monkeypatch: pytest.MonkeyPatch, said: float
) -> None:
    """Of 8 accelerators we hold 2 and another job 3.5; what Ray says lags behind us."""
    there = {"h": {"CPU": 30.0, "GPU": said}}
    monkeypatch.setattr("ray._private.state.available_resources_per_node", lambda: there)
    (left,) = cluster.free([H100], [Placement(launch(2), ("h",))])
    assert left.accelerators == int(said)


def test_a_node_lost_a_moment_ago_may_come_back(monkeypatch: pytest.MonkeyPatch) -> None:
    lately, now = cluster.Lately(), [0.0]
    monkeypatch.setattr(cluster.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(cluster, "nodes", lambda: [H100])
    assert infeasible(gang(8), lately.nodes()) is None
    monkeypatch.setattr(cluster, "nodes", list)
    now[0] = cluster.RETURN_SECONDS / 2
    assert infeasible(gang(8), lately.nodes()) is None
    now[0] = cluster.RETURN_SECONDS + 1
    assert infeasible(gang(8), lately.nodes()) is not None


@pytest.mark.parametrize("address", ["ray://head:10001", "http://head:8265", "RAY://head:10001"])
@pytest.mark.parametrize("by_variable", [True, False])
def test_an_address_from_outside_the_cluster_is_refused_at_once_with_what_to_do(
    monkeypatch: pytest.MonkeyPatch, address: str, by_variable: bool
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", address if by_variable else "")
    began = time.monotonic()
    with pytest.raises(UserError) as caught:
        cluster.connect(None if by_variable else address)
    assert time.monotonic() - began < 1
    assert address in caught.value.message
    assert ("RAY_ADDRESS" in caught.value.message) == by_variable
    assert "matrixrun submit FILE --address http://" in str(caught.value.remedy)


@pytest.mark.parametrize("starts", [2, 3])
def test_a_local_ray_that_is_slow_to_start_is_started_once_more_then_told_as_a_busy_machine(
    monkeypatch: pytest.MonkeyPatch, starts: int
) -> None:
    tried: list[object] = []

    def init(**options: object) -> None:
        tried.append(options["address"])
        if len(tried) < starts:
            raise Exception(  # noqa: TRY002 (as Ray does)
                "The current node timed out during startup. This could happen ..."
            )

    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setattr("ray.is_initialized", lambda: False)
    monkeypatch.setattr("ray.init", init)
    if starts == 2:
        cluster.connect()
    else:
        with pytest.raises(ClusterError) as caught:
            cluster.connect()
        assert "timed out during startup" in caught.value.message
        assert "too busy" in str(caught.value.remedy)
        assert "resumed" in str(caught.value.remedy)
    assert tried == ["local", "local"]


@pytest.mark.parametrize("address", ["banana", "head:port", "ray://head:10001"])
def test_an_address_of_no_cluster_is_refused_before_there_is_a_results_folder(
    tmp_path: Path, address: str
) -> None:
    (tmp_path / "m.yaml").write_text(MATRIX)
    options = RunOptions(results=tmp_path / "out", address=address, track=False, quiet=True)
    with pytest.raises(UserError, match=address):
        run_matrix(tmp_path / "m.yaml", options, lambda store: store.root)
    assert not (tmp_path / "out").exists()


def test_a_sweep_whose_ray_did_not_start_is_left_as_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def busy(_: object) -> None:
        raise ClusterError("Ray did not start")

    monkeypatch.setattr(cluster, "connect", busy)
    (tmp_path / "m.yaml").write_text(MATRIX)
    options = RunOptions(results=tmp_path / "out", track=False, quiet=True)
    with pytest.raises(ClusterError):
        run_matrix(tmp_path / "m.yaml", options, lambda store: store.root)
    info = Store.open(tmp_path / "out").info
    assert (info.state, info.exit_code) == (SweepState.INTERRUPTED, 2)


@pytest.mark.parametrize("address", ["auto", "head:6379", "10.0.0.1:6379", "[::1]:6379"])
def test_the_address_of_a_head_is_taken(address: str) -> None:
    cluster.check_address(address)


def test_a_launch_without_room_says_so_and_one_that_is_over_says_nothing() -> None:
    running = RunningLaunch(launch(1), LaunchSettings(Path("cache"), 1.0, 1.0, 1.0))
    assert asyncio.run(running.state()) == ("waiting for room", "")
    running.release()
    assert asyncio.run(running.state()) == ("", "")
