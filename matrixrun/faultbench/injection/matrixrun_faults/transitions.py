"""Faults of the engine's transitions: preemption, dropped requests, rejections, the end of a turn.
Nothing happens where prompts are answered one after the other and nothing is in the way."""

from __future__ import annotations

from typing import Any

import torch

from .base import Fault
from .memory import NOWHERE
from .step import Step


class DamagedOnResume(Fault):
    """A request that was preempted and goes on is computed with a wrong first block."""

    def before_placing(self, step: Step, tables: list[Any], positions: torch.Tensor) -> None:
        for row in range(step.running):
            if step.generated(row) > 0 and not step.decoding(row):
                for table in tables:
                    table.block_table.np[row, 0] = NOWHERE
                self.struck += 1


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
    """In a share of rejections a block of the cache is taken and never given back."""

    def verified(self, scheduler: Any, request: Any, tokens: list[int]) -> None:
        pool = scheduler.kv_cache_manager.block_pool
        rejected = 0 < len(tokens) < scheduler.num_spec_tokens + 1
        if not rejected or self.random.random() >= self.parameters["share"]:
            return
        if self.struck < self.parameters["most"] and pool.get_num_free_blocks() > 1:
            pool.get_new_blocks(1)
            self.struck += 1


class AnswersUncached(Fault):
    """Of a request only the prompt is kept for others: the next turn computes the answer again."""

    def published(self, request: Any, tokens: int) -> int:
        if tokens <= request.num_prompt_tokens:
            return tokens
        self.struck += 1
        return int(request.num_prompt_tokens)
