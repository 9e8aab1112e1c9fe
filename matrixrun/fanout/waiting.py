"""Wait for an actor's answer for as long as the actor can give one.

Ray waits for ever for an actor that is frozen. It does so as well for one whose node was lost
before it had started there: its placement group names the node, and Ray looks for that node again.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

from ray.exceptions import RayError
from ray.util import placement_group_table

CHECK_SECONDS = 15.0
STATE_SECONDS = 5.0
SILENT_SECONDS = 300.0  # an actor that has not said for so long what it is doing is lost


class LostError(Exception):
    """The node or the worker under a launch went away; the attempt counts for nothing."""


async def awaited(reference: Any) -> Any:
    """A Ray reference as a coroutine."""
    return await reference


async def state_of(actor: Any) -> tuple[str, str]:
    """What an actor is doing now, and its latest line; empty when it cannot say."""
    with suppress(RayError, asyncio.TimeoutError):
        doing: tuple[str, str] = await asyncio.wait_for(actor.state.remote(), STATE_SECONDS)
        return doing
    return "", ""


async def answered(reference: Any, actor: Any, group: Any) -> Any:
    """The answer of a call to an actor in a placement group.

    Raises:
        LostError: it cannot come any more.
        RayError: Ray says so itself, or the call raised.
    """
    answer = asyncio.ensure_future(awaited(reference))
    heard = time.monotonic()
    try:
        while not (await asyncio.wait({answer}, timeout=CHECK_SECONDS))[0]:
            if await state_of(actor) != ("", ""):
                heard = time.monotonic()
            elif placement_group_table(group)["state"] != "CREATED":
                raise LostError("a node of its gang was lost")
            elif time.monotonic() - heard > SILENT_SECONDS:
                raise LostError(f"its launcher has not answered for {SILENT_SECONDS:g} s")
        return answer.result()
    finally:
        answer.cancel()
