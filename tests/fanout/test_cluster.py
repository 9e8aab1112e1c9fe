"""What a cluster can hold, said before anything waits for it."""

from __future__ import annotations

import pytest

from matrixrun.evidence.launches import Gang
from matrixrun.fanout.cluster import Node, bundle, infeasible

HEAD = Node(id="head", cpus=4, accelerators=0, accelerator=None)
H100 = Node(id="h", cpus=64, accelerators=8, accelerator="H100")
L4 = Node(id="l", cpus=16, accelerators=4, accelerator="L4")


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
    assert bundle(held) == expected
