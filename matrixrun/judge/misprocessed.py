"""Tokens that lie further below another one after a processor's arithmetic than the off arm can
explain: what `suspicions` is without processors.

The token that ought to have won is known by name. Both are valued again on A after the same prefix,
by decoding and by extending; the processor's arithmetic does the rest.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from matrixrun.evidence.cells import Cell
from matrixrun.evidence.requests import Evaluation, Score, ScoreRequest
from matrixrun.judge.bad_words import Sequences
from matrixrun.judge.ceiling import Ceiling
from matrixrun.judge.processors import ProcessedValues, Processor, processed_gap
from matrixrun.judge.suspicions import (
    RESCORED,
    State,
    settled_state,
    verified_rows,
    want_id,
)


@dataclass(frozen=True)
class ProcessedAnswer:
    """An on arm's answer with a processor on: what was asked, what came, and how it is valued."""

    request: str
    processor: Processor
    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    values: ProcessedValues
    whole: bool
    banned: Sequences = ()


@dataclass(frozen=True)
class Misprocessed:
    """A token that `rival` beats by more than the ceiling after processing. `evaluations` holds
    every gap that is known, in nats; `wants` are the re-scorings that could settle it."""

    answer: ProcessedAnswer
    position: int
    rival: int
    evaluations: dict[str, float]
    state: State = State.UNSETTLED
    wants: tuple[ScoreRequest, ...] = ()

    @property
    def token(self) -> int:
        """The token that was emitted."""
        return self.answer.tokens[self.position]

    @property
    def regret(self) -> float:
        """The gap by prefill, in nats."""
        return self.evaluations[Evaluation.PREFILL.value]


def misprocessed(
    answers: Sequence[ProcessedAnswer],
    ceiling: Ceiling,
    cell: Cell,
    given: Mapping[str, Score],
    *,
    most: int,
) -> tuple[Misprocessed, ...]:
    """Return the tokens beyond the ceiling, the worst of each answer first, `most` at most.

    Args:
        answers: the on arm's, with processors whose arithmetic both off arms fit throughout.
        ceiling: what two off evaluations of the same prefix may differ by.
        cell: says how many rows a verification step has.
        given: the re-scorings that were asked for before, by id.
        most: how many are scored again.
    """
    ranked: list[tuple[int, float, str, Misprocessed]] = []
    for answer in answers:
        regrets = answer.values.regrets
        places = np.flatnonzero(regrets > ceiling.value)
        for rank, place in enumerate(places[np.argsort(-regrets[places], kind="stable")].tolist()):
            value = float(regrets[place])
            known = {Evaluation.PREFILL.value: value}
            found = Misprocessed(answer, place, int(answer.values.rivals[place]), known)
            ranked.append((rank, -value, answer.request, found))
    worst = [found for *_, found in sorted(ranked, key=lambda one: one[:3])[:most]]
    return tuple(_settle(one, ceiling, cell, given) for one in worst)


def _settle(
    one: Misprocessed, ceiling: Ceiling, cell: Cell, given: Mapping[str, Score]
) -> Misprocessed:
    known, wants = dict(one.evaluations), list[ScoreRequest]()
    failed = []
    for evaluation in RESCORED:
        asked = _asked(one, evaluation, cell)
        scores = [given.get(request.id) for request in asked]
        missing = [request for request, score in zip(asked, scores, strict=True) if score is None]
        gap = None if missing else _gap(one, scores, ceiling)
        if missing:
            wants += missing
        elif gap is None:
            failed.append(evaluation)
        else:
            known[evaluation.value] = gap
    if min(known.values()) <= ceiling.value:
        return replace(one, evaluations=known, state=State.EXPLAINED)
    state = State.ASKED if wants else settled_state(ceiling, min(known.values()), failed)
    return replace(one, evaluations=known, state=state, wants=tuple(wants))


def _asked(one: Misprocessed, evaluation: Evaluation, cell: Cell) -> tuple[ScoreRequest, ...]:
    """Return the requests that value the rival and the emitted token after the same prefix."""
    prefix = (*one.answer.prompt, *one.answer.tokens[: one.position])
    name = want_id("on", one.answer.request, one.position, evaluation)
    rows = verified_rows(cell) if evaluation is Evaluation.EXTEND else 0
    return tuple(
        ScoreRequest(
            id=f"{name}.{token}",
            token_ids=(*prefix, token),
            start=len(prefix),
            evaluation=evaluation,
            rows=rows,
        )
        for token in (one.rival, one.token)
    )


def _gap(one: Misprocessed, scores: Sequence[Score | None], ceiling: Ceiling) -> float | None:
    """Return the gap that a re-scoring found, None where it settles nothing.

    A rival of which only a bound came may lie anywhere below it. A bound of the emitted token makes
    the gap one from below: it confirms one beyond the ceiling and explains none within.
    """
    rival, own = scores
    if rival is None or own is None or rival.bounded or not (_valued(rival) and _valued(own)):
        return None
    before = one.answer.tokens[: one.position]
    gap = processed_gap(
        one.answer.processor,
        one.answer.prompt,
        before,
        (one.rival, float(rival.token_logprobs[-1])),
        (one.token, float(own.token_logprobs[-1])),
        whole=one.answer.whole,
        banned=one.answer.banned,
    )
    return None if own.bounded and gap <= ceiling.value else gap


def _valued(score: Score) -> bool:
    values = score.token_logprobs
    return score.error is None and values.size > 0 and not np.isnan(values[-1])
