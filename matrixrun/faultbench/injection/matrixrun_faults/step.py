"""What is known about the engine's current step."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np


@dataclass
class Step:
    """The runner's batch in this step; row i is request `requests[i]`.

    `scheduled` [rows] is the number of tokens computed for each row, `rejected` the draft tokens
    rejected in each request's last verification, `cached` the prompt tokens that each request took
    from the prefix cache, `order` the number of each request in order of arrival, `resumed` those
    that go on after a preemption, `dropped` how many were called off before this step, `named` the
    requests in the order that the scheduler names them.
    """

    runner: Any = None
    requests: list[str] = field(default_factory=list)
    scheduled: np.ndarray = field(default_factory=lambda: np.zeros(0, np.int64))
    rejected: dict[str, int] = field(default_factory=dict)
    cached: dict[str, int] = field(default_factory=dict)
    order: dict[str, int] = field(default_factory=dict)
    resumed: frozenset[str] = frozenset()
    dropped: int = 0
    named: list[str] = field(default_factory=list)

    @property
    def running(self) -> int:
        """Requests in the batch."""
        return len(self.requests)

    def computed(self, row: int) -> int:
        """Return the tokens of a row's request whose KV is taken for computed."""
        return int(self.runner.input_batch.num_computed_tokens_cpu[row])

    def generated(self, row: int) -> int:
        """Return how many tokens a row's request has generated."""
        return len(self.runner.requests[self.requests[row]].output_token_ids)

    def known(self, row: int) -> int:
        """Return how many tokens of a row's request are known: its prompt, and what it has
        generated."""
        return int(self.runner.requests[self.requests[row]].num_tokens)

    def decoding(self, row: int) -> bool:
        """Return whether a row's prompt has been computed already."""
        return self.computed(row) >= int(self.runner.input_batch.num_prompt_tokens[row])

    def first_places(self) -> np.ndarray:
        """Return where each row's tokens begin among those of the step [rows]."""
        ends: np.ndarray = np.cumsum(self.scheduled)
        return np.asarray(ends - self.scheduled)
