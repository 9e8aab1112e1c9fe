"""Where the on arm's tokens leave the off arm's, laid side by side with probabilities. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from matrixrun.evidence.requests import Observation
from matrixrun.evidence.verdicts import Finding
from matrixrun.judge.case import Answers
from matrixrun.judge.examination import Examination
from matrixrun.judge.witnesses.equality import Fork, forks_of

MOST_SITES = 8
TOKENS_BEFORE = 6
TOKENS_AFTER = 6
SHARED_CHARACTERS = 120
OWN_CHARACTERS = 200


class Alternative(msgspec.Struct, frozen=True, omit_defaults=True):
    """A token and its probability."""

    token: int
    probability: float


class ArmTokens(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One arm around a divergence: `tokens` from the window's start on, what it held most likely at
    the divergence itself, and what it wrote after the text that both share."""

    tokens: tuple[int, ...] = ()
    top: tuple[Alternative, ...] = ()
    text: str | None = None


class Divergence(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One place of one request. `start` is the window's first position; `gap` is what the off arm
    holds against the on arm's token, in nats; `same_until_here` says that both arms had emitted the
    same tokens so far; `named` that a finding speaks of this place."""

    request: str
    prompt: str
    category: str
    position: int
    start: int
    relation: str
    gap: float | None
    same_until_here: bool
    named: bool
    on: ArmTokens
    off: ArmTokens
    null: ArmTokens
    shared_text: str | None = None


def divergences_of(
    examination: Examination, findings: Sequence[Finding], most: int = MOST_SITES
) -> tuple[Divergence, ...]:
    """Return the places that findings name, then first forks by the off arm's gap, at most `most`.

    A request appears once.
    """
    case = examination.case
    forks = forks_of(examination, case.on, case.forks, examination.on)
    by_request = {case.requests[fork.index]: fork for fork in forks}
    told: dict[str, Divergence] = {}
    for request, position in _named(findings):
        if request in case.requests and request not in told:
            index = case.requests.index(request)
            fork = by_request.get(request)
            told[request] = _site(examination, index, position, fork, named=True)
    for fork in sorted(forks, key=lambda fork: -np.nan_to_num(fork.gap, nan=-1.0)):
        request = case.requests[fork.index]
        if len(told) >= most:
            break
        if request not in told:
            told[request] = _site(examination, fork.index, fork.position, fork, named=False)
    return tuple(told.values())[:most]


def _named(findings: Sequence[Finding]) -> list[tuple[str, int]]:
    places = [(one.numbers.get("request"), one.numbers.get("position")) for one in findings]
    return [(r, p) for r, p in places if isinstance(r, str) and isinstance(p, int)]


def _site(
    examination: Examination, index: int, position: int, fork: Fork | None, *, named: bool
) -> Divergence:
    case = examination.case
    start = max(0, position - TOKENS_BEFORE)
    answers = [arm.observations[index] for arm in (case.on, case.off, case.null)]
    shared, texts = _texts(answers)
    first = fork is not None and fork.position == position
    regrets = case.on.part(case.on.regrets, index)
    gap = float(regrets[position]) if position < regrets.size else float("nan")
    if first and fork is not None and not np.isfinite(gap):
        gap = fork.gap
    arms = [
        ArmTokens(
            tokens=tuple(arm.part(arm.token_ids, index)[start : position + TOKENS_AFTER].tolist()),
            top=_top(arm.observations[index], position),
            text=text,
        )
        for arm, text in zip(_arms(examination), texts, strict=True)
    ]
    return Divergence(
        request=case.requests[index],
        prompt=answers[0].prompt,
        category=answers[0].category,
        position=position,
        start=start,
        relation=fork.relation.value if first and fork is not None else "after the first fork",
        gap=gap if np.isfinite(gap) else None,
        same_until_here=fork is None or position <= fork.position,
        named=named,
        on=arms[0],
        off=arms[1],
        null=arms[2],
        shared_text=shared,
    )


def _arms(examination: Examination) -> tuple[Answers, Answers, Answers]:
    case = examination.case
    return case.on, case.off, case.null


def _top(answer: Observation, position: int) -> tuple[Alternative, ...]:
    if answer.top_ids.ndim != 2 or position >= answer.top_ids.shape[0]:
        return ()
    pairs = zip(answer.top_ids[position], answer.top_logprobs[position], strict=True)
    return tuple(
        Alternative(int(token), round(float(np.exp(logprob)), 5))
        for token, logprob in pairs
        if token >= 0 and np.isfinite(logprob)
    )


def _texts(answers: Sequence[Observation]) -> tuple[str | None, list[str | None]]:
    """Return the end of the text that on and off share, and each arm's own rest."""
    on, off, null = (answer.text for answer in answers)
    if on is None or off is None:
        return None, [None, None, None]
    length = shared_length(on, off)
    rests: list[str | None] = [on[length:], off[length:], None]
    if null is not None and null[:length] == off[:length]:
        rests[2] = null[length:]
    cut = [None if rest is None else rest[:OWN_CHARACTERS] for rest in rests]
    return on[max(0, length - SHARED_CHARACTERS) : length], cut


def shared_length(one: str, other: str) -> int:
    """Return the number of first characters that two texts share."""
    for place, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return place
    return min(len(one), len(other))
