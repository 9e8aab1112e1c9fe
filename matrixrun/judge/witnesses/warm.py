"""warm: whether a prompt that is sent again finds its prefix in the cache with speculation too.

Engines have switched prefix caching off under speculation without a word (vllm#42317), or missed
the first repetition (vllm#53504): outputs stay right, and time is lost. Turns of a conversation are
another witness's, which also sees a part that is lost.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from matrixrun.evidence.verdicts import Finding, Severity
from matrixrun.judge.case import Answers, Case, Floats
from matrixrun.judge.examination import Examination
from matrixrun.judge.testimony import Testimony
from matrixrun.judge.witnesses.attached import is_attached
from matrixrun.judge.witnesses.reuse import KIND, granularity

# With fewer there is too little to say that caching does nothing.
LEAST_PROMPTS = 5


@dataclass(frozen=True)
class Warm:
    """Tokens from the cache of prompts sent again [prompts], by arm."""

    on: Floats
    off: Floats
    null: Floats


def examine_warm(examination: Examination) -> Testimony:
    """Return a fault where no prompt that is sent again takes anything from the on arm's cache, and
    all of them do in the off arms: more than a drafter drops by design, and from a cache that holds
    all that was sent."""
    case = examination.case
    warm = _warm(case)
    if warm.off.size < LEAST_PROMPTS:
        return Testimony()
    on, off = float(warm.on.mean()), float(warm.off.mean())
    told = Testimony(metrics={"reuse/again.on": on, "reuse/again.off": off})
    if warm.on.any() or not _holds_all(case):
        return told
    text = (
        f"none of {warm.off.size} prompts sent again takes a token from the on arm's cache, in the "
        f"off arm each does ({off:.3g} on average): prefix caching has no effect with speculation"
    )
    severity = Severity.NOTICE if is_attached(examination) else Severity.FAULT
    numbers = {"prompts": warm.off.size, "off": off}
    finding = Finding(kind=KIND, severity=severity, text=text, numbers=numbers)
    return told + Testimony((finding,))


def _warm(case: Case) -> Warm:
    """Return what prompts sent again take, of those of which both off arms take more than the on
    arm's drafter drops by design."""
    size, dropped = granularity(case.observed.evidence)
    cached = [_cached(arm) for arm in (case.on, case.off, case.null)]
    counted = _sent_again(case) & case.comparable & np.isfinite(cached).all(axis=0)
    counted &= (cached[1] > size * dropped) & (cached[2] > size * dropped)
    return Warm(*(values[counted] for values in cached))


def _cached(answers: Answers) -> Floats:
    values = [answer.cached_tokens for answer in answers.observations]
    return np.array([np.nan if value is None else value for value in values], dtype=np.float64)


def _sent_again(case: Case) -> np.ndarray:
    """Return whether a request's prompt was sent before [requests]."""
    sent = [(one.started, one.request) for one in case.on.observations]
    known, again = set[str](), np.zeros(len(sent), dtype=bool)
    for place in sorted(range(len(sent)), key=sent.__getitem__):
        prompt = case.on.observations[place].prompt
        again[place] = prompt in known
        known.add(prompt)
    return again


def _holds_all(case: Case) -> bool:
    """Return whether the on arm's cache can have held everything that was sent to it, as far as the
    engine says how large it is: a smaller one evicts, which is no fault."""
    size = case.observed.evidence.outcomes["on"].facts.get("kv_cache_size_tokens")
    sent = sum(one.prompt_tokens + one.token_ids.size for one in case.on.observations)
    return not isinstance(size, int) or sent <= size
