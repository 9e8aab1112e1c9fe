"""Send a pass: so many requests in flight, started in the order of the list."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from matrixrun.engines.protocol import Client
from matrixrun.evidence.requests import Observation, Pass, Request, Score, ScoreRequest

Item = TypeVar("Item")
Answer = TypeVar("Answer")


async def run_pass(client: Client, pass_: Pass) -> list[Observation] | list[Score]:
    """The answers of a pass, in the order of its list.

    `pass_.concurrency` workers take the next item as soon as they are free. Times are seconds since
    the pass began. Raises EngineDied when the engine is gone; the rest of the pass is dropped then.
    """
    began = time.monotonic()

    async def observe(request: Request) -> Observation:
        offset = time.monotonic() - began
        seen = await client.generate(request, salt=pass_.salt, logprobs=pass_.logprobs)
        return replace(
            seen,
            started=offset,
            first_token=offset + seen.first_token,
            finished=offset + seen.finished,
        )

    async def score(request: ScoreRequest) -> Score:
        return await client.score(request, salt=pass_.salt)

    if pass_.scores:
        return await _in_flight(pass_.scores, score, pass_.concurrency)
    return await _in_flight(pass_.requests, observe, pass_.concurrency)


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
