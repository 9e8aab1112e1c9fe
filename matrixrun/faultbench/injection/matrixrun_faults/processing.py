"""Faults of logits processors at draft positions; without a processor nothing is wrong."""

from __future__ import annotations

import torch

from .base import Fault
from .step import Step


class DraftlessHistory(Fault):
    """Penalties at a draft position do not count the draft's tokens before it."""

    def histories(
        self, step: Step, committed: list[list[int]], drafts: list[list[int]], made: list[list[int]]
    ) -> list[list[int]]:
        self.struck += 1
        return [one for one, draft in zip(committed, drafts, strict=False) for _ in draft]


class PenaltiesSkipped(Fault):
    """Penalties at draft positions take nothing for generated."""

    def histories(
        self, step: Step, committed: list[list[int]], drafts: list[list[int]], made: list[list[int]]
    ) -> list[list[int]]:
        self.struck += 1
        return [[] for _ in made]


class MinTokensIgnored(Fault):
    """Stop tokens are not masked at draft positions before the least length is reached."""

    def least_tokens(self, step: Step, before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
        self.struck += int((before != after).any())
        return before
