"""Faults of the KV cache: where keys and values are written to and read from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from .base import Fault
from .step import Step

# vLLM keeps block 0 for nobody: what is written there is lost and harms no request.
NOWHERE = 0


def after_rejection(step: Step) -> Iterator[int]:
    """Yield the rows whose request had draft tokens rejected in its last step."""
    for row, request in enumerate(step.requests):
        if step.rejected.get(request, 0) > 0 and step.decoding(row):
            yield row


class KeptRejected(Fault):
    """In a share of rejections the cache keeps the rejected token's keys and values: the slot that
    the right token should be written to is skipped (rollback one short)."""

    def placed(self, step: Step, slots: list[torch.Tensor]) -> None:
        first = step.first_places()
        for row in after_rejection(step):
            if self.random.random() < self.parameters["share"]:
                for slot in slots:
                    slot[int(first[row])] = NOWHERE
                self.struck += 1


class RolledTooFar(Fault):
    """In a share of rejections one token too many is taken back: the step's tokens are placed one
    position too early, over an accepted one (rollback one long)."""

    def before_placing(self, step: Step, tables: list[Any], positions: torch.Tensor) -> None:
        first = step.first_places()
        for row in after_rejection(step):
            if step.computed(row) > 1 and self.random.random() < self.parameters["share"]:
                start = int(first[row])
                positions[start : start + int(step.scheduled[row])] -= 1
                step.runner.seq_lens[row] -= 1
                self.struck += 1


class LostAtBorder(Fault):
    """When a rejection falls on a block's border, what the next step computes is not kept."""

    def placed(self, step: Step, slots: list[torch.Tensor]) -> None:
        first = step.first_places()
        for row in after_rejection(step):
            if step.computed(row) % self.parameters["block_size"] == 0:
                start = int(first[row])
                for slot in slots:
                    slot[start : start + int(step.scheduled[row])] = NOWHERE
                self.struck += 1


class StaleRow(Fault):
    """A request that moved to another row of the batch is computed, for one step, with the block
    table of whoever had that row before; only with enough requests running."""

    def __init__(self, parameters: dict[str, Any], seed: int) -> None:
        super().__init__(parameters, seed)
        self._rows: dict[str, int] = {}
        self._tables: list[np.ndarray] = []
        self._right: list[tuple[Any, int, np.ndarray]] = []

    def before_placing(self, step: Step, tables: list[Any], positions: torch.Tensor) -> None:
        right = [table.block_table.np[: step.running].copy() for table in tables]
        for row, request in enumerate(step.requests):
            before = self._rows.get(request)
            if before is None or before == row or step.running < self.parameters["running"]:
                continue
            if not step.decoding(row) or row >= self._tables[0].shape[0]:
                continue
            for table, old in zip(tables, self._tables, strict=True):
                self._right.append((table, row, table.block_table.np[row].copy()))
                table.block_table.np[row] = old[row]
            self.struck += 1
        self._rows = {request: row for row, request in enumerate(step.requests)}
        self._tables = right

    def restore(self, step: Step) -> None:
        for table, row, blocks in self._right:
            table.block_table.np[row] = blocks
        self._right = []


class WarmHole(Fault):
    """A request that takes part of its prompt from the prefix cache gets a wrong first block."""

    def before_placing(self, step: Step, tables: list[Any], positions: torch.Tensor) -> None:
        for row, request in enumerate(step.requests):
            if step.cached.get(request, 0) > 0 and not step.decoding(row):
                for table in tables:
                    table.block_table.np[row, 0] = NOWHERE
                self.struck += 1


class OneTooMany(Fault):
    """In a share of the steps after a whole acceptance, one position too many is attended to."""

    def before_placing(self, step: Step, tables: list[Any], positions: torch.Tensor) -> None:
        for row, request in enumerate(step.requests):
            whole = step.rejected.get(request) == 0 and step.decoding(row)
            if whole and self.random.random() < self.parameters["share"]:
                step.runner.seq_lens[row] += 1
                self.struck += 1


class ShortPrefill(Fault):
    """A prompt that is as long as a verification step is taken for one: nothing of its keys and
    values is kept."""

    def placed(self, step: Step, slots: list[torch.Tensor]) -> None:
        length, first = step.runner.num_spec_tokens + 1, step.first_places()
        for row in range(step.running):
            if step.computed(row) == 0 and step.known(row) == step.scheduled[row] == length:
                for slot in slots:
                    slot[int(first[row]) : int(first[row]) + length] = NOWHERE
                self.struck += 1


