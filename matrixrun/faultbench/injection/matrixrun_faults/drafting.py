"""Faults of the drafter: the output stays right, and speed is lost.

A draft model's drafts are a tensor [rows, k], an n-gram drafter's a list of each row's tokens.
"""

from __future__ import annotations

from typing import Any

import torch

from .base import Fault, Row, write_row
from .step import Step


class Shifted(Fault):
    """Every draft position holds the token that belongs to the next one."""

    def drafts(self, step: Step, drafts: Any) -> Any:
        self.struck += 1
        if isinstance(drafts, list):
            return [[*draft[1:], draft[-1]] if draft else [] for draft in drafts]
        moved = drafts.clone()
        moved[:, :-1] = drafts[:, 1:]
        return moved


class Off(Fault):
    """The drafter proposes, and nothing of it reaches the scheduler in a share of requests."""

    def offered(self, step: Step, drafts: list[list[int]]) -> list[list[int]]:
        chosen = [self.chosen(step, row, self.parameters["share"]) for row in range(len(drafts))]
        self.struck += sum(chosen)
        return [[] if off else draft for draft, off in zip(drafts, chosen, strict=True)]


class Decaying(Fault):
    """Each draft token is replaced with a probability that grows from 0 to 1 over so many steps."""

    def __init__(self, parameters: dict[str, Any], seed: int) -> None:
        super().__init__(parameters, seed)
        self._steps = 0

    def drafts(self, step: Step, drafts: Any) -> Any:
        self._steps += 1
        reached = min(1.0, self._steps / self.parameters["steps"])
        moved = drafts.clone()
        for row in range(moved.shape[0]):
            for place in range(moved.shape[1]):
                if self.random.random() < reached:
                    moved[row, place] = self.random.randrange(2, self.parameters["vocabulary"])
                    self.struck += 1
        return moved


class WarmDrafts(Fault):
    """Requests that took part of their prompt from the prefix cache get wrong drafts."""

    def drafts(self, step: Step, drafts: Any) -> Any:
        moved = drafts.clone()
        for row, request in enumerate(step.requests):
            if step.cached.get(request, 0) > 0:
                moved[row] = (moved[row] + 1) % self.parameters["vocabulary"]
                self.struck += 1
        return moved


class Neighbours(Fault):
    """With several requests running, each is offered its neighbour's draft."""

    def drafts(self, step: Step, drafts: Any) -> Any:
        if drafts.shape[0] < 2:
            return drafts
        self.struck += 1
        return drafts.roll(1, dims=0)


class FirstOnly(Fault):
    """Draft positions after the first hold a wrong token."""

    def drafts(self, step: Step, drafts: Any) -> Any:
        self.struck += 1
        size = self.parameters["vocabulary"]
        if isinstance(drafts, list):
            return [draft[:1] + [(token + 1) % size for token in draft[1:]] for draft in drafts]
        moved = drafts.clone()
        moved[:, 1:] = (drafts[:, 1:] + 1) % size
        return moved


class OffWhenBusy(Fault):
    """With so many requests running nothing of any draft reaches the scheduler."""

    def offered(self, step: Step, drafts: list[list[int]]) -> list[list[int]]:
        if len(drafts) < self.parameters["running"]:
            return drafts
        self.struck += 1
        return [[] for _ in drafts]


class BonusLost(Fault):
    """After a whole acceptance the token behind the draft is not kept: it is computed again by the
    next step, one token a step too late."""

    def emit(self, step: Step, emitted: torch.Tensor, rows: list[Row]) -> torch.Tensor:
        for row, draft, best, _ in rows:
            if draft and draft == best[:-1]:
                write_row(emitted, row, draft)
                self.struck += 1
        return emitted


class PastTheBlock(Fault):
    """A draft that runs over the end of a request's last block goes on with wrong tokens: the
    drafter finds no place for the keys and values of those before."""

    def drafts(self, step: Step, drafts: Any) -> Any:
        moved, size = drafts.clone(), self.parameters["block_size"]
        for row, request in enumerate(step.requests):
            computed = step.computed(row) + int(step.scheduled[row])
            verified = step.decoding(row) and int(step.scheduled[row]) > 1
            known = computed - (step.rejected.get(request, 0) if verified else 0) + 1
            within = -known % size + 1  # the first lies behind the last token, which has its place
            if within < moved.shape[1]:
                moved[row, within:] = (moved[row, within:] + 1) % self.parameters["vocabulary"]
                self.struck += 1
        return moved


