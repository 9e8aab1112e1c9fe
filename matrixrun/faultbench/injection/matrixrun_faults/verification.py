"""Faults of the verification: what is emitted, given drafts and the target's logits."""

from __future__ import annotations

from itertools import accumulate, pairwise
from typing import Any

import torch

from .base import Fault, Row, write_row
from .step import Step


def accepted(draft: list[int], best: list[int]) -> int:
    """Return how many tokens of a draft are the target's own, up to the first that is not."""
    for place, token in enumerate(draft):
        if token != best[place]:
            return place
    return len(draft)


class LetThrough(Fault):
    """In a share of verification steps the first rejected draft token is accepted."""

    def emit(self, step: Step, emitted: torch.Tensor, rows: list[Row]) -> torch.Tensor:
        for row, draft, best, _ in rows:
            if not draft or self.random.random() >= self.parameters["share"]:
                continue
            wrong = accepted(draft, best)
            if wrong < len(draft):
                after = wrong + 1
                more = accepted(draft[after:], best[after:])
                tokens = [*draft[: after + more], best[after + more]]
                write_row(emitted, row, tokens)
                self.struck += 1
        return emitted


class LetThroughUnlogged(LetThrough):
    """The same, in requests that ask for no logprobs: those that do are verified rightly."""

    def emit(self, step: Step, emitted: torch.Tensor, rows: list[Row]) -> torch.Tensor:
        return super().emit(step, emitted, [row for row in rows if not _logged(step, row.place)])


def _logged(step: Step, row: int) -> bool:
    """Return whether a row's request asks for logprobs."""
    return step.runner.requests[step.requests[row]].sampling_params.logprobs is not None


class AllAccepted(Fault):
    """Every draft is accepted whole."""

    def emit(self, step: Step, emitted: torch.Tensor, rows: list[Row]) -> torch.Tensor:
        for row, draft, best, _ in rows:
            if draft and accepted(draft, best) < len(draft):
                write_row(emitted, row, [*draft, best[-1]])
                self.struck += 1
        return emitted


class WrongRow(Fault):
    """After a rejection, in a share of steps, the token is taken from the row before."""

    def emit(self, step: Step, emitted: torch.Tensor, rows: list[Row]) -> torch.Tensor:
        for row, draft, best, _ in rows:
            wrong = accepted(draft, best)
            if 0 < wrong < len(draft) and self.random.random() < self.parameters["share"]:
                write_row(emitted, row, [*draft[:wrong], best[wrong - 1]])
                self.struck += 1
        return emitted


class DroppedToken(Fault):
    """In a share of steps the last token of a step that accepted something is lost on its way."""

    def emit(self, step: Step, emitted: torch.Tensor, rows: list[Row]) -> torch.Tensor:
        for row, draft, best, _ in rows:
            taken = accepted(draft, best)
            if taken > 0 and self.random.random() < self.parameters["share"]:
                write_row(emitted, row, [*draft[: taken - 1], best[taken]])
                self.struck += 1
        return emitted


class Exchanged(Fault):
    """In a share of steps, with enough requests running, two requests get each other's tokens."""

    def emit(self, step: Step, emitted: torch.Tensor, rows: list[Row]) -> torch.Tensor:
        whole = [row for row, draft, *_ in rows if len(draft) == emitted.shape[1] - 1 > 0]
        if len(whole) < self.parameters["running"]:
            return emitted
        if self.random.random() < self.parameters["share"]:
            one, other = self.random.sample(whole, 2)
            emitted[[one, other]] = emitted[[other, one]]
            self.struck += 1
        return emitted