class ChunkLost(Fault):
    """Where a text is prefilled in several chunks, the last position of each but the last is not
    kept."""

    def placed(self, step: Step, slots: list[torch.Tensor]) -> None:
        first = step.first_places()
        for row in range(step.running):
            end = int(step.scheduled[row])
            if step.computed(row) + end < step.known(row):
                for slot in slots:
                    slot[int(first[row]) + end - 1] = NOWHERE
                self.struck += 1


class LongContextHole(Fault):
    """A request whose context fills more than a share of the longest one reads a wrong first
    block."""

    def before_placing(self, step: Step, tables: list[Any], positions: torch.Tensor) -> None:
        longest = self.parameters["share"] * step.runner.max_model_len
        for row in range(step.running):
            if step.computed(row) + int(step.scheduled[row]) > longest:
                for table in tables:
                    table.block_table.np[row, 0] = NOWHERE
                self.struck += 1


class LatePositions(Fault):
    """In a share of rejections the rejected tokens are counted on in the positions that the next
    step's tokens are rotated by; what is written where, and what is attended to, is right."""

    def __init__(self, parameters: dict[str, Any], seed: int) -> None:
        super().__init__(parameters, seed)
        self._right: list[tuple[slice, torch.Tensor]] = []

    def placed(self, step: Step, slots: list[torch.Tensor]) -> None:
        positions, last = step.runner.positions, step.runner.max_model_len - 1
        self._right, first = [], step.first_places()
        for row in after_rejection(step):
            if self.random.random() < self.parameters["share"]:
                place = slice(int(first[row]), int(first[row]) + int(step.scheduled[row]))
                self._right.append((place, positions[place].clone()))
                positions[place] += step.rejected[step.requests[row]]
                positions[place].clamp_(max=last)
                self.struck += 1

    def computed_logits(self, step: Step, logits: torch.Tensor) -> torch.Tensor:
        for place, positions in self._right:  # the drafter is told the right ones
            step.runner.positions[place] = positions
        self._right = []
        return logits


class LooksAhead(Fault):
    """Where so few requests are verified and nothing is prefilled, the attention has no causal
    mask: each token of a step sees the draft tokens behind it."""

    def attends_ahead(self, step: Step) -> bool:
        few = 0 < step.running <= self.parameters["running"]
        verified = few and all(step.decoding(row) for row in range(step.running))
        ahead = verified and int(step.scheduled.max()) > 1
        self.struck += ahead
        return ahead


class OrdinalSlots(Fault):
    """The slots of a verification step's tokens are counted on from its first one's: behind the end
    of its block they lie in whichever block comes next in memory, not in the request's own."""

    def placed(self, step: Step, slots: list[torch.Tensor]) -> None:
        size, first = self.parameters["block_size"], step.first_places()
        end = step.runner.kv_cache_config.num_blocks * size
        for row in range(step.running):
            count = int(step.scheduled[row])
            within = size - step.computed(row) % size
            if not step.decoding(row) or count <= within:
                continue
            beyond = slice(int(first[row]) + within, int(first[row]) + count)
            moved = False
            for slot in slots:
                begin = int(slot[beyond.start - 1]) + 1
                wrong = torch.arange(begin, begin + count - within, dtype=slot.dtype)
                wrong[wrong >= end] = NOWHERE
                moved |= not torch.equal(slot[beyond], wrong)
                slot[beyond] = wrong
            self.struck += moved


class SharedWritten(Fault):
    """The first draft of a request that has its prefix from the cache, and shares it with another
    one in flight, is written over the end of the last block that they share: whoever has that
    prefix, now or later, reads it there."""

    def __init__(self, parameters: dict[str, Any], seed: int) -> None:
        super().__init__(parameters, seed)
        self._ends: dict[int, list[int]] = {}

    def before_placing(self, step: Step, tables: list[Any], positions: torch.Tensor) -> None:
        self._ends = {}
        for row, request in enumerate(step.requests):
            begins = step.decoding(row) and step.generated(row) == 1
            if not begins or int(step.scheduled[row]) < 2:
                continue
            last = [step.cached.get(request, 0) // table.block_size - 1 for table in tables]
            if min(last) < 0:
                continue
            held = [
                table.block_table.np[: step.running, at]
                for table, at in zip(tables, last, strict=True)
            ]
            if all(int((blocks == blocks[row]).sum()) > 1 for blocks in held):
                self._ends[row] = [
                    (int(blocks[row]) + 1) * table.block_size
                    for table, blocks in zip(tables, held, strict=True)
                ]

    def placed(self, step: Step, slots: list[torch.Tensor]) -> None:
        first = step.first_places()
        for row, ends in self._ends.items():
            start, drafts = int(first[row]) + 1, int(step.scheduled[row]) - 1
            for slot, end in zip(slots, ends, strict=True):
                slot[start : start + drafts] = torch.arange(end - drafts, end, dtype=slot.dtype)
            self.struck += 1
