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
