"""repeats: a prompt sent again in the same pass, answered alike, must accept as many drafts.

The drafter sees the same tokens, so that an arm is its own control here: no expectation and no
other launch is needed. What makes a difference is time (drafts that get worse while the engine
runs) or a prefix taken from the cache. How long drafts are may depend on the load: answers of which
one was offered longer drafts than the other are not compared.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from matrixrun.evidence.verdicts import Finding, Severity
from matrixrun.judge.case import Case, Floats
from matrixrun.judge.examination import Examination
from matrixrun.judge.statistics import sign_flip_p_value
from matrixrun.judge.steps import LEAST_LOSS, tokens_a_step
from matrixrun.judge.testimony import RateTest, Testimony, as_notices
from matrixrun.judge.witnesses.attached import is_attached

RATE_TESTS = 1
KIND = "repeated-acceptance"
NOTICE_LEVEL = 0.01
# The drafts of two answers are as long but for so much.
ALIKE = 0.05


@dataclass(frozen=True)
class Repeats:
    """Accepted draft tokens a verification step of prompts sent twice [prompts], the first time and
    the last; `cached` counts the later ones that took part of their prompt from the cache."""

    first: Floats
    later: Floats
    cached: int


def examine_repeats(examination: Examination) -> Testimony:
    """Return the test whether later answers to the same prompts accept fewer draft tokens: a fault
    where they lose a tenth and more (a notice on a server that has other clients), a notice
    otherwise and for a gain."""
    found = _repeats(examination.case)
    if found.first.size == 0:
        return Testimony()
    before, after = float(found.first.mean()), float(found.later.mean())
    loss = sign_flip_p_value(found.first - found.later)
    gain = sign_flip_p_value(found.later - found.first)
    text = (
        f"{found.first.size} prompts sent again and answered alike accept {after:.3g} draft tokens "
        f"a step, the first time {before:.3g} (p = {min(loss, gain):.2g}; {found.cached} of them "
        "with a cached prefix)"
    )
    numbers = {"first": before, "later": after, "prompts": found.first.size, "p_value": loss}
    metrics = {"acceptance/repeated.first": before, "acceptance/repeated.later": after}
    told = Testimony(metrics=metrics)
    if after < (1.0 - LEAST_LOSS) * before:
        finding = Finding(kind=KIND, severity=Severity.FAULT, text=text, numbers=numbers)
        tested = Testimony(rates=(RateTest(loss, finding),))
        return told + (as_notices(tested) if is_attached(examination) else tested)
    if min(loss, gain) < NOTICE_LEVEL:
        finding = Finding(kind=KIND, severity=Severity.NOTICE, text=text, numbers=numbers)
        return told + Testimony((finding,))
    return told


def _repeats(case: Case) -> Repeats:
    accepted, offered = tokens_a_step(case)
    known = [pair for pair in _pairs(case) if _offered_alike(offered[list(pair)])]
    first, later = (accepted[[pair[place] for pair in known]] for place in (0, 1))
    cached = sum(bool(case.on.observations[other].cached_tokens) for _, other in known)
    return Repeats(first, later, cached)


def _offered_alike(offered: Floats) -> bool:
    """Whether two answers were offered drafts of like length; not where one had none."""
    return bool(np.ptp(offered) <= ALIKE * offered.max())


def _pairs(case: Case) -> list[tuple[int, int]]:
    """Return the first and the last request of each prompt in the order sent, as places in the
    case, where the on arm emitted the same tokens."""
    sent = [(one.started, one.request) for one in case.on.observations]
    pairs = []
    for group in np.unique(case.prompt_groups):
        members = np.flatnonzero((case.prompt_groups == group) & ~case.on.failed).tolist()
        if len(members) < 2:
            continue
        ordered = sorted(members, key=sent.__getitem__)
        one, other = ordered[0], ordered[-1]
        mine, theirs = (case.on.part(case.on.token_ids, index) for index in (one, other))
        if np.array_equal(mine, theirs):
            pairs.append((one, other))
    return pairs
