"""One launch on the cluster: its placement group, its actor, and the end of both."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, cast

import msgspec
import ray
from ray.exceptions import GetTimeoutError, RayError, RayTaskError
from ray.util import placement_group, remove_placement_group
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

from matrixrun.evidence.launches import Gang, Launch, LaunchEnd, LaunchOutcome
from matrixrun.evidence.requests import Pass
from matrixrun.fanout.actor import Finished, LaunchActor, LaunchSettings, PassAnswer, Rendezvous
from matrixrun.fanout.cluster import bundles, infeasible, nodes
from matrixrun.fanout.followers import Followers
from matrixrun.fanout.waiting import CHECK_SECONDS, LostError, answered, awaited, state_of
from matrixrun.plan import Node, share

STOP_SECONDS = 30.0
RENEW_SECONDS = 120.0  # a gang that Ray has not placed by then is asked for anew
NODE_LABEL = "ray.io/node-id"  # Ray's own, on every node
WORDS_SECONDS = 20.0
KILLED_SECONDS = 5.0
ACTOR_THREADS = 4  # `state` and `finish` must get through while `start` or `run` is at work


class ImpossibleError(Exception):
    """No living node can hold the gang."""


class LauncherError(Exception):
    """The launch actor itself failed: a fault of ours. It costs this launch's cells, no others."""


class RunningLaunch:
    """A launch that holds its gang. `place` first, `release` always."""

    def __init__(
        self,
        launch: Launch,
        settings: LaunchSettings,
        on: tuple[str, ...] = (),
        known: Callable[[], Sequence[Node]] = nodes,
    ) -> None:
        """`on` are the ids of the nodes to run on, the head first; empty leaves that to Ray.
        `known` are the nodes that might hold it."""
        self.launch = launch
        self._settings = settings
        self._on = on
        self._known = known
        self._group: Any = None
        self._ready: asyncio.Future[Any]
        self._actor: Any = None
        self._followers: Followers | None = None
        self._released = False

    async def place(self) -> None:
        """Wait for the gang's resources, then put the actor there.

        Raises:
            ImpossibleError: no node can hold the gang, now or after one was lost.
            LostError: Ray let go of it.
        """
        try:
            await self._place()
        except RayError as error:
            raise LostError(_first_line(error)) from error

    async def _place(self) -> None:
        gang = self.launch.gang
        self._check(gang)
        if not (self._on and await self._held(self._on)):
            # The nodes chosen are gone, or somebody else was faster there.
            asked = time.monotonic()
            while not await self._held(()):
                self._check(gang)
                if time.monotonic() - asked > RENEW_SECONDS:
                    self._let_go()
                    asked = time.monotonic()
        # The launcher must hold the accelerators itself: with num_gpus=0 Ray hides nothing and the
        # engine would take every accelerator of the node.
        part = share(gang)
        self._actor = LaunchActor.options(
            num_cpus=part.cpus,
            num_gpus=part.accelerators,
            max_concurrency=ACTOR_THREADS,
            scheduling_strategy=PlacementGroupSchedulingStrategy(
                placement_group=self._group, placement_group_bundle_index=0
            ),
        ).remote(self.launch, self._settings)
        if gang.nodes > 1:
            self._followers = Followers(self.launch, self._settings, self._group)

    async def _held(self, on: tuple[str, ...]) -> bool:
        """Wait a while for the gang's resources, on these nodes or any; whether they are ours."""
        if self._group is None:
            self._group = placement_group(
                bundles(self.launch.gang),
                strategy="STRICT_PACK" if self.launch.gang.nodes == 1 else "STRICT_SPREAD",
                bundle_label_selector=[{NODE_LABEL: name} for name in on] or None,
            )
            self._ready = asyncio.ensure_future(awaited(self._group.ready()))
        if (await asyncio.wait({self._ready}, timeout=CHECK_SECONDS))[0]:
            self._ready.result()
            return True
        if on:
            self._let_go()
        return False

    def _let_go(self) -> None:
        """Take back the request for the gang's resources."""
        self._ready.cancel()
        remove_placement_group(self._group)
        self._group = None

    def _check(self, gang: Gang) -> None:
        why = infeasible(gang, self._known())
        if why is not None:
            raise ImpossibleError(why)

    async def start(self) -> LaunchOutcome:
        """Start the engine; returns its outcome, `served` when it answers."""
        if self._followers is None:
            return cast(LaunchOutcome, await self._call("start"))
        rendezvous: Rendezvous = await self._call("rendezvous")
        head = asyncio.ensure_future(self._call("start", rendezvous))
        try:
            trouble = await self._followers.start(rendezvous)
        except (RayError, LostError) as error:
            head.cancel()
            raise LostError(_first_line(error)) from error
        if trouble is not None:
            head.cancel()
            return cast(LaunchOutcome, await self._call("abandon", LaunchEnd.UNBUILT, *trouble))
        return cast(LaunchOutcome, await self._with_followers(head))

    async def run(self, pass_: Pass) -> PassAnswer | LaunchOutcome:
        """Send one pass; a LaunchOutcome says that the engine ended in it."""
        answer = asyncio.ensure_future(self._call("run", pass_))
        if self._followers is not None:
            return cast(PassAnswer | LaunchOutcome, await self._with_followers(answer))
        return cast(PassAnswer | LaunchOutcome, await answer)

    async def _with_followers(self, head: asyncio.Future[Any]) -> Any:
        """What the head answers. Where a process group on another node has ended, the launch has
        died: the head, which may wait for it for ever, gets a moment for words of its own."""
        assert self._followers is not None
        ended = asyncio.ensure_future(self._followers.ended())
        try:
            await asyncio.wait({head, ended}, return_when=asyncio.FIRST_COMPLETED)
            if not ended.done():
                if _has_words(head.result()):  # it may have died of what was killed elsewhere
                    await asyncio.wait({ended}, timeout=KILLED_SECONDS)
                    _require_unkilled(ended)
                return head.result()
            if head.done():
                _require_unkilled(ended)
            elif ended.result()[0] is not LaunchEnd.LOST:
                await asyncio.wait({head}, timeout=WORDS_SECONDS)
            if head.done() and _has_words(head.result()):
                return head.result()
            head.cancel()
            return await self._call("abandon", *ended.result())
        except RayError as error:
            raise LostError(_first_line(error)) from error
        finally:
            ended.cancel()

    async def state(self) -> tuple[str, str]:
        """What the launch is doing now, and its latest line; empty when it cannot say."""
        if self._actor is None or self._released:
            return "" if self._released else "waiting for room", ""
        return await state_of(self._actor)

    async def finish(self) -> Finished:
        """Stop the engine; returns what is left of it."""
        return cast(Finished, await self._call("finish"))

    async def identities(self) -> dict[str, str]:
        """The sha256 of each local checkpoint that was served, by role, once it is known."""
        return cast(dict[str, str], await self._call("identities"))

    async def _call(self, method: str, *args: Any) -> Any:
        try:
            reference = getattr(self._actor, method).remote(*args)
            return await answered(reference, self._actor, self._group)
        except RayTaskError as error:
            raise LauncherError(str(error)) from error
        except RayError as error:
            # Among them: the actor's node or worker died, Ray killed it for memory, its answer
            # was lost on the way. None of them says anything about the engine.
            raise LostError(_first_line(error)) from error

    def release(self) -> None:
        """Let go of the gang. The engine's guard ends the engine with its actor in any case."""
        self._released = True
        if self._actor is not None:
            with suppress(RayError, GetTimeoutError):
                ray.get(self._actor.finish.remote(), timeout=STOP_SECONDS)
            with suppress(RayError):
                ray.kill(self._actor)
        if self._followers is not None:
            self._followers.release()
        if self._group is not None:
            with suppress(RayError):
                remove_placement_group(self._group)
        self._actor = self._group = self._followers = None


