"""fading: drafts that get worse while the engine runs.

Prompts of a category come in an order that means nothing: those sent early and those sent late in a
pass are alike, and so must be how often the first token of a draft is taken. (Not how many are: a
drafter may offer longer drafts at one time than at another.) No expectation and no other launch is
needed. A prompt that is sent again is another witness's.
"""

from __future__ import annotations

import math

import numpy as np

from matrixrun.evidence.verdicts import Finding, Severity
from matrixrun.judge.case import Case, Floats
from matrixrun.judge.examination import Examination
from matrixrun.judge.statistics import sign_flip_p_value
from matrixrun.judge.steps import LEAST_LOSS, first_taken
from matrixrun.judge.testimony import Testimony, as_notices, where_rare
from matrixrun.judge.witnesses.attached import is_attached

RATE_TESTS = 1
KIND = "fading-acceptance"
# With fewer pairs nothing is so rare.
LEAST_PAIRS = 14


def examine_fading(examination: Examination) -> Testimony:
    """Return the test whether the first draft token is taken less often in prompts sent late than
    in those of their category sent early: the first of a category and its last are a pair, and so
    on inwards. Their order being drawn, each difference is as likely to be the other way round.
    A loss of less than a tenth is none; on a server that has other clients it is a notice."""
    pairs = _pairs(examination.case)
    if pairs.shape[0] < LEAST_PAIRS:
        return Testimony()
    early, late = (float(one) for one in pairs.mean(axis=0))
    told = Testimony(metrics={"acceptance/early": early, "acceptance/late": late})
    if late >= (1.0 - LEAST_LOSS) * early:
        return told
    p_value = sign_flip_p_value(pairs[:, 0] - pairs[:, 1])
    text = (
        f"the first draft token is taken in {late:.1%} of the steps of prompts sent late, in "
        f"{early:.1%} of those of their category sent early ({pairs.shape[0]} pairs, "
        f"p = {p_value:.2g})"
    )
    numbers = {"early": early, "late": late, "pairs": pairs.shape[0], "p_value": p_value}
    finding = Finding(kind=KIND, severity=Severity.FAULT, text=text, numbers=numbers)
    tested = where_rare(p_value, finding)
    return told + (as_notices(tested) if is_attached(examination) else tested)


def _pairs(case: Case) -> Floats:
    """Return how often the first draft token is taken in an early and in a late prompt of one
    category [pairs, 2], as far apart as can be."""
    taken = dict(zip(case.requests, first_taken(case).tolist(), strict=True))
    found: dict[str, list[float]] = {}
    prompts: set[str] = set()
    for answer in sorted(case.observed.on, key=lambda one: (one.started, one.request)):
        value = taken.get(answer.request, math.nan)
        if math.isfinite(value) and answer.prompt not in prompts:
            found.setdefault(answer.category, []).append(value)
        prompts.add(answer.prompt)
    pairs = [
        (values[place], values[-1 - place])
        for values in found.values()
        for place in range(len(values) // 2)
    ]
    return np.array(pairs).reshape(-1, 2)
