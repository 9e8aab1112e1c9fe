"""Which launches may start now, and on which nodes: the scheduler, pure.

The driver and the simulator ask the same `Queue`.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Sequence

from matrixrun.evidence.launches import Gang, Launch, Role
from matrixrun.plan.nodes import Floor, Node, Placement, Running, holds
from matrixrun.plan.types import Group

Priority = tuple[float, ...]


def in_order(groups: Iterable[Group], launches: dict[str, Launch]) -> tuple[Launch, ...]:
    """Return the launches group by group, in each the scorer last.

    Wide groups come first, since a wide gang that waits for narrow ones leaves accelerators idle;
    then long ones, so that the sweep does not end with one long launch alone.
    """

    def weight(launch: Launch) -> tuple[float, str]:
        return -launch.seconds, launch.id

    def group_weight(group: Group) -> tuple[int, float, float, str]:
        members = [
            launches[name] for name in (*group.on, *group.forced, *group.traced, group.scorer)
        ]
        widest = max(members, key=lambda launch: (launch.gang.accelerators, launch.gang.cpus)).gang
        seconds = sum(launch.seconds for launch in members)
        return -widest.accelerators, -widest.cpus, -seconds, group.id

    ordered: dict[str, Launch] = {}
    for group in sorted(groups, key=group_weight):
        for launch in sorted((launches[name] for name in group.others), key=weight):
            ordered.setdefault(launch.id, launch)
        ordered[group.scorer] = launches[group.scorer]
    return tuple(ordered.values())


def unfit(launches: Iterable[Launch], nodes: Sequence[Node]) -> list[Launch]:
    """Return the launches that never start, however empty the nodes are."""
    held: dict[Gang, bool] = {}
    for launch in launches:
        if launch.gang not in held:
            held[launch.gang] = holds(nodes, launch.gang)
    return [launch for launch in launches if not held[launch.gang]]


class Queue:
    """Launches that have not started, and what they wait for.

    A scorer is ready once every other launch that shares a cell with it has ended. Of the ready
    launches the first that fits starts, then the next that fits the rest. The first that does not
    fit reserves the nodes that are expected to hold it soonest: what comes after it starts there
    only if it should end in time or leaves enough room. So a wide gang is not starved by narrow
    ones, and estimates that were too short delay nobody for ever.

    Args:
        launches: in the order that decides between launches that are otherwise alike.
        priority: what sorts the ready launches, the least first; see `longest_first`.
        reserve: whether the first that does not fit has nodes kept for it.
    """

    def __init__(
        self,
        launches: Sequence[Launch],
        *,
        priority: Callable[[Launch, float], Priority] | None = None,
        reserve: bool = True,
    ) -> None:
        self._reserve = reserve
        self._launches = {launch.id: launch for launch in launches}
        self._awaited, self._scorers = _dependencies(launches)
        tails = _tails(self._launches, self._scorers)
        rank = priority or longest_first
        self._ranks = {
            launch.id: (*rank(launch, tails[launch.id]), position)
            for position, launch in enumerate(launches)
        }
        self._ready: dict[Gang, list[tuple[Priority, str]]] = {}
        self._waiting = set(self._launches)
        for launch in launches:
            if not self._awaited.get(launch.id):
                self._push(launch.id)

    def __len__(self) -> int:
        """How many launches have not started."""
        return len(self._waiting)

    def next(self, free: Sequence[Node], running: Sequence[Running]) -> list[Placement]:
        """Take the launches that start now, in the order in which they should.

        Args:
            free: what is free on each node beside the running launches.
            running: the launches started and not yet ended.
        """
        floor = Floor(free, running)
        heads = [(heap[0][0], gang) for gang, heap in self._ready.items() if heap]
        heapq.heapify(heads)
        placed: list[Placement] = []
        while heads:
            _, gang = heapq.heappop(heads)
            heap = self._ready[gang]
            name = heap[0][1]
            if self._start(name, floor, placed):
                heapq.heappop(heap)
                if heap:
                    heapq.heappush(heads, (heap[0][0], gang))
                continue
            if self._reserve and not floor.reserved:
                floor.reserve(self._launches[name])
            if floor.reserved and floor.has_room(gang):
                self._start_brief(heap, floor, placed)
        return placed

    def _start(self, name: str, floor: Floor, placed: list[Placement]) -> bool:
        launch = self._launches[name]
        nodes = floor.place(launch)
        if nodes is None:
            return False
        self._waiting.discard(name)
        placed.append(Placement(launch, nodes))
        return True

    def _start_brief(
        self, heap: list[tuple[Priority, str]], floor: Floor, placed: list[Placement]
    ) -> None:
        """Start those of alike gangs that should end before the nodes kept for another are used."""
        before = floor.longest_wait
        brief = sorted(entry for entry in heap if self._launches[entry[1]].seconds <= before)
        started = {entry for entry in brief if self._start(entry[1], floor, placed)}
        if started:
            heap[:] = [entry for entry in heap if entry not in started]
            heapq.heapify(heap)

    def impossible(self, nodes: Sequence[Node]) -> list[Launch]:
        """Take the ready launches that these nodes cannot hold, however empty they are."""
        found = []
        for gang, heap in self._ready.items():
            if heap and not holds(nodes, gang):
                found += [self._launches[name] for _, name in sorted(heap)]
                heap.clear()
        self._waiting.difference_update(launch.id for launch in found)
        return found

    def ended(self, launch: Launch) -> None:
        """Note that a launch has ended: what waited for it alone is ready now."""
        for scorer in self._scorers.get(launch.id, ()):
            self._awaited[scorer].discard(launch.id)
            if not self._awaited[scorer] and scorer in self._waiting:
                self._push(scorer)

    def _push(self, name: str) -> None:
        heap = self._ready.setdefault(self._launches[name].gang, [])
        heapq.heappush(heap, (self._ranks[name], name))


def longest_first(launch: Launch, tail: float) -> Priority:
    """The order of a sweep: first what the longest work hangs on (`tail`, in seconds, see
    `_tails`), then the longer launch, and of two alike the wider gang."""
    return -tail, -launch.seconds, -launch.gang.accelerators, -launch.gang.cpus


def first_come(_launch: Launch, _tail: float) -> Priority:
    """The order in which launches are listed: what a queue does that knows nothing of them."""
    return ()


def _dependencies(launches: Sequence[Launch]) -> tuple[dict[str, set[str]], dict[str, list[str]]]:
    """For each scorer the launches it waits for, and for each launch the scorers that wait."""
    by_cell: dict[str, list[str]] = {}
    for launch in launches:
        if launch.role is not Role.A:
            for cell in launch.cells:
                by_cell.setdefault(cell, []).append(launch.id)
    awaited: dict[str, set[str]] = {}
    scorers: dict[str, list[str]] = {}
    for launch in launches:
        if launch.role is Role.A:
            awaited[launch.id] = {name for cell in launch.cells for name in by_cell.get(cell, ())}
            for name in awaited[launch.id]:
                scorers.setdefault(name, []).append(launch.id)
    return awaited, scorers


def _tails(launches: dict[str, Launch], scorers: dict[str, list[str]]) -> dict[str, float]:
    """The seconds from the start of each launch to the end of the scorers that wait for it; a short
    launch counts like the longest that its scorer waits for, which can begin no sooner."""
    longest: dict[str, float] = {}
    for name, waiting in scorers.items():
        for scorer in waiting:
            longest[scorer] = max(longest.get(scorer, 0.0), launches[name].seconds)
    return {
        name: max(
            (longest[s] + launches[s].seconds for s in scorers.get(name, ())),
            default=launch.seconds,
        )
        for name, launch in launches.items()
    }


def longest_chain(launches: Sequence[Launch]) -> float:
    """The seconds of the longest launch with the scorer that waits for it."""
    _, scorers = _dependencies(launches)
    tails = _tails({launch.id: launch for launch in launches}, scorers)
    return max(tails.values(), default=0.0)
