"""In which order launches start, and which of them may start now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from matrixrun.evidence.launches import Gang, Launch, Role
from matrixrun.plan.types import Capacity, Group


def in_order(groups: Iterable[Group], launches: dict[str, Launch]) -> tuple[Launch, ...]:
    """Return the launches group by group, in each the scorer last.

    Wide groups come first, since a wide gang that waits for narrow ones leaves accelerators idle;
    then long ones, so that the sweep does not end with one long launch alone.
    """

    def weight(launch: Launch) -> tuple[float, str]:
        return -launch.seconds, launch.id

    def group_weight(group: Group) -> tuple[int, float, float, str]:
        members = [launches[name] for name in (*group.on, *group.forced, group.scorer)]
        widest = max(members, key=lambda launch: (launch.gang.accelerators, launch.gang.cpus)).gang
        seconds = sum(launch.seconds for launch in members)
        return -widest.accelerators, -widest.cpus, -seconds, group.id

    ordered: dict[str, Launch] = {}
    for group in sorted(groups, key=group_weight):
        for launch in sorted((launches[name] for name in group.others), key=weight):
            ordered.setdefault(launch.id, launch)
        ordered[group.scorer] = launches[group.scorer]
    return tuple(ordered.values())


def next_launches(
    pending: Sequence[Launch], running: Iterable[Launch], free: Capacity
) -> list[Launch]:
    """Return the launches that may start now, in the order in which they should.

    A scorer is ready once no other launch that shares a cell with it is pending or running. Of
    the ready ones, the first that fits what is free starts, then the next that fits the rest.

    Args:
        pending: launches not yet started, in the plan's order (a part of a plan will do).
        running: launches started and not yet ended.
        free: what is free besides the running launches.
    """
    busy: set[str] = set()
    for launch in (*pending, *running):
        if launch.role is not Role.A:
            busy.update(launch.cells)
    chosen = []
    for launch in pending:
        ready = launch.role is not Role.A or busy.isdisjoint(launch.cells)
        if ready and fits(launch.gang, free):
            free = _without(free, launch.gang)
            chosen.append(launch)
    return chosen


def fits(gang: Gang, free: Capacity) -> bool:
    """Whether `gang` can be held within `free`."""
    enough_memory = free.memory_bytes is None or gang.memory_bytes <= free.memory_bytes
    return gang.accelerators <= free.accelerators and gang.cpus <= free.cpus and enough_memory


def unfit(launches: Iterable[Launch], capacity: Capacity) -> list[Launch]:
    """Return the launches that never start, however empty `capacity` is."""
    return [launch for launch in launches if not fits(launch.gang, capacity)]


def _without(free: Capacity, gang: Gang) -> Capacity:
    memory = None if free.memory_bytes is None else free.memory_bytes - gang.memory_bytes
    return msgspec.structs.replace(
        free,
        accelerators=free.accelerators - gang.accelerators,
        cpus=free.cpus - gang.cpus,
        memory_bytes=memory,
    )
