"""What a launch's server is asked, from the node it runs on, and what is told of its answers."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from matrixrun import engines
from matrixrun.evidence.requests import Observation, Pass, Request, Sampling, Score, Task

Seen = TypeVar("Seen", Observation, Score)
Evaluate = Callable[[Pass, Task], list[Observation]]

# Repeats itself, so that a prompt-lookup drafter drafts too.
WARM_UP = Request(
    id="warm-up",
    prompt="warm-up",
    category="warm-up",
    token_ids=(5, 6, 7, 8) * 4,
    max_tokens=8,
    sampling=Sampling(ignore_eos=True),
)


@dataclass(frozen=True)
class PassAnswer:
    """What came back for one pass: observations or scores, counters around it, and its seconds."""

    observations: tuple[Observation, ...]
    scores: tuple[Score, ...]
    counters_before: dict[str, float]
    counters_after: dict[str, float]
    seconds: float


# No methods of the launch's actor: Ray makes an asyncio actor of any class with a coroutine method,
# and runs its other methods in the event loop then.


async def warm(client: engines.Client) -> dict[str, Any]:
    """Let the engine compile what it compiles at its first request; returns its facts."""
    try:
        await client.generate(WARM_UP, salt="warm-up", logprobs=0)
        return await client.facts()
    finally:
        await client.aclose()


def masked(answer: PassAnswer, secrets: dict[str, str]) -> PassAnswer:
    """The answer with an endpoint's secrets out of its errors: somebody else's server may repeat
    what it was sent."""
    return replace(
        answer,
        observations=tuple(shown(one, secrets) for one in answer.observations),
        scores=tuple(shown(one, secrets) for one in answer.scores),
    )


def shown(one: Seen, secrets: dict[str, str], argv: tuple[str, ...] = ()) -> Seen:
    """The observation or score with secrets out of its error."""
    if one.error is None:
        return one
    return replace(one, error=engines.mask_text(one.error, secrets, argv))


async def send(client: engines.Client, pass_: Pass, evaluate: Evaluate) -> PassAnswer:
    """The answer to one pass: requests and scores are sent from here, a task by the harness."""
    began = time.monotonic()
    try:
        before = await client.counters()
        answers: list[Observation] | list[Score]
        if pass_.task is None:
            answers = await engines.run_pass(client, pass_)
        else:
            await client.enter(pass_.salt)  # the harness sends past this client
            answers = evaluate(pass_, pass_.task)
        after = await client.counters()
    finally:
        await client.aclose()
    return PassAnswer(
        observations=tuple(a for a in answers if isinstance(a, Observation)),
        scores=tuple(a for a in answers if isinstance(a, Score)),
        counters_before=before,
        counters_after=after,
        seconds=time.monotonic() - began,
    )
