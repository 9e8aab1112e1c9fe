"""degeneration: loops, counted against the control, since small models loop by themselves."""

from __future__ import annotations

import numpy as np

from matrixrun.evidence.verdicts import Finding, Severity
from matrixrun.judge import patterns
from matrixrun.judge.examination import Examination
from matrixrun.judge.statistics import sign_flip_p_value
from matrixrun.judge.testimony import RateTest, Testimony

RATE_TESTS = 1


def examine_degeneration(examination: Examination) -> Testimony:
    """Return the test whether more of the on arm's answers run in short cycles than the control's.

    Signs are flipped over prompts; with one request a prompt this is McNemar's exact test.
    """
    case = examination.case
    on, null = patterns.cycling(case.on), patterns.cycling(case.null)
    counted = case.comparable
    differences = case.by_prompt((on & counted).astype(float) - (null & counted).astype(float))
    p_value = sign_flip_p_value(differences)
    only = [case.requests[index] for index in np.flatnonzero(on & ~null & counted)]
    text = (
        f"{int(on.sum())} of the on arm's answers run in short cycles, {int(null.sum())} of the "
        f"control's (p = {p_value:.2g})" + (f"; first: {only[0]}" if only else "")
    )
    numbers = {
        "on": int(on.sum()),
        "null": int(null.sum()),
        "p_value": p_value,
        "requests": only[:8],
    }
    finding = Finding(kind="degeneration", severity=Severity.FAULT, text=text, numbers=numbers)
    metrics = {"degenerate/cycles.on": float(on.sum())}
    return Testimony(metrics=metrics, rates=(RateTest(p_value, finding),))