def _has_words(answer: Any) -> bool:
    return isinstance(answer, LaunchOutcome) and answer.end is not LaunchEnd.SERVED


def _require_unkilled(ended: asyncio.Future[tuple[LaunchEnd, str, str]]) -> None:
    """Raise LostError where a process group on another node was killed: the head died of that."""
    if ended.done() and ended.result()[0] is LaunchEnd.LOST:
        raise LostError(ended.result()[1])


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__


def lost(launch: Launch, why: str, attempts: int) -> LaunchOutcome:
    """The outcome of a launch whose node or worker went away in every attempt."""
    return LaunchOutcome(
        launch=launch.id,
        fingerprint=launch.fingerprint,
        end=LaunchEnd.LOST,
        message=f"its node or worker was lost ({attempts} attempts): {why}",
        argv=launch.command.argv,
        attempts=attempts,
    )


def impossible(launch: Launch, why: str) -> LaunchOutcome:
    """The outcome of a launch that no node of the cluster can hold."""
    return LaunchOutcome(
        launch=launch.id,
        fingerprint=launch.fingerprint,
        end=LaunchEnd.UNBUILT,
        message=f"no node can hold it: {why}",
        argv=launch.command.argv,
        attempts=0,
    )


def unstaged(launch: Launch, why: str) -> LaunchOutcome:
    """The outcome of a launch whose model's prompts could not be tokenized: it is not started."""
    return LaunchOutcome(
        launch=launch.id,
        fingerprint=launch.fingerprint,
        end=LaunchEnd.UNBUILT,
        message=f"its prompts could not be tokenized: {why}",
        argv=launch.command.argv,
        attempts=0,
    )


def broken(launch: Launch, error: Exception) -> LaunchOutcome:
    """The outcome of a launch under which our own code raised what it should not have."""
    words = str(error).strip() or type(error).__name__
    return LaunchOutcome(
        launch=launch.id,
        fingerprint=launch.fingerprint,
        end=LaunchEnd.DIED,
        message=f"internal error around the launch: {words.splitlines()[-1]}",
        log_tail=words,
        argv=launch.command.argv,
    )


def with_attempts(outcome: LaunchOutcome, attempts: int) -> LaunchOutcome:
    """The outcome with the number of attempts that it took."""
    return msgspec.structs.replace(outcome, attempts=attempts)
