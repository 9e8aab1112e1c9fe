"""Nodes, what a gang holds on them, and what is free there while it is decided what starts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from matrixrun.evidence.launches import Gang, Launch


class Node(msgspec.Struct, frozen=True):
    """One node: what it has, or what of it is free, in cores, accelerators of a type, bytes."""

    id: str
    cpus: float
    accelerators: int
    accelerator: str | None
    memory_bytes: float = 0


class Placement(msgspec.Struct, frozen=True):
    """A launch and the nodes that it is to run on, the head first."""

    launch: Launch
    nodes: tuple[str, ...]


class Running(msgspec.Struct, frozen=True):
    """A launch that runs, and the seconds that it is expected to go on; 0 when it is overdue."""

    placement: Placement
    seconds: float


def share(gang: Gang) -> Node:
    """What a gang holds on each of its nodes."""
    return Node(
        "",
        gang.cpus / gang.nodes,
        gang.accelerators // gang.nodes,
        gang.accelerator,
        gang.memory_bytes / gang.nodes,
    )


def fits(held: Node, free: Node) -> bool:
    """Whether what a gang holds on one node is free on this one."""
    return (
        held.accelerators <= free.accelerators
        and held.cpus <= free.cpus
        and held.memory_bytes <= free.memory_bytes
        and (not held.accelerators or held.accelerator in (None, free.accelerator))
    )


def holds(nodes: Iterable[Node], gang: Gang) -> bool:
    """Whether these nodes hold the gang, each of them its part."""
    part = share(gang)
    return sum(fits(part, node) for node in nodes) >= gang.nodes


def less(free: Node, held: Node) -> Node:
    """What is left of `free` beside `held`."""
    return Node(
        free.id,
        free.cpus - held.cpus,
        free.accelerators - held.accelerators,
        free.accelerator,
        free.memory_bytes - held.memory_bytes,
    )


def more(free: Node, held: Node) -> Node:
    """What is free when `held` ends."""
    return Node(
        free.id,
        free.cpus + held.cpus,
        free.accelerators + held.accelerators,
        free.accelerator,
        free.memory_bytes + held.memory_bytes,
    )


class Floor:
    """The nodes while it is decided what starts now.

    Args:
        free: what is free on each node beside the running launches.
        running: the running launches.
    """

    def __init__(self, free: Sequence[Node], running: Sequence[Running]) -> None:
        self._free = {node.id: node for node in free}
        self._running = running
        # Of reserved nodes: the seconds until the reserved gang starts, and what it leaves free.
        self._reserved: dict[str, tuple[float, Node]] = {}

    @property
    def reserved(self) -> bool:
        """Whether a gang that waits has its nodes reserved."""
        return bool(self._reserved)

    @property
    def longest_wait(self) -> float:
        """The seconds until the last of the nodes kept is used."""
        return max((start for start, _ in self._reserved.values()), default=0.0)

    def has_room(self, gang: Gang) -> bool:
        """Whether the gang fits if nothing were kept for another."""
        return holds(self._free.values(), gang)

    def place(self, launch: Launch) -> tuple[str, ...] | None:
        """Take nodes for a launch, the ones that it fills best; None when it does not fit."""
        part = share(launch.gang)
        fitting = [
            node
            for node in self._free.values()
            if fits(part, node) and self._allowed(node.id, part, launch.seconds)
        ]
        if len(fitting) < launch.gang.nodes:
            return None
        if launch.gang.nodes == 1:
            chosen = [min(fitting, key=_room)]
        else:
            chosen = sorted(fitting, key=_room)[: launch.gang.nodes]
        for node in chosen:
            self._free[node.id] = less(node, part)
            if node.id in self._reserved and launch.seconds > self._reserved[node.id][0]:
                start, spare = self._reserved[node.id]
                self._reserved[node.id] = (start, less(spare, part))
        return tuple(node.id for node in chosen)

    def _allowed(self, node: str, part: Node, seconds: float) -> bool:
        if node not in self._reserved:
            return True
        start, spare = self._reserved[node]
        return seconds <= start or fits(part, spare)

    def reserve(self, launch: Launch) -> None:
        """Keep for a launch that does not fit now the nodes that are expected to hold it soonest;
        nothing is kept when none of them ever will."""
        part = share(launch.gang)
        ends = sorted((one for one in self._running), key=lambda one: one.seconds)
        then = dict(self._free)
        for one in ends:
            held = share(one.placement.launch.gang)
            for name in one.placement.nodes:
                if name in then:
                    then[name] = more(then[name], held)
            fitting = [node for node in then.values() if fits(part, node)]
            if len(fitting) >= launch.gang.nodes:
                for node in sorted(fitting, key=_room)[: launch.gang.nodes]:
                    self._reserved[node.id] = (one.seconds, less(node, part))
                return


def _room(node: Node) -> tuple[float, float, float]:
    return node.accelerators, node.cpus, node.memory_bytes
