"""A cell's observations laid side by side: what every witness looks at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixrun.evidence.cells import Cell
from matrixrun.evidence.ledger import Event
from matrixrun.evidence.requests import Observation, PassRecord, Score
from matrixrun.evidence.verdicts import CellEvidence
from matrixrun.judge.settings import JudgeSettings

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# -inf logprobs (vLLM writes -9999) are valued as very unlikely, not as unknown.
LARGEST_REGRET = 9999.0


def counted(owner: Ints, weights: NDArray[Any], count: int) -> Floats:
    """Return the sums of `weights` by `owner`, for at least `count` owners."""
    return np.bincount(owner, weights=weights, minlength=count).astype(np.float64)


@dataclass(frozen=True)
class ProbeObserved:
    """What one probe besides equality observed for a cell, by arm: `on`, `off`, `null`, and others
    that the probe knows. `compared` as in ProbeRecords; `records` hold the counters."""

    kind: str
    compared: bool
    observations: Mapping[str, tuple[Observation, ...]]
    scores: Mapping[str, tuple[Score, ...]]
    records: Mapping[str, tuple[PassRecord, ...]]

    def answers(self, arm: str) -> tuple[Observation, ...]:
        """The observations of an arm; none where it was not sent to."""
        return self.observations.get(arm, ())


@dataclass(frozen=True)
class CellObservations:
    """One cell's evidence in memory.

    `on`, `off` (launch A) and `null` (the control: A again in reversed order, or launch B) answer
    the same requests; the `*_scores` are PREFILL scores on A of all that each emitted, one a
    request under the request's id. `confirmations` are re-scorings under the ids of an earlier
    Want. `prompts` maps request ids to the prompt's token ids, `answers` to the text that must
    stand in a right answer, where that is known. `probes` holds what further probes observed, and
    `ledgers` by role what the traced launches wrote down.
    """

    evidence: CellEvidence
    on: tuple[Observation, ...] = ()
    off: tuple[Observation, ...] = ()
    null: tuple[Observation, ...] = ()
    on_scores: tuple[Score, ...] = ()
    off_scores: tuple[Score, ...] = ()
    null_scores: tuple[Score, ...] = ()
    confirmations: tuple[Score, ...] = ()
    prompts: Mapping[str, tuple[int, ...]] | None = None
    answers: Mapping[str, str] = field(default_factory=dict)
    probes: tuple[ProbeObserved, ...] = ()
    ledgers: Mapping[str, tuple[Event, ...]] = field(default_factory=dict)

    @property
    def cell(self) -> Cell:
        return self.evidence.cell


@dataclass(frozen=True)
class Answers:
    """One arm's answers in the case's order of requests, tokens of all requests in one row.

    `token_ids`, `logprobs`, `best` (the arm's own best logprob), `regrets` and `scored`
    (the emitted token's logprob by prefill on A) [N], NaN where unknown; request i owns
    `offsets[i]:offsets[i + 1]`.
    """

    observations: tuple[Observation, ...]
    offsets: Ints
    token_ids: Ints
    logprobs: Floats
    best: Floats
    regrets: Floats
    scored: Floats

    def part(self, values: NDArray[Any], index: int) -> NDArray[Any]:
        """Return the slice of `values` [N] that belongs to request `index`."""
        return values[self.offsets[index] : self.offsets[index + 1]]

    @cached_property
    def lengths(self) -> Ints:
        """Emitted tokens of each request [requests]."""
        return np.diff(self.offsets)

    @cached_property
    def owner(self) -> Ints:
        """The request's index of each token [N]."""
        return np.repeat(np.arange(self.lengths.size), self.lengths)

    @cached_property
    def position(self) -> Ints:
        """The position of each token within its answer [N]."""
        return np.arange(self.token_ids.size) - np.repeat(self.offsets[:-1], self.lengths)

    @cached_property
    def failed(self) -> NDArray[np.bool_]:
        """Whether each request got an error for an answer [requests]."""
        return np.array([answer.error is not None for answer in self.observations], dtype=bool)

    def largest(self, values: Floats) -> Floats:
        """Return the maximum of `values` [N] in each request [requests]; 0 where there is none."""
        result = np.zeros(self.lengths.size)
        known = np.isfinite(values)
        np.maximum.at(result, self.owner[known], values[known])
        return result

    def total(self, values: Floats) -> Floats:
        """Return the sum of the finite `values` [N] in each request [requests]."""
        weights = np.where(np.isfinite(values), values, 0.0)
        return counted(self.owner, weights, self.lengths.size)


@dataclass(frozen=True)
class Case:
    """A cell under judgement. `requests` are those that every arm answered, sorted by id;
    `missing` were answered by some arms only; `forks` and `null_forks` [requests] are the first
    positions where on and null differ from off: the common length where one is a prefix of the
    other, -1 where both are identical."""

    observed: CellObservations
    settings: JudgeSettings
    sweep_cells: int
    requests: tuple[str, ...]
    missing: tuple[str, ...]
    on: Answers
    off: Answers
    null: Answers
    forks: Ints
    null_forks: Ints

    @property
    def cell(self) -> Cell:
        return self.observed.cell

    @cached_property
    def comparable(self) -> NDArray[np.bool_]:
        """Whether each request was answered without error by all arms [requests]."""
        return ~(self.on.failed | self.off.failed | self.null.failed)

    @cached_property
    def prompt_groups(self) -> Ints:
        """A number for the prompt that each request belongs to [requests]."""
        names = [answer.prompt for answer in self.off.observations]
        return np.unique(np.array(names, dtype=str), return_inverse=True)[1].astype(np.int64)

    @cached_property
    def confirmations(self) -> dict[str, Score]:
        """Re-scorings by the id under which they were asked for."""
        return {score.request: score for score in self.observed.confirmations}

    def unvalued(self, answers: Answers) -> NDArray[np.bool_]:
        """Return whether some token of each answer to a comparable request has no score, its own
        or borrowed from the same text of the off arm [requests]."""
        unknown = np.isnan(answers.regrets)
        some: NDArray[np.bool_] = counted(answers.owner, unknown, len(self.requests)) > 0
        return some & self.comparable

    def by_prompt(self, values: Floats) -> Floats:
        """Return the sums of `values` [requests] over each prompt's requests [prompts]."""
        return counted(self.prompt_groups, values, 0)

    def prompt_tokens(self, request: str) -> tuple[int, ...] | None:
        """Return the token ids of a request's prompt, if they were given."""
        prompts = self.observed.prompts
        return None if prompts is None else prompts.get(request)


def build_case(observed: CellObservations, settings: JudgeSettings, sweep_cells: int) -> Case:
    """Lay out a cell's observations; `sweep_cells` is the number of cells judged together."""
    arms = (observed.on, observed.off, observed.null)
    ids = [{answer.request for answer in arm} for arm in arms]
    common = tuple(sorted(ids[0] & ids[1] & ids[2]))
    missing = tuple(sorted((ids[0] | ids[1] | ids[2]) - set(common)))
    prompts = observed.prompts or {}
    off = _answers(common, observed.off, observed.off_scores, prompts)
    on = _answers(common, observed.on, observed.on_scores, prompts)
    null = _answers(common, observed.null, observed.null_scores, prompts)
    forks, null_forks = first_forks(on, off), first_forks(null, off)
    return Case(
        observed=observed,
        settings=settings,
        sweep_cells=sweep_cells,
        requests=common,
        missing=missing,
        on=_borrowed(on, off, forks),
        off=off,
        null=_borrowed(null, off, null_forks),
        forks=forks,
        null_forks=null_forks,
    )


def first_forks(one: Answers, other: Answers) -> Ints:
    """Return the first position where two arms' answers differ [requests]; -1 for identical ones,
    the shorter's length where it is a prefix of the longer."""
    forks = np.full(one.lengths.size, -1, dtype=np.int64)
    for index in range(forks.size):
        left, right = one.part(one.token_ids, index), other.part(other.token_ids, index)
        shared = min(left.size, right.size)
        different = left[:shared] != right[:shared]
        if different.any():
            forks[index] = int(different.argmax())
        elif left.size != right.size:
            forks[index] = shared
    return forks


def _answers(
    requests: Sequence[str],
    observations: Sequence[Observation],
    scores: Sequence[Score],
    prompts: Mapping[str, tuple[int, ...]],
) -> Answers:
    found = {answer.request: answer for answer in observations}
    valued = {score.request: score for score in scores}
    ordered = tuple(found[request] for request in requests)
    lengths = [answer.token_ids.size for answer in ordered]
    offsets = np.concatenate([[0], np.cumsum(lengths)]).astype(np.int64)
    total = int(offsets[-1])
    logprobs, best = np.full(total, np.nan), np.full(total, np.nan)
    regrets, scored = np.full(total, np.nan), np.full(total, np.nan)
    for index, answer in enumerate(ordered):
        part = slice(int(offsets[index]), int(offsets[index + 1]))
        _fill(logprobs[part], answer.logprobs, 0)
        if answer.top_logprobs.ndim == 2 and answer.top_logprobs.shape[1] > 0:
            _fill(best[part], answer.top_logprobs[:, 0], 0)
        score = valued.get(answer.request)
        if score is None or score.error is not None:
            continue
        start = score.start - len(prompts.get(answer.request, range(score.start)))
        _fill(regrets[part], np.minimum(score.regret, LARGEST_REGRET), start)
        _fill(scored[part], score.token_logprobs, start)
    tokens = np.concatenate([answer.token_ids for answer in ordered]) if ordered else np.zeros(0)
    return Answers(ordered, offsets, tokens.astype(np.int64), logprobs, best, regrets, scored)


def _fill(target: Floats, values: NDArray[np.float32], start: int) -> None:
    """Write `values` into `target` from `start` on, as far as both reach."""
    values = values[max(0, -start) :]
    start = max(0, start)
    reach = min(values.size, max(0, target.size - start))
    target[start : start + reach] = values[:reach]


def _borrowed(answers: Answers, off: Answers, forks: Ints) -> Answers:
    """Fill in scores that were not taken, from the off arm's where the text is the same."""
    for index, fork in enumerate(forks):
        shared = int(off.lengths[index]) if fork < 0 else int(fork)
        mine = slice(int(answers.offsets[index]), int(answers.offsets[index]) + shared)
        theirs = slice(int(off.offsets[index]), int(off.offsets[index]) + shared)
        unknown = np.isnan(answers.regrets[mine])
        if unknown.any():
            answers.regrets[mine] = np.where(unknown, off.regrets[theirs], answers.regrets[mine])
            answers.scored[mine] = np.where(unknown, off.scored[theirs], answers.scored[mine])
    return answers
