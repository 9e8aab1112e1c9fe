"""Send a pass: so many requests in flight, started in the order of the list."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from matrixrun.engines.protocol import Client, ReplyingClient
from matrixrun.evidence.errors import EngineHung
from matrixrun.evidence.replies import Ask
from matrixrun.evidence.requests import (
    CANCELLED,
    Observation,
    Pass,
    Request,
    Score,
    ScoreRequest,
)

# One slow request is no hang, not even where it is the whole pass: it may be the request. Two in a
# row with none answered between them are taken for one.
LEAST_TIMEOUTS = 2

Item = TypeVar("Item")
Answer = TypeVar("Answer")


async def run_pass(client: Client, pass_: Pass) -> list[Observation] | list[Score]:
    """The answers of a pass, in the order of its list.

    `pass_.concurrency` workers take the next item as soon as they are free. Times are seconds since
    the pass began. Raises EngineDied when the engine is gone, and EngineHung when as many requests
    as can be in flight, and at least two, time out in a row; the rest of the pass is dropped then.
    """
    began = time.monotonic()
    in_flight = min(pass_.concurrency, len(pass_.scores or pass_.asks or pass_.requests))
    progress = _Progress(limit=max(LEAST_TIMEOUTS, in_flight))

    async def observe(request: Request | Ask) -> Observation:
        offset = time.monotonic() - began
        if isinstance(request, Ask):
            assert isinstance(client, ReplyingClient)  # its engine has forms
            seen = await client.reply(request, salt=pass_.salt)
        else:
            seen = await _unless_dropped(client, request, pass_)
        progress.note(seen.error)
        return replace(
            seen,
            started=offset,
            first_token=offset + seen.first_token,
            finished=offset + seen.finished,
        )

    async def score(request: ScoreRequest) -> Score:
        value = await client.score(request, salt=pass_.salt)
        progress.note(value.error)
        return value

    if pass_.scores:
        return await _in_flight(pass_.scores, score, pass_.concurrency)
    asked: Sequence[Request | Ask] = pass_.asks or pass_.requests
    return await _in_flight(asked, observe, pass_.concurrency)


async def _unless_dropped(client: Client, request: Request, pass_: Pass) -> Observation:
    """Send one request; where its time to be dropped comes first, its connection is closed, which
    is how an engine learns that nobody waits for the answer any more."""
    sending = client.generate(request, salt=pass_.salt, logprobs=pass_.logprobs)
    if request.cancel_after is None:
        return await sending
    try:
        return await asyncio.wait_for(sending, request.cancel_after)
    except TimeoutError:
        return Observation(
            request=request.id,
            prompt=request.prompt,
            category=request.category,
            prompt_tokens=len(request.token_ids),
            finish_reason=CANCELLED,
            finished=request.cancel_after,
        )


class _Progress:
    """Counts timeouts in a row; a client names a timeout by an error that begins with the word."""

    def __init__(self, limit: int) -> None:
        self._limit, self._timeouts = limit, 0

    def note(self, error: str | None) -> None:
        """Take note of one answer."""
        timed_out = error is not None and error.startswith("timeout")
        self._timeouts = self._timeouts + 1 if timed_out else 0
        if self._timeouts >= self._limit:
            raise EngineHung(
                f"no progress: {self._timeouts} requests in a row timed out ({error})",
                remedy="read the engine's log; raise timeouts.request if it is only slow",
            )


async def _in_flight(
    items: Sequence[Item], send: Callable[[Item], Awaitable[Answer]], concurrency: int
) -> list[Answer]:
    answers: dict[int, Answer] = {}
    queue = iter(enumerate(items))

    async def work() -> None:
        for position, item in queue:
            answers[position] = await send(item)

    workers = [asyncio.ensure_future(work()) for _ in range(min(concurrency, len(items)))]
    try:
        await asyncio.gather(*workers)
    finally:
        for worker in workers:
            worker.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
    return [answers[position] for position in range(len(items))]
