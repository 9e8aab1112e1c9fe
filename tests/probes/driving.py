"""Runs a probe's passes against a double of a launch: answers made from the request alone."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from matrixrun.evidence.requests import Observation, Pass, Request
from matrixrun.probes import Answered, Passes, with_prompts
from matrixrun.workloads import Workload

Reply = Callable[[Request], Observation]
Counters = dict[str, float]


def reply(request: Request) -> Observation:
    """Return an answer of as many tokens as are allowed, that depends on the prompt's last ones."""
    first = sum(request.token_ids[-3:]) % 50
    tokens = np.arange(first, first + request.max_tokens, dtype=np.int32)
    return Observation(
        request=request.id,
        prompt=request.prompt,
        category=request.category,
        token_ids=tokens,
        prompt_tokens=len(request.token_ids),
        cached_tokens=0,
        finish_reason="length",
        finished=1.0,
    )


def drive(
    passes: Passes,
    workload: Workload,
    *,
    answer: Reply = reply,
    counters: Callable[[Pass], tuple[Counters, Counters]] = lambda _: ({}, {}),
) -> list[tuple[Pass, Answered]]:
    """Return every pass with what came of it."""
    seen = []
    pass_ = next(passes, None)
    while pass_ is not None:
        observations = tuple(map(answer, pass_.requests))
        answered = Answered(with_prompts(pass_, observations, workload), *counters(pass_))
        seen.append((pass_, answered))
        try:
            pass_ = passes.send(answered)
        except StopIteration:
            pass_ = None
    return seen