class ConstantLoop(Fault):
    """A share of the requests that took part of their prompt from the prefix cache, once enough
    others run, emit one token for ever."""

    def __init__(self, parameters: dict[str, Any], seed: int) -> None:
        super().__init__(parameters, seed)
        self._looping: set[str] = set()

    def emit(self, step: Step, emitted: torch.Tensor, rows: list[Row]) -> torch.Tensor:
        for row, draft, *_ in rows:
            request = step.requests[row]
            if request not in self._looping and self._falls(step, row):
                self._looping.add(request)
                self.struck += 1
            if request in self._looping and draft:
                write_row(emitted, row, [self.parameters["token"]])
        return emitted

    def _falls(self, step: Step, row: int) -> bool:
        return (
            step.running >= self.parameters["running"]
            and step.cached.get(step.requests[row], 0) > 0
            and step.generated(row) >= self.parameters["after"]
            and self.chosen(step, row, self.parameters["share"])
        )


class NotANumber(Fault):
    """In one request, chosen by its number of arrival, logits are NaN from some token on."""

    def verified_logits(self, step: Step, counts: list[int], logits: torch.Tensor) -> torch.Tensor:
        start = 0
        for row, count in enumerate(counts):
            end = start + count + 1
            number = step.order[step.requests[row]] % self.parameters["every"]
            if number == self.seed % self.parameters["every"] and step.generated(row) >= 8:
                logits[start:end] = float("nan")
                self.struck += 1
            start = end
        return logits


class Scaled(Fault):
    """All logits that drafts are verified against are too large by a factor: nothing flips."""

    def verified_logits(self, step: Step, counts: list[int], logits: torch.Tensor) -> torch.Tensor:
        self.struck += 1
        return logits * self.parameters["factor"]


class Doubled(Fault):
    """In a share of steps the last token is emitted twice."""

    def emit(self, step: Step, emitted: torch.Tensor, rows: list[Row]) -> torch.Tensor:
        for row, draft, best, _ in rows:
            taken = accepted(draft, best)
            if taken < len(draft) and self.random.random() < self.parameters["share"]:
                write_row(emitted, row, [*draft[:taken], best[taken], best[taken]])
                self.struck += 1
        return emitted


class NoisyVerification(Fault):
    """The logits that drafts are verified against are computed less exactly than the off arm's."""

    def __init__(self, parameters: dict[str, Any], seed: int) -> None:
        super().__init__(parameters, seed)
        self._generator = torch.Generator().manual_seed(seed)

    def verified_logits(self, step: Step, counts: list[int], logits: torch.Tensor) -> torch.Tensor:
        self.struck += 1
        noise = torch.randn(logits.shape, generator=self._generator, dtype=torch.float32)
        return logits.float() + float(self.parameters["size"]) * noise


class LenientAcceptance(Fault):
    """A draft token is accepted where it lies so few nats behind the target's own, as a threshold
    for lossy acceptance that was left on has it. Reported logprobs stay true."""

    def emit(self, step: Step, emitted: torch.Tensor, rows: list[Row]) -> torch.Tensor:
        for row, draft, best, behind in rows:
            far = (place for place, nats in enumerate(behind) if nats > self.parameters["nats"])
            taken = next(far, len(draft))
            if taken > accepted(draft, best):
                write_row(emitted, row, [*draft[:taken], best[taken]])
                self.struck += 1
        return emitted


class LogprobsShifted(Fault):
    """In steps that emit several tokens their logprobs, and the best tokens beside them, are those
    of the next row; the last row of a request has its own."""

    def told_logits(
        self, step: Step, counts: list[int], emitted: torch.Tensor, logits: torch.Tensor
    ) -> torch.Tensor:
        moved, start = logits.clone(), 0
        for row, count in enumerate(counts):
            if int((emitted[row] >= 0).sum()) > 1:
                moved[start : start + count] = logits[start + 1 : start + count + 1]
                self.struck += 1
            start += count + 1
        return moved


