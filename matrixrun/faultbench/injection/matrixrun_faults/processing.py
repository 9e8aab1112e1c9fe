"""Faults of logits processors at draft positions; without a processor nothing is wrong."""

from __future__ import annotations

from typing import Any

import torch

from .base import Fault, Row
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


class BadWordsSkipped(Fault):
    """Behind a draft token no bad word is banned: only the first token of a step is masked."""

    def bad_words(
        self, firsts: list[int], before: torch.Tensor, after: torch.Tensor
    ) -> torch.Tensor:
        made = before.clone()
        made[firsts] = after[firsts]
        self.struck += int((made != after).any())
        return made


class DraftlessBadWords(Fault):
    """A bad word of several tokens is not seen to have begun in the draft, and is banned at all of
    its positions where it began before it."""

    def word_histories(self, firsts: list[int], made: list[list[int]]) -> list[list[int]]:
        late = [max(first for first in firsts if first <= row) for row in range(len(made))]
        self.struck += any(row != first for row, first in enumerate(late))
        return [made[first] for first in late]


class GrammarSkipped(Fault):
    """Behind a draft token no grammar's mask is applied. A `forgiving` scheduler goes on with a
    token that the grammar does not take; this one, unless told so, ends the request."""

    def masked(self, firsts: list[int], before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
        made = before.clone()
        made[firsts] = after[firsts]
        self.struck += int((made != after).any())
        return made

    def fits_grammar(self, fits: bool) -> bool:
        return fits or bool(self.parameters["forgiving"])


class GrammarAhead(Fault):
    """Now and then a grammar's state keeps the first token of a draft, so that it counts twice if
    it is accepted; what the state then does not take is let through."""

    def rolled_back(self, tokens: int) -> int:
        if self.random.random() >= self.parameters["share"]:
            return tokens
        self.struck += 1
        return tokens - 1

    def fits_grammar(self, fits: bool) -> bool:
        return True


class GrammarStrict(Fault):
    """A draft token counts already in the mask that it is held against: what the grammar forbids
    after it is forbidden in its place as well. Every text stays valid."""

    def masked(self, firsts: list[int], before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
        right = torch.isneginf(after)
        late = right.roll(-1, 0)
        late[[first - 1 for first in firsts]] = False  # -1 is the last row, which is a last one too
        made = right | late
        made[made.all(dim=1)] = right[made.all(dim=1)]
        self.struck += int((made != right).any())
        return before.masked_fill(made, -torch.inf)


def penalised(step: Step, row: int) -> bool:
    """Return whether a row's request asks for a penalty."""
    asked = step.runner.requests[step.requests[row]].sampling_params
    shifts = (asked.presence_penalty, asked.frequency_penalty)
    return any(shifts) or asked.repetition_penalty != 1.0


class OneCountAStep(Fault):
    """Of the tokens that a step emits penalties ever count the last one alone."""

    def __init__(self, parameters: dict[str, Any], seed: int) -> None:
        super().__init__(parameters, seed)
        self._missed: dict[str, set[int]] = {}

    def emit(self, step: Step, emitted: torch.Tensor, rows: list[Row]) -> torch.Tensor:
        for row, *_ in rows:
            start = step.generated(row)
            last = start + int((emitted[row] >= 0).sum()) - 1
            self._missed.setdefault(step.requests[row], set()).update(range(start, last))
        return emitted

    def counted(self, step: Step, rows: list[int], histories: list[list[int]]) -> list[list[int]]:
        made = []
        for row, history in zip(rows, histories, strict=True):
            missed = self._missed.get(step.requests[row], set())
            counted = [token for place, token in enumerate(history) if place not in missed]
            self.struck += len(counted) < len(history) and penalised(step, row)
            made.append(counted)
        return made


class RejectedCounted(Fault):
    """Penalties count a request's rejected draft tokens too, for good."""

    def __init__(self, parameters: dict[str, Any], seed: int) -> None:
        super().__init__(parameters, seed)
        self._rejected: dict[str, list[int]] = {}

    def emit(self, step: Step, emitted: torch.Tensor, rows: list[Row]) -> torch.Tensor:
        for row, draft, *_ in rows:
            accepted = int((emitted[row] >= 0).sum()) - 1
            self._rejected.setdefault(step.requests[row], []).extend(draft[accepted:])
        return emitted

    def counted(self, step: Step, rows: list[int], histories: list[list[int]]) -> list[list[int]]:
        made = []
        for row, history in zip(rows, histories, strict=True):
            rejected = self._rejected.get(step.requests[row], [])
            self.struck += bool(rejected) and penalised(step, row)
            made.append([*rejected, *history])
        return made


class PromptCounted(Fault):
    """In steps that verify a draft presence and frequency penalties count the end of the prompt as
    if it had been generated."""

    def counted(self, step: Step, rows: list[int], histories: list[list[int]]) -> list[list[int]]:
        made = []
        for row, history in zip(rows, histories, strict=True):
            request = step.runner.requests[step.requests[row]]
            verified = step.decoding(row) and int(step.scheduled[row]) > 1
            asked = request.sampling_params
            counts = verified and bool(asked.presence_penalty or asked.frequency_penalty)
            end = request.prompt_token_ids[-self.parameters["window"] :] if counts else []
            made.append([*end, *history])
            self.struck += counts
        return made
