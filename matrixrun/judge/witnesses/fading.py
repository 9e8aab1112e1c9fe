"""fading: drafts that get worse while the engine runs.

Prompts of a category come in an order that means nothing: those sent early and those sent late in a
pass are alike, and so must be what is accepted of their drafts. No expectation and no other launch
is needed. A prompt that is sent again is another witness's.
"""

from __future__ import annotations

import math

import numpy as np

from matrixrun.evidence.verdicts import Finding, Severity
from matrixrun.judge.case import Case, Floats
from matrixrun.judge.examination import Examination
from matrixrun.judge.statistics import sign_flip_p_value
from matrixrun.judge.steps import accepted_a_step
from matrixrun.judge.testimony import RateTest, Testimony

RATE_TESTS = 1
KIND = "fading-acceptance"
# A difference of less is none that anybody would stop an upgrade for.
LEAST_RELATIVE = 0.1
# Acceptance differs from prompt to prompt, so that this test uses up what it is given where most
# others have nothing to tell apart: of a sweep's 5 % it would accuse one healthy cell in 160.
LEVEL = 1e-4
NOTICE_LEVEL = 0.01


def examine_fading(examination: Examination) -> Testimony:
    """Return the test whether prompts sent late accept fewer draft tokens a step than those of
    their category sent early: the first of a category and its last are a pair, and so on inwards.
    Their order being drawn, each difference is as likely to be the other way round. A fault where
    they lose a tenth and more and chance does that once in 10,000 times; a notice where it is once
    in a hundred."""
    pairs = _pairs(examination.case)
    if pairs.size == 0:
        return Testimony()
    early, late = (float(one) for one in pairs.mean(axis=0))
    told = Testimony(metrics={"acceptance/early": early, "acceptance/late": late})
    p_value = sign_flip_p_value(pairs[:, 0] - pairs[:, 1])
    if late >= (1.0 - LEAST_RELATIVE) * early or p_value >= NOTICE_LEVEL:
        return told
    text = (
        f"prompts sent late accept {late:.3g} draft tokens a step, those of their category sent "
        f"early {early:.3g} ({pairs.shape[0]} pairs, p = {p_value:.2g})"
    )
    numbers = {"early": early, "late": late, "pairs": pairs.shape[0], "p_value": p_value}
    severity = Severity.FAULT if p_value < LEVEL else Severity.NOTICE
    finding = Finding(kind=KIND, severity=severity, text=text, numbers=numbers)
    if severity is Severity.NOTICE:
        return told + Testimony((finding,))
    return told + Testimony(rates=(RateTest(p_value, finding),))


def _pairs(case: Case) -> Floats:
    """Return the accepted draft tokens a step of an early and a late prompt of one category
    [pairs, 2], as far apart as can be."""
    accepted = dict(zip(case.requests, accepted_a_step(case).tolist(), strict=True))
    found: dict[str, list[float]] = {}
    prompts: set[str] = set()
    for answer in case.observed.on:
        value = accepted.get(answer.request, math.nan)
        if math.isfinite(value) and answer.prompt not in prompts:
            found.setdefault(answer.category, []).append(value)
        prompts.add(answer.prompt)
    pairs = [
        (values[place], values[-1 - place])
        for values in found.values()
        for place in range(len(values) // 2)
    ]
    return np.array(pairs).reshape(-1, 2)
