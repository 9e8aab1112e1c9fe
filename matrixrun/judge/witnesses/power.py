"""power: whether enough was observed for the claim asked for, and what was claimed."""

from __future__ import annotations

import numpy as np

from matrixrun.evidence.verdicts import Verdict
from matrixrun.judge.case import Case
from matrixrun.judge.examination import Examination
from matrixrun.judge.power import confidence_of, required_requests, visible_fault_rate
from matrixrun.judge.testimony import Objection, Testimony


def examine_power(examination: Examination) -> Testimony:
    """Return INCONCLUSIVE when fewer prompts were compared than the claim needs, or when answers
    were missing or could not be valued."""
    case, settings = examination.case, examination.settings
    rate, confidence = settings.detect_rate, settings.detect_confidence
    unvalued = np.flatnonzero(case.unvalued(case.on) & (case.forks >= 0))
    used = case.comparable.copy()
    used[unvalued] = False
    compared = _prompts(case, used)
    needed = required_requests(rate, confidence, settings.sensitivity)
    metrics = {
        "power/requests": float(used.sum()),
        "power/prompts": float(compared),
        "power/required": float(needed),
        "power/visible_fault_rate": visible_fault_rate(compared, confidence, settings.sensitivity),
        "power/confidence": confidence_of(compared, rate, settings.sensitivity),
        "power/sweep_confidence": confidence_of(
            compared, rate, settings.sensitivity, case.sweep_cells
        ),
        "power/sensitivity": settings.sensitivity,
        "exposure/tokens": float(case.on.token_ids.size),
    }
    reasons = []
    if case.missing:
        reasons.append(
            f"{len(case.missing)} requests were not sent to every arm (first: {case.missing[0]})"
        )
    if unvalued.size:
        first = case.requests[unvalued[0]]
        reasons.append(
            f"{unvalued.size} answers that differ could not be scored on the off arm "
            f"(first: {first})"
        )
    if compared < needed:
        reasons.append(
            f"{compared} prompts compared; a fault in {rate:.3g} of requests needs {needed} "
            f"at confidence {confidence:.3g}"
        )
    objections = tuple(Objection(Verdict.INCONCLUSIVE, reason) for reason in reasons)
    return Testimony(metrics=metrics, objections=objections)


def _prompts(case: Case, flags: np.ndarray) -> int:
    """Return the number of distinct prompts among the flagged requests [requests]."""
    return int(np.unique(case.prompt_groups[flags]).size)