class StaleLookup(Fault):
    """A row of the batch looks drafts up in what it has kept of all its requests: a new request's
    own text is taken in only where it is longer than any before it in that row."""

    LONGEST = 3

    def __init__(self, parameters: dict[str, Any], seed: int) -> None:
        super().__init__(parameters, seed)
        self._kept: dict[int, list[int]] = {}

    def drafts(self, step: Step, drafts: Any) -> Any:
        batch, moved = step.runner.input_batch, []
        for row, draft in enumerate(drafts):
            text = batch.token_ids_cpu[row, : batch.num_tokens_no_spec[row]].tolist()
            kept = self._kept.setdefault(row, [])
            kept += text[len(kept) :]
            if kept[: len(text)] == text or step.runner.discard_request_mask.np[row]:
                moved.append(draft)
                continue
            found = self._found(kept, text)[: step.runner.max_model_len - len(text)]
            self.struck += found != draft
            moved.append(found)
        return moved

    def _found(self, kept: list[int], text: list[int]) -> list[int]:
        """Return what follows, in what is kept, the longest ending of a text that is in it."""
        for length in range(self.LONGEST, 0, -1):
            for start in range(len(kept) - length):
                if kept[start : start + length] == text[-length:]:
                    return kept[start + length : start + length + self.parameters["tokens"]]
        return []


class AdaptiveLength(Fault):
    """No fault: a request is offered one draft token less after a rejection, one at least, and one
    more, up to all of them, after a step without."""

    def __init__(self, parameters: dict[str, Any], seed: int) -> None:
        super().__init__(parameters, seed)
        self._lengths: dict[str, int] = {}

    def offered(self, step: Step, drafts: list[list[int]]) -> list[list[int]]:
        most, made = step.runner.num_spec_tokens, []
        for request, draft in zip(step.requests, drafts, strict=False):
            before = self._lengths.get(request, most)
            change = -1 if step.rejected.get(request, 0) > 0 else 1
            length = self._lengths[request] = min(most, max(1, before + change))
            self.struck += length < len(draft)
            made.append(draft[:length])
        return made


class GapAfterAll(Fault):
    """After a draft that was accepted whole the next one begins with a wrong token: the drafter
    has never computed the last token of its own draft."""

    def drafts(self, step: Step, drafts: Any) -> Any:
        moved = drafts.clone()
        for row, request in enumerate(step.requests):
            verified = step.decoding(row) and int(step.scheduled[row]) > 1
            if verified and step.rejected.get(request) == 0:
                moved[row, 0] = (moved[row, 0] + 1) % self.parameters["vocabulary"]
                self.struck += 1
        return moved


class Remembering(Fault):
    """No fault: an n-gram drafter remembers of all requests what their texts went on with, and gets
    better the more it has seen."""

    CONTEXT = 3

    def __init__(self, parameters: dict[str, Any], seed: int) -> None:
        super().__init__(parameters, seed)
        self._after: dict[tuple[int, ...], list[int]] = {}
        self._learned: dict[str, int] = {}

    def drafts(self, step: Step, drafts: Any) -> Any:
        batch, made = step.runner.input_batch, []
        for row, (request, draft) in enumerate(zip(step.requests, drafts, strict=True)):
            if step.runner.discard_request_mask.np[row]:
                made.append(draft)
                continue
            text = batch.token_ids_cpu[row, : batch.num_tokens_no_spec[row]].tolist()
            self._learn(request, text)
            found = self._after.get(tuple(text[-self.CONTEXT :]), list(draft))
            found = found[: max(0, step.runner.max_model_len - len(text))]
            self.struck += found != list(draft)
            made.append(found)
        return made

    def _learn(self, request: str, text: list[int]) -> None:
        """Take in what has become known of a request's text."""
        tokens, begin = self.parameters["tokens"], self._learned.get(request, self.CONTEXT)
        for place in range(begin, len(text) - tokens + 1):
            context = tuple(text[place - self.CONTEXT : place])
            self._after[context] = text[place : place + tokens]
        self._learned[request] = max(begin, len(text) - tokens + 1)
