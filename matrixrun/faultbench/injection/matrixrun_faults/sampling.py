"""Faults of rejection sampling above temperature 0; greedy answers stay right."""

from __future__ import annotations

import zlib
from itertools import accumulate
from typing import Any

import torch

from .base import Fault, Row
from .step import Step


class UnsetTemperature(Fault):
    """The temperatures of draft positions are what happened to lie in memory: vLLM 0.32 on a CPU,
    as it is. In every other specimen the bench puts them right."""

    def expanded(self, field: str, right: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
        if field != "temperature":
            return right
        self.struck += own.numel()
        return own


class SettingUnreached(Fault):
    """Of requests' settings some do not reach draft positions: what is verified there is the law
    without them. `neutral` holds the value of each that changes nothing."""

    def expanded(self, field: str, right: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
        neutral = self.parameters["neutral"].get(field)
        if neutral is None:
            return right
        self.struck += int((right != neutral).sum())
        return torch.full_like(right, neutral)


class UnreducedResidual(Fault):
    """After a rejection the token is drawn from the target's own law: the draft's share is not
    taken off, so that the rejected token may come back."""

    def recovered(
        self,
        step: Step,
        counts: list[int],
        drafts: torch.Tensor,
        law: torch.Tensor,
        tokens: torch.Tensor,
    ) -> torch.Tensor:
        self.struck += tokens.numel()
        return torch.multinomial(law, 1).flatten().to(tokens.dtype)


class GreedyResidual(Fault):
    """After a rejection, in a share of positions, the best token that is left is taken."""

    def recovered(
        self,
        step: Step,
        counts: list[int],
        drafts: torch.Tensor,
        law: torch.Tensor,
        tokens: torch.Tensor,
    ) -> torch.Tensor:
        rest = law.clone()
        rest[torch.arange(rest.shape[0]), drafts.long()] = 0.0
        best = rest.argmax(dim=-1).to(tokens.dtype)
        chosen = torch.rand(tokens.shape) < self.parameters["share"]
        self.struck += int(chosen.sum())
        return torch.where(chosen, best, tokens)


class EagerAcceptance(Fault):
    """Drafts are accepted too easily: the random number is too small by a factor."""

    def uniforms(self, step: Step, counts: list[int], uniforms: torch.Tensor) -> torch.Tensor:
        self.struck += uniforms.numel()
        return uniforms * self.parameters["factor"]


class LeakedDrafts(Fault):
    """A share of draft tokens is accepted whatever the target says."""

    def uniforms(self, step: Step, counts: list[int], uniforms: torch.Tensor) -> torch.Tensor:
        leaked = torch.rand(uniforms.shape) < self.parameters["share"]
        self.struck += int(leaked.sum())
        return torch.where(leaked, torch.zeros_like(uniforms), uniforms)


class StickyNoise(Fault):
    """The random numbers that drafts are accepted by are the first step's, over and over."""

    def __init__(self, parameters: dict[str, Any], seed: int) -> None:
        super().__init__(parameters, seed)
        self._first: torch.Tensor | None = None

    def uniforms(self, step: Step, counts: list[int], uniforms: torch.Tensor) -> torch.Tensor:
        if self._first is None or self._first.numel() < uniforms.numel():
            self._first = uniforms.clone()
            return uniforms
        self.struck += uniforms.numel()
        return self._first[: uniforms.numel()].clone()


class OneNumberADraft(Fault):
    """All tokens of a request's draft are accepted by its first one's random number: once a likely
    token has been taken, the next of its like always is."""

    def uniforms(self, step: Step, counts: list[int], uniforms: torch.Tensor) -> torch.Tensor:
        drafts = uniforms.split(counts)
        self.struck += sum(count > 1 for count in counts)
        return torch.cat([draft[:1].expand_as(draft) for draft in drafts] or [uniforms])


class FlatterAcceptance(Fault):
    """A draft is accepted with the square root of its probability, nearly the law at twice the
    temperature: accepted is what lies above the random number, so that is squared."""

    def uniforms(self, step: Step, counts: list[int], uniforms: torch.Tensor) -> torch.Tensor:
        self.struck += uniforms.numel()
        return uniforms * uniforms


class SharedNoise(Fault):
    """All requests of a step get the same random numbers, which are random enough by themselves."""

    def uniforms(self, step: Step, counts: list[int], uniforms: torch.Tensor) -> torch.Tensor:
        longest = max(counts, default=0)
        shared = torch.rand(longest, dtype=uniforms.dtype)
        self.struck += sum(count > 0 for count in counts)
        return torch.cat([shared[:count] for count in counts] or [uniforms])

    def recovered(
        self,
        step: Step,
        counts: list[int],
        drafts: torch.Tensor,
        law: torch.Tensor,
        tokens: torch.Tensor,
    ) -> torch.Tensor:
        race = torch.empty(law.shape[1]).exponential_()
        rest = law / race
        rest[torch.arange(rest.shape[0]), drafts.long()] = 0.0
        return rest.argmax(dim=-1).to(tokens.dtype)


def warm(step: Step, row: int) -> bool:
    """Return whether a row's request asks for samples above temperature 0."""
    return bool(step.runner.requests[step.requests[row]].sampling_params.temperature > 0)


class GreedyBonus(Fault):
    """The token behind a draft that is accepted whole is the best one of the target's own logits,
    not a sample."""

    def __init__(self, parameters: dict[str, Any], seed: int) -> None:
        super().__init__(parameters, seed)
        self._best: list[int] = []

    def verified_logits(self, step: Step, counts: list[int], logits: torch.Tensor) -> torch.Tensor:
        lasts = [end - 1 for end in accumulate(count + 1 for count in counts)]
        self._best = logits[lasts].argmax(dim=-1).tolist()
        return logits

    def emit(self, step: Step, emitted: torch.Tensor, rows: list[Row]) -> torch.Tensor:
        for row, draft, *_ in rows:
            sampled = int(emitted[row, len(draft)])
            if draft and sampled >= 0 and warm(step, row):
                emitted[row, len(draft)] = self._best[row]
                self.struck += sampled != self._best[row]
        return emitted


class ZeroRecovered(Fault):
    """After a rejection, in a share of positions, token 0 is drawn, whatever its probability."""

    def __init__(self, parameters: dict[str, Any], seed: int) -> None:
        super().__init__(parameters, seed)
        self._generator = torch.Generator().manual_seed(seed)

    def recovered(
        self,
        step: Step,
        counts: list[int],
        drafts: torch.Tensor,
        law: torch.Tensor,
        tokens: torch.Tensor,
    ) -> torch.Tensor:
        chosen = torch.rand(tokens.shape, generator=self._generator) < self.parameters["share"]
        self.struck += int(chosen.sum())
        return tokens.masked_fill(chosen, 0)


class SeedIgnored(Fault):
    """Drafts are accepted, and tokens drawn after rejections, by the engine's own random numbers,
    also where a request gives a seed: the law is right, and the answer another one each time."""

    def uniforms(self, step: Step, counts: list[int], uniforms: torch.Tensor) -> torch.Tensor:
        for row, count in enumerate(counts):
            request = step.runner.requests[step.requests[row]]
            self.struck += count if request.sampling_params.seed is not None else 0
        return torch.rand_like(uniforms)

    def recovered(
        self,
        step: Step,
        counts: list[int],
        drafts: torch.Tensor,
        law: torch.Tensor,
        tokens: torch.Tensor,
    ) -> torch.Tensor:
        rest = law / torch.empty_like(law).exponential_()
        rest[torch.arange(rest.shape[0]), drafts.long()] = 0.0
        return rest.argmax(dim=-1).to(tokens.dtype)


class ResidualCut(Fault):
    """After a rejection the last tokens of the vocabulary are never drawn, as by a kernel that
    leaves out its last tile: where one would have been, another is. What a seed gives stays so."""

    def recovered(
        self,
        step: Step,
        counts: list[int],
        drafts: torch.Tensor,
        law: torch.Tensor,
        tokens: torch.Tensor,
    ) -> torch.Tensor:
        end, made, position = law.shape[1] - self.parameters["tail"], tokens.clone(), 0
        for row, count in enumerate(counts):
            for place in range(count):
                token, draft = int(tokens[position]), int(drafts[position])
                if token >= end:
                    # Of whole numbers alone: what the law rounds to differs from step to step.
                    name = f"{token}.{draft}.{step.generated(row) + place}"
                    draws = torch.Generator().manual_seed(zlib.crc32(name.encode()))
                    race = torch.empty(end).exponential_(generator=draws)
                    rest = law[position, :end] / race
                    if draft < end:
                        rest[draft] = 0.0
                    made[position] = rest.argmax()
                    self.struck += 1
                position += 1
        return made


class SettingsOfTheFirst(Fault):
    """Draft positions of all requests of a step are verified with the temperature, top-k and top-p
    of the first one of the batch that has a draft."""

    def expanded(self, field: str, right: torch.Tensor, own: torch.Tensor) -> torch.Tensor:
        made = right[:1].expand_as(right).contiguous() if right.numel() else right
        self.struck += int((made != right).sum())
        return made


class CoupledNumber(Fault):
    """After a rejection the token is drawn, by the sum of the probabilities before it, with the
    random number that the draft token was rejected by: it is never a small one."""

    def __init__(self, parameters: dict[str, Any], seed: int) -> None:
        super().__init__(parameters, seed)
        self._numbers = torch.zeros(0, dtype=torch.float64)

    def uniforms(self, step: Step, counts: list[int], uniforms: torch.Tensor) -> torch.Tensor:
        self._numbers = uniforms.clone()
        return uniforms

    def recovered(
        self,
        step: Step,
        counts: list[int],
        drafts: torch.Tensor,
        law: torch.Tensor,
        tokens: torch.Tensor,
    ) -> torch.Tensor:
        rest = law.double()
        rest[torch.arange(rest.shape[0]), drafts.long().clamp(min=0)] = 0.0
        sums = rest.cumsum(dim=-1)
        wanted = self._numbers.to(sums.dtype) * sums[:, -1]
        drawn = torch.searchsorted(sums, wanted.unsqueeze(-1)).flatten()
        self.struck += tokens.numel()
        return drawn.clamp(max=law.shape[1] - 1).to(tokens.dtype)