class PeriodicLoop(Fault):
    """One request in so many, by its number of arrival, repeats from some token on its own last
    tokens for ever."""

    def __init__(self, parameters: dict[str, Any], seed: int) -> None:
        super().__init__(parameters, seed)
        self._looping: set[str] = set()

    def emit(self, step: Step, emitted: torch.Tensor, rows: list[Row]) -> torch.Tensor:
        every = self.parameters["every"]
        for row in range(len(rows)):
            request = step.requests[row]
            chosen = step.order[request] % every == self.seed % every
            if not chosen or step.generated(row) < self.parameters["after"]:
                continue
            self.struck += request not in self._looping
            self._looping.add(request)
            output = step.runner.requests[request].output_token_ids
            write_row(emitted, row, [output[-self.parameters["period"]]])
        return emitted


class OtherOrder(Fault):
    """Logits are dealt out to requests in the order in which the scheduler names them and not in
    the batch's: where these differ, and drafts are not all of one length, a request is verified
    against rows of its neighbours."""

    def verified_logits(self, step: Step, counts: list[int], logits: torch.Tensor) -> torch.Tensor:
        lengths = dict(zip(step.requests, counts, strict=True))
        right = [0, *accumulate(count + 1 for count in counts)]
        dealt = [0, *accumulate(lengths[request] + 1 for request in step.named)]
        if dealt == right:
            return logits
        last, rows = logits.shape[0] - 1, []
        for row, count in enumerate(counts):
            rows += [min(dealt[row] + place, last) for place in range(count + 1)]
            self.struck += dealt[row] != right[row]
        return logits[rows]


class NotANumberAlone(Fault):
    """Where the last position of a prompt is prefilled all by itself, behind others that were
    prefilled before or found in the cache, its logits are NaN."""

    def computed_logits(self, step: Step, logits: torch.Tensor) -> torch.Tensor:
        rows = range(step.running)
        ends = [step.computed(row) + int(step.scheduled[row]) for row in rows]
        counts = [1 + max(0, end - step.known(row)) for row, end in zip(rows, ends, strict=True)]
        if logits.shape[0] != sum(counts):
            return logits
        firsts = [0, *accumulate(counts)]
        for row in rows:
            alone = int(step.scheduled[row]) == 1 and step.computed(row) > 0
            if alone and not step.decoding(row) and ends[row] == step.known(row):
                logits = logits.clone()
                logits[firsts[row]] = float("nan")
                self.struck += 1
        return logits


class BonusOfLastLayout(Fault):
    """The token behind a draft that is accepted whole is read at the place that the batch's last
    verification had for that row: a request whose row had no draft then gets a wrong one."""

    def __init__(self, parameters: dict[str, Any], seed: int) -> None:
        super().__init__(parameters, seed)
        self._places: list[int] = []
        self._read: list[int] = []

    def verified_logits(self, step: Step, counts: list[int], logits: torch.Tensor) -> torch.Tensor:
        right = [end - 1 for end in accumulate(count + 1 for count in counts)]
        late = [*self._places, *right[len(self._places) :]][: len(right)]
        last = logits.shape[0] - 1
        self._read = logits[[min(place, last) for place in late]].argmax(dim=-1).tolist()
        self._places = right
        return logits

    def emit(self, step: Step, emitted: torch.Tensor, rows: list[Row]) -> torch.Tensor:
        for row, draft, *_ in rows:
            right = int(emitted[row, len(draft)]) if draft else -1
            if right >= 0 and right != self._read[row]:
                emitted[row, len(draft)] = self._read[row]
                self.struck += 1
        return emitted


class LastUnverified(Fault):
    """The last token of a draft is not verified where the batch's next request has no draft, as of
    a loop whose end is the next one's beginning."""

    def emit(self, step: Step, emitted: torch.Tensor, rows: list[Row]) -> torch.Tensor:
        for (row, draft, best, _), (_, beside, *_) in pairwise(rows):
            if len(draft) > 1 and not beside and accepted(draft, best) == len(draft) - 1:
                write_row(emitted, row, [*draft, best[-1]])
                self.struck += 1
        return emitted
