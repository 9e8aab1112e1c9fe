"""regret: whether the on arm's tokens cost the target more than the control's, over all tokens.

Statistic of a request: the sum of its regrets beyond the floor, and the largest excess. Regrets
below the floor are ties that fell the other way, which `equality` counts as a notice. On and
control answer the same prompts; where both are identical there is no contrast. Signs are flipped
over prompts, whose requests stay together.
"""

from __future__ import annotations

import numpy as np

from matrixrun.evidence.verdicts import Finding, Severity
from matrixrun.judge.case import Answers, Case, Floats
from matrixrun.judge.examination import Examination
from matrixrun.judge.statistics import sign_flip_p_value
from matrixrun.judge.testimony import RateTest, Testimony

RATE_TESTS = 2


def examine_regret(examination: Examination) -> Testimony:
    """Return both tests and the figures of both arms."""
    case, floor = examination.case, examination.ceiling.floor
    tests = []
    for name, on, null in (
        ("sum of regrets beyond the floor", _beyond(case.on, floor), _beyond(case.null, floor)),
        ("largest regret beyond the floor", _worst(case.on, floor), _worst(case.null, floor)),
    ):
        differences = _paired(case, on - null)
        p_value = sign_flip_p_value(differences)
        worse, better = int((differences > 0).sum()), int((differences < 0).sum())
        text = (
            f"the on arm's {name} is greater than the control's in {worse} prompts and smaller in "
            f"{better} (p = {p_value:.2g}; means {on.mean():.3g} and {null.mean():.3g} nats)"
        )
        numbers = {
            "p_value": p_value,
            "prompts_worse": worse,
            "prompts_better": better,
            "mean_on": float(on.mean()),
            "mean_null": float(null.mean()),
        }
        finding = Finding(kind="regret", severity=Severity.FAULT, text=text, numbers=numbers)
        tests.append(RateTest(p_value, finding))
    metrics = {
        **_metrics(case.on, floor, "on"),
        **_metrics(case.off, floor, "off"),
        **_metrics(case.null, floor, "null"),
    }
    return Testimony(metrics=metrics, rates=tuple(tests))


def _beyond(answers: Answers, floor: float) -> Floats:
    return answers.total(np.maximum(answers.regrets - floor, 0.0))


def _worst(answers: Answers, floor: float) -> Floats:
    return answers.largest(np.maximum(answers.regrets - floor, 0.0))


def _paired(case: Case, differences: Floats) -> Floats:
    """Return the differences summed over prompts, where both arms are valued throughout."""
    unvalued = case.unvalued(case.on) | case.unvalued(case.null)
    return case.by_prompt(np.where(case.comparable & ~unvalued, differences, 0.0))


def _metrics(answers: Answers, floor: float, arm: str) -> dict[str, float]:
    known = answers.regrets[np.isfinite(answers.regrets)]
    if known.size == 0:
        return {}
    return {
        f"regret/max.{arm}": float(known.max()),
        f"regret/mean.{arm}": float(known.mean()),
        f"regret/tokens_beyond_floor.{arm}": float((known > floor).sum()),
        f"regret/tokens_scored.{arm}": float(known.size),
    }
