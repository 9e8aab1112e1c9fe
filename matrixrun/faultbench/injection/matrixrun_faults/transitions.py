"""Faults of the engine's transitions: preemption, dropped requests, rejections, the end of a turn.
Nothing happens where prompts are answered one after the other and nothing is in the way."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .base import Fault
from .ending import stops
from .memory import NOWHERE, after_rejection
from .step import Step


class DamagedOnResume(Fault):
    """A request that was preempted and goes on is computed with a wrong first block."""

    def before_placing(self, step: Step, tables: list[Any], positions: torch.Tensor) -> None:
        for row, request in enumerate(step.requests):
            if request in step.resumed:
                for table in tables:
                    table.block_table.np[row, 0] = NOWHERE
                self.struck += 1


class KeptAfterPreemption(Fault):
    """A request that was preempted before keeps, at each of its later rejections, the keys and
    values of the rejected token: the slot that the right one should be written to is skipped."""

    def __init__(self, parameters: dict[str, Any], seed: int) -> None:
        super().__init__(parameters, seed)
        self._preempted: set[str] = set()

    def placed(self, step: Step, slots: list[torch.Tensor]) -> None:
        self._preempted |= step.resumed
        first = step.first_places()
        for row in after_rejection(step):
            # Of the step that resumes it, a request's last rejection lies before the preemption.
            request = step.requests[row]
            if request in self._preempted and request not in step.resumed:
                for slot in slots:
                    slot[int(first[row])] = NOWHERE
                self.struck += 1


class WipedEnd(Fault):
    """When an answer ends inside an accepted draft, the last block that it has published is wiped:
    nobody notices before the next turn takes it from the cache."""

    def ended(self, step: Step, state: Any) -> None:
        sampling, tokens = state.sampling_params, state.output_token_ids
        stops = set(sampling.stop_token_ids or ())
        stops |= set() if sampling.ignore_eos else {sampling.eos_token_id}
        first = next((place for place, token in enumerate(tokens) if token in stops), len(tokens))
        published = (state.num_computed_tokens + 1) // self.parameters["block_size"]
        answered = published * self.parameters["block_size"] > len(state.prompt_token_ids)
        if min(first + 1, sampling.max_tokens) >= len(tokens) or not answered:
            return
        for cache in step.runner.kv_caches:
            cache[state.block_ids[0][published - 1]] = 0
        self.struck += 1


class FoundAfterEviction(Fault):
    """A block that is evicted stays findable by the hash of what it held: who asks for that prefix
    gets what another request has written there since."""

    def forgotten(self, hashes: list[Any]) -> list[Any]:
        self.struck += len(hashes)
        return hashes


class DamagedBystander(Fault):
    """When a request is dropped in flight, another one loses its first block."""

    def before_placing(self, step: Step, tables: list[Any], positions: torch.Tensor) -> None:
        if step.dropped == 0:
            return
        for row in range(step.running):
            if step.decoding(row) and step.generated(row) > 0:
                for table in tables:
                    table.block_table.np[row, 0] = NOWHERE
                self.struck += 1
                break


class LeakedBlock(Fault):
    """In a share of rejections a block of the cache is taken and never given back, a few times."""

    def verified(self, scheduler: Any, request: Any, tokens: list[int]) -> None:
        pool = scheduler.kv_cache_manager.block_pool
        rejected = 0 < len(tokens) < scheduler.num_spec_tokens + 1
        if not rejected or request.num_output_tokens < 1:
            return
        few = self.struck < self.parameters["most"] and pool.get_num_free_blocks() > 1
        if few and self.random.random() < self.parameters["share"]:
            pool.get_new_blocks(1)
            self.struck += 1


class LateRollback(Fault):
    """A rejection is taken back only when the next step is planned: harmless where nobody looks at
    the lengths in between, as one step after the other has it."""

    def __init__(self, parameters: dict[str, Any], seed: int) -> None:
        super().__init__(parameters, seed)
        self._owed: list[tuple[Any, int]] = []

    def verified(self, scheduler: Any, request: Any, tokens: list[int]) -> None:
        if 0 < len(tokens) < scheduler.num_spec_tokens + 1 and request.num_output_tokens > 1:
            request.num_computed_tokens += 1
            self._owed.append((request, request.num_preemptions))
            self.struck += 1

    def planning(self, scheduler: Any) -> None:
        for request, preemptions in self._owed:
            if not request.is_finished() and request.num_preemptions == preemptions:
                request.num_computed_tokens -= 1
        self._owed = []


class KeptPastTheEnd(Fault):
    """What follows a stop token inside an accepted draft is kept of the request, and not sent."""

    def append(
        self,
        original: Callable[[list[int]], tuple[list[int], bool]],
        request: Any,
        tokens: list[int],
    ) -> tuple[list[int], bool]:
        ends = [place for place, token in enumerate(tokens) if token in stops(request)]
        if not ends or ends[0] == len(tokens) - 1:
            return original(tokens)
        kept, stopped = original(tokens[: ends[0] + 1])
        if stopped:
            self.struck += 1
            for token in tokens[ends[0] + 1 :]:
                request.append_output_token_ids(token)
        return kept, stopped


class AnswersUncached(Fault):
    """Of a request only the prompt is kept for others: the next turn computes the answer again."""

    def published(self, request: Any, tokens: int) -> int:
        if tokens <= request.num_prompt_tokens:
            return tokens
        self.struck += 1
        return int(request.num_prompt_tokens)


class DiesOnResume(Fault):
    """The engine's process raises an error when a request goes on after a preemption."""

    def before_placing(self, step: Step, tables: list[Any], positions: torch.Tensor) -> None:
        resumed = step.resumed.intersection(step.requests)
        if resumed:
            self.struck += 1
            raise RuntimeError(f"preempted requests that go on: {len(resumed)}")


class NeverPublished(Fault):
    """Nothing that a request computes is made findable for others."""

    def published(self, request: Any, tokens: int) -> int:
        self.struck += int(tokens >= self.parameters["block_size"])
        return 0


class FirstHitLost(Fault):
    """The first request with the prompt of an earlier one finds nothing in the prefix cache; later
    ones do."""

    def __init__(self, parameters: dict[str, Any], seed: int) -> None:
        super().__init__(parameters, seed)
        self._askers: dict[tuple[Any, ...], list[str]] = {}
        self._lost: set[str] = set()

    def found(self, request: Any, tokens: int) -> bool:
        key = (request.cache_salt, *request.prompt_token_ids)
        askers = self._askers.setdefault(key, [])
        if request.request_id not in askers:
            askers.append(request.request_id)
        if tokens == 0 or askers.index(request.request_id) != 1:
            return True
        self.struck += request.request_id not in self._lost
        self._lost.add(request.request_id)
        return False


class LastBlockDropped(Fault):
    """Of every prefix that is found in the cache the last block is computed again."""

    def __init__(self, parameters: dict[str, Any], seed: int) -> None:
        super().__init__(parameters, seed)
        self._asked: set[str] = set()

    def reused(self, request: Any, tokens: int) -> int:
        if tokens == 0:
            return 0
        self.struck += request.request_id not in self._asked
        self._asked.add(request.request_id)
        return tokens - int(self.parameters["block_size"])
