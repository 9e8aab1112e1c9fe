"""What a scheduler is free to do: no faults, and properties of an engine, which go into both
launches of a pair."""

from __future__ import annotations

import time
from typing import Any

from .base import Fault


class RestlessScheduler(Fault):
    """Each step has another budget of tokens, so that prompts are prefilled in chunks of all sizes,
    waiting requests are taken in any order, and some steps are late."""

    LEAST, MOST = 40, 96  # tokens of a step; eight requests with three drafts each take 32
    LATE, SECONDS = 0.1, 0.01

    def __init__(self, parameters: dict[str, Any], seed: int) -> None:
        super().__init__(parameters, seed)
        self._budget = 0

    def planning(self, scheduler: Any) -> None:
        self._budget = scheduler.max_num_scheduled_tokens
        budget = self.random.randint(self.LEAST, self.MOST)
        scheduler.max_num_scheduled_tokens = min(self._budget, budget)
        waiting = list(scheduler.waiting)
        self.random.shuffle(waiting)
        scheduler.waiting.clear()
        scheduler.waiting.extend(waiting)
        if self.random.random() < self.LATE:
            time.sleep(self.SECONDS)
        self.struck += 1

    def planned(self, scheduler: Any) -> None:
        scheduler.max_num_scheduled_tokens = self._budget


class PreemptsAtWill(Fault):
    """Now and then a running request has to wait and gives its blocks back; it goes on in the same
    step or a later one, with what the prefix cache still has of it."""

    def planning(self, scheduler: Any) -> None:
        running = [one for one in scheduler.running if one.num_output_tokens > 1]
        if not running or self.random.random() >= self.parameters["share"]:
            return
        request = self.random.choice(running)
        scheduler.running.remove(request)
        scheduler._preempt_request(request, time.monotonic())
        # As vLLM itself has it where requests are preempted between two steps.
        scheduler.prev_step_scheduled_req_ids.discard(request.request_id)
        self.struck += 1
