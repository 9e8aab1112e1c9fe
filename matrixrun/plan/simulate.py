"""A sweep on nodes that are not there: when each launch would start, and how good that is.

The order is the driver's own: the same `Queue` decides here.
"""

from __future__ import annotations

import heapq
import math
import re
import time
from collections.abc import Callable, Sequence

import msgspec

from matrixrun.evidence.errors import UserError
from matrixrun.evidence.launches import Launch
from matrixrun.plan.nodes import Node, Placement, Running, less, more, share
from matrixrun.plan.order import Queue

MOST_NODES = 10_000
"""More would take minutes to simulate and is no cluster that runs one sweep."""


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """What was simulated. `starts` maps a launch to the second at which it starts, `impossible`
    are those that no node holds; `deciding_seconds` is the time that the scheduler itself took."""

    makespan: float
    starts: dict[str, float]
    impossible: tuple[str, ...] = ()
    deciding_seconds: float = 0.0


def simulate(
    queue: Queue, nodes: Sequence[Node], seconds: Callable[[Launch], float] | None = None
) -> Schedule:
    """Run a queue on empty nodes.

    Args:
        queue: it is used up.
        nodes: what there is.
        seconds: how long a launch really takes; its estimate when None.
    """
    free = {node.id: node for node in nodes}
    ends: list[tuple[float, int, Placement]] = []
    starts: dict[str, float] = {}
    now = deciding = 0.0
    impossible: list[Launch] = []
    while True:
        began = time.perf_counter()
        impossible += (lost := queue.impossible(nodes))
        for launch in lost:
            queue.ended(launch)
        running = [
            Running(
                placement, max(0.0, starts[placement.launch.id] + placement.launch.seconds - now)
            )
            for _, _, placement in ends
        ]
        placed = queue.next(list(free.values()), running)
        deciding += time.perf_counter() - began
        for placement in placed:
            launch = placement.launch
            starts[launch.id] = now
            _hold(free, placement, less)
            took = launch.seconds if seconds is None else seconds(launch)
            heapq.heappush(ends, (now + took, len(starts), placement))
        if not ends:
            if lost:
                continue
            return Schedule(
                makespan=now,
                starts=starts,
                impossible=tuple(launch.id for launch in impossible),
                deciding_seconds=deciding,
            )
        now = ends[0][0]
        while ends and ends[0][0] <= now:
            _, _, placement = heapq.heappop(ends)
            _hold(free, placement, more)
            queue.ended(placement.launch)


def _hold(
    free: dict[str, Node], placement: Placement, change: Callable[[Node, Node], Node]
) -> None:
    part = share(placement.launch.gang)
    for name in placement.nodes:
        free[name] = change(free[name], part)


def parse_nodes(text: str, accelerator: str | None) -> list[Node]:
    """Read `16x8` (16 nodes of 8) or `16x8,4x4`: accelerators of the matrix's type, or cores where
    the matrix runs on CPU.

    Raises:
        UserError: it says something else.
    """
    nodes: list[Node] = []
    for part in text.split(","):
        found = re.fullmatch(r"\s*([1-9]\d*)x([1-9]\d*)\s*", part)
        if found is None:
            raise UserError(
                f"--nodes: {text!r} is not understood",
                remedy="write 16x8 for sixteen nodes of eight accelerators (of eight cores for a"
                " matrix that runs on CPU), and 16x8,4x4 for two kinds of nodes",
            )
        count, size = int(found[1]), int(found[2])
        if len(nodes) + count > MOST_NODES:
            raise UserError(
                f"--nodes: {text!r} is more than the {MOST_NODES} nodes that can be simulated",
                remedy="write nodes first, what each holds second: 16x8 is sixteen of eight",
            )
        cpus = math.inf if accelerator else float(size)
        nodes += [
            Node(f"n{len(nodes) + i}", cpus, size if accelerator else 0, accelerator, math.inf)
            for i in range(count)
        ]
    return nodes
