"""Faults of the end of an answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .base import Fault, Row, write_row
from .step import Step
from .verification import accepted

Append = Callable[[list[int]], tuple[list[int], bool]]


def stops(request: Any) -> set[int]:
    """Return the tokens that end a request's answer."""
    sampling = request.sampling_params
    return {*(sampling.stop_token_ids or ()), sampling.eos_token_id} - {None}


class PastTheEnd(Fault):
    """A stop token inside an accepted draft is noticed only when the whole step is appended."""

    def append(self, original: Append, request: Any, tokens: list[int]) -> tuple[list[int], bool]:
        ends = [place for place, token in enumerate(tokens) if token in stops(request)]
        if not ends or ends[0] == len(tokens) - 1:
            return original(tokens)
        kept, stopped = original(tokens[: ends[0] + 1])
        if not stopped:
            return kept, stopped
        self.struck += 1
        for token in tokens[ends[0] + 1 :]:
            request.append_output_token_ids(token)
            kept.append(token)
        return kept, stopped


class StopIgnored(Fault):
    """A stop token inside an accepted draft is never noticed."""

    def append(self, original: Append, request: Any, tokens: list[int]) -> tuple[list[int], bool]:
        sampling = request.sampling_params
        known = sampling.stop_token_ids or []
        ends = {place for place, token in enumerate(tokens[:-1]) if token in known}
        if not ends:
            return original(tokens)
        self.struck += 1
        kept: list[int] = []
        for place, token in enumerate(tokens):
            if place in ends:
                sampling.stop_token_ids = []
            some, stopped = original([token])
            sampling.stop_token_ids = known
            kept += some
            if stopped:
                return kept, True
        return kept, False


class CutShort(Fault):
    """A share of answers end some tokens before their limit, as if it had been reached."""

    def append(self, original: Append, request: Any, tokens: list[int]) -> tuple[list[int], bool]:
        left = request.max_tokens - request.num_output_tokens
        if left > self.parameters["tokens"] or self.random.random() >= self.parameters["share"]:
            return original(tokens)
        self.struck += 1
        limit = request.max_tokens
        request.max_tokens = request.num_output_tokens + 1
        kept, stopped = original(tokens[:1])
        request.max_tokens = limit
        return kept, stopped


class StopsAtOnce(Fault):
    """A share of answers stop with their first token."""

    def append(self, original: Append, request: Any, tokens: list[int]) -> tuple[list[int], bool]:
        if request.num_output_tokens > 0 or self.random.random() >= self.parameters["share"]:
            return original(tokens)
        from vllm.v1.request import RequestStatus

        kept, _ = original(tokens[:1])
        request.status = RequestStatus.FINISHED_STOPPED
        self.struck += 1
        return kept, True


class OverTheLimit(Fault):
    """The output limit is looked at only when a whole step is appended."""

    def append(self, original: Append, request: Any, tokens: list[int]) -> tuple[list[int], bool]:
        left = request.max_tokens - request.num_output_tokens
        kept, stopped = original(tokens[:left])
        over = tokens[left:]
        if not over or len(kept) < left or kept[-1] in stops(request):
            return kept, stopped
        self.struck += 1
        for token in over:
            request.append_output_token_ids(token)
        return kept + over, stopped


class Stalled(Fault):
    """One request in so many, by its number of arrival, is never planned again from some token on:
    it holds what it has until its client goes away."""

    def __init__(self, parameters: dict[str, Any], seed: int) -> None:
        super().__init__(parameters, seed)
        self._order: dict[str, int] = {}

    def planning(self, scheduler: Any) -> None:
        every = self.parameters["every"]
        for request in list(scheduler.running):
            number = self._order.setdefault(request.request_id, len(self._order))
            late = request.num_output_tokens >= self.parameters["after"]
            if late and number % every == self.seed % every:
                scheduler.running.remove(request)
                self.struck += 1


class DraftedStop(Fault):
    """A stop token that a draft holds ends the answer, also where the target has another token."""

    def emit(self, step: Step, emitted: torch.Tensor, rows: list[Row]) -> torch.Tensor:
        for row, draft, best, _ in rows:
            known = step.runner.requests[step.requests[row]].sampling_params.stop_token_ids or ()
            wrong = accepted(draft, best)
            if wrong < len(draft) and draft[wrong] in known:
                write_row(emitted, row, draft[: wrong + 1])
                self.struck += 1
        return emitted
