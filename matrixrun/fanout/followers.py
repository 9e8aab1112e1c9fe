"""The process groups of a launch on its further nodes: one actor each, all or none."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import ray
from ray.exceptions import RayError
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from matrixrun.evidence.launches import Launch, LaunchEnd
from matrixrun.fanout.actor import FollowerActor, LaunchSettings, Rendezvous
from matrixrun.fanout.waiting import answered
from matrixrun.plan import share

ACTOR_THREADS = 4  # `finish` must get through while `hold` waits
STOP_SECONDS = 30.0


class Followers:
    """The actors on bundles 1, 2, ... of a launch's placement group."""

    def __init__(self, launch: Launch, settings: LaunchSettings, group: Any) -> None:
        part = share(launch.gang)
        self._group = group
        self._actors: list[Any] = [
            FollowerActor.options(
                num_cpus=part.cpus,
                num_gpus=part.accelerators,
                max_concurrency=ACTOR_THREADS,
                scheduling_strategy=PlacementGroupSchedulingStrategy(
                    placement_group=group, placement_group_bundle_index=rank
                ),
            ).remote(launch, settings)
            for rank in range(1, launch.gang.nodes)
        ]
        self._holds: list[asyncio.Future[tuple[LaunchEnd, str, str]]] = []

    async def start(self, rendezvous: Rendezvous) -> tuple[str, str] | None:
        """Start all process groups; returns what went wrong with one of them and its log, or None.

        Raises:
            RayError, LostError: a node was lost.
        """
        started = [
            answered(actor.follow.remote(rendezvous, rank), actor, self._group)
            for rank, actor in enumerate(self._actors, 1)
        ]
        for rank, outcome in enumerate(await asyncio.gather(*started), 1):
            if outcome.end is LaunchEnd.UNBUILT:
                return f"on node {rank} of the launch: {outcome.message}", outcome.log_tail
        self._holds = [
            asyncio.ensure_future(answered(actor.hold.remote(), actor, self._group))
            for actor in self._actors
        ]
        for hold in self._holds:
            hold.add_done_callback(_noticed)
        return None

    async def ended(self) -> tuple[LaunchEnd, str, str]:
        """Wait until one of the process groups has ended; returns how; which, with what its
        log says of it; and the end of its log.

        Raises:
            RayError, LostError: a node was lost.
        """
        done, _ = await asyncio.wait(self._holds, return_when=asyncio.FIRST_COMPLETED)
        hold = next(iter(done))
        (end, said, tail), node = hold.result(), self._holds.index(hold) + 1
        how = "was killed" if end is LaunchEnd.LOST else "ended"
        words = f"; its log says: {said}" if said else ""
        return end, f"its process group on node {node} {how}{words}", tail

    def release(self) -> None:
        """End all process groups and let go of their nodes."""
        with suppress(RayError):
            ray.get([actor.finish.remote() for actor in self._actors], timeout=STOP_SECONDS)
        for actor in self._actors:
            with suppress(RayError):
                ray.kill(actor)


def _noticed(hold: asyncio.Future[tuple[LaunchEnd, str, str]]) -> None:
    """Nobody waits any more for a process group that ends with its launch."""
    if not hold.cancelled():
        hold.exception()
