"""What a fault may reach into. The base class does nothing anywhere: it is the healthy engine."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from .step import Step


class Row(NamedTuple):
    """A row of the batch in verification: its draft tokens, the target's own tokens at the same
    places and at the one after them, and by how many nats each draft token is `behind` those."""

    place: int
    draft: list[int]
    best: list[int]
    behind: list[float]


class Fault:
    """A fault, active in one pass; `struck` counts how often it did something."""

    def __init__(self, parameters: dict[str, Any], seed: int) -> None:
        self.parameters = parameters
        self.seed = seed
        self.random = random.Random(seed)
        self.struck = 0
        self.steps_seen = 0

    def chosen(self, step: Step, row: int, share: float) -> bool:
        """Return whether a row's request belongs to the given share of requests, for its life."""
        number = step.order.get(step.requests[row], 0)
        return zlib.crc32(f"{self.seed}.{number}".encode()) % 10_000 < share * 10_000

    def restore(self, step: Step) -> None:
        """Undo, before the next step, what must not outlast one."""

    def drafts(self, step: Step, drafts: Any) -> Any:
        """Change what the drafter proposed, [rows, k]."""
        return drafts

    def offered(self, step: Step, drafts: list[list[int]]) -> list[list[int]]:
        """Change what the scheduler is told of the drafts, one list a request."""
        return drafts

    def computed_logits(self, step: Step, logits: torch.Tensor) -> torch.Tensor:
        """Change the target's logits, those that value a given text included,
        [positions, vocabulary]."""
        return logits

    def verified_logits(self, step: Step, counts: list[int], logits: torch.Tensor) -> torch.Tensor:
        """Change the logits that drafts are verified against; row i owns `counts[i] + 1` rows."""
        return logits

    def expanded(self, field: str, right: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
        """Change the `temperature`, `top_k` or `top_p` of the draft positions: `right` ones, `own`
        the engine's, which vLLM 0.32 leaves uninitialised on a CPU."""
        return right

    def uniforms(self, step: Step, counts: list[int], uniforms: torch.Tensor) -> torch.Tensor:
        """Change the random numbers that drafts are accepted by above temperature 0, one for each
        draft token; row i owns `counts[i]` of them."""
        return uniforms

    def recovered(
        self,
        step: Step,
        counts: list[int],
        drafts: torch.Tensor,
        law: torch.Tensor,
        tokens: torch.Tensor,
    ) -> torch.Tensor:
        """Change what is drawn where a draft token is rejected above temperature 0, [positions],
        given the target's `law` there, [positions, vocabulary]."""
        return tokens

    def histories(
        self, step: Step, committed: list[list[int]], drafts: list[list[int]], made: list[list[int]]
    ) -> list[list[int]]:
        """Change what penalties take for generated at each draft position: `made` are the
        committed tokens of its request with the draft's tokens before it."""
        return made

    def least_tokens(self, step: Step, before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
        """Change the logits at draft positions after stop tokens were masked there."""
        return after

    def counted(self, step: Step, rows: list[int], histories: list[list[int]]) -> list[list[int]]:
        """Change the tokens that penalties count, one list for each of some logits, each of which
        belongs to the request of one of the `rows`."""
        return histories

    def bad_words(
        self, firsts: list[int], before: torch.Tensor, after: torch.Tensor
    ) -> torch.Tensor:
        """Change the logits at draft positions after bad words were banned there; each request's
        rows begin at one of `firsts`."""
        return after

    def word_histories(self, firsts: list[int], made: list[list[int]]) -> list[list[int]]:
        """Change what bad words take for generated at each draft position."""
        return made

    def masked(self, firsts: list[int], before: torch.Tensor, after: torch.Tensor) -> torch.Tensor:
        """Change the logits after a grammar's masks; each request's rows begin at one of `firsts`,
        and the others are those behind draft tokens."""
        return after

    def rolled_back(self, tokens: int) -> int:
        """Change how many draft tokens a grammar's state forgets after its masks are made."""
        return tokens

    def fits_grammar(self, fits: bool) -> bool:
        """Change what the scheduler is told of new tokens: whether the grammar takes them."""
        return fits

    def emit(self, step: Step, emitted: torch.Tensor, rows: list[Row]) -> torch.Tensor:
        """Change what verification emits, [rows, k + 1], -1 where nothing is emitted."""
        return emitted

    def told_logits(
        self, step: Step, counts: list[int], emitted: torch.Tensor, logits: torch.Tensor
    ) -> torch.Tensor:
        """Change the logits that reported logprobs are made of, where some are asked for; row i
        owns `counts[i] + 1` rows."""
        return logits

    def before_placing(self, step: Step, tables: list[Any], positions: torch.Tensor) -> None:
        """Change block tables and positions of the step before slots are computed."""

    def placed(self, step: Step, slots: list[torch.Tensor]) -> None:
        """Change the slots that the step's keys and values are written to, one tensor a group."""

    def attends_ahead(self, step: Step) -> bool:
        """Return whether the target's attention in this step has no causal mask."""
        return False

    def ended(self, step: Step, state: Any) -> None:
        """Do something when the runner learns that a request of which it holds `state` is over."""

    def append(
        self,
        original: Callable[[list[int]], tuple[list[int], bool]],
        request: Any,
        tokens: list[int],
    ) -> tuple[list[int], bool]:
        """Append new tokens to a request; returns those kept and whether the request stopped."""
        return original(tokens)

    def planning(self, scheduler: Any) -> None:
        """Do something before the scheduler plans a step."""

    def planned(self, scheduler: Any) -> None:
        """Undo, once a step is planned, what must not outlast the planning."""

    def verified(self, scheduler: Any, request: Any, tokens: list[int]) -> None:
        """Do something after a step's new tokens were appended to a request."""

    def found(self, request: Any, tokens: int) -> bool:
        """Return whether the `tokens` that the prefix cache holds of a request are found."""
        return True

    def reused(self, request: Any, tokens: int) -> int:
        """Change how many of the `tokens` that the prefix cache holds of a request are taken from
        it, whole blocks of them."""
        return tokens

    def read(
        self,
        original: Callable[[list[int], bool], str | None],
        detokeniser: Any,
        tokens: list[int],
        ended: bool,
    ) -> str | None:
        """Add tokens to an answer's text, `ended` where the last one ends it; returns the stop
        string that they complete."""
        return original(tokens, ended)

    def piece(self, tokens: list[int], text: str, decode: Callable[[list[int]], str]) -> str:
        """Change the text that a part of a stream adds with these tokens."""
        return text

    def part(self, request: str, tokens: list[int], text: str, last: bool) -> str:
        """Change the text that a part of a request's stream adds, the `last` one or not."""
        return text

    def delta(self, tokens: list[int], text: str, message: Any) -> Any:
        """Change what the parsers of a chat make of a part of a stream: a message or None."""
        return message

    def published(self, request: Any, tokens: int) -> int:
        """Change how many tokens of a request are made findable for others."""
        return tokens

    def forgotten(self, hashes: list[Any]) -> list[Any]:
        """Return by which of the `hashes` of an evicted block it is to be found all the same."""
        return []


def write_row(emitted: torch.Tensor, row: int, tokens: list[int]) -> None:
    """Make a row of what is emitted hold these tokens and nothing else."""
    tokens = tokens[: emitted.shape[1]]
    emitted[row] = -1
    emitted[row, : len(tokens)] = torch.tensor(tokens, dtype=emitted.dtype)
