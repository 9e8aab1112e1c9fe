"""coverage: whether the transitions that break engines were exercised at all."""

from __future__ import annotations

from matrixrun.evidence.verdicts import Finding, Severity, Verdict
from matrixrun.judge.examination import Examination
from matrixrun.judge.steps import draft_length, steps_of
from matrixrun.judge.testimony import Objection, Testimony


def examine_coverage(examination: Examination) -> Testimony:
    """Return the rejections seen at each draft position, and INCONCLUSIVE where they are too few.

    A step that accepted exactly j of more than j draft tokens rejected at position j (from 0). The
    last step of a request is left out: the output limit may have cut it.
    """
    case, least = examination.case, examination.settings.rejections_per_position
    steps = steps_of(case)
    if not steps.given:
        if least == 0:
            return Testimony()
        reason = "the engine gives no per-step data: rejections at each draft position are unknown"
        return Testimony(objections=(Objection(Verdict.INCONCLUSIVE, reason),))
    counted = steps.verified & ~steps.last
    accepted, drafted = steps.accepted[counted], steps.drafted[counted]
    seen = {
        position: int(((accepted == position) & (drafted > position)).sum())
        for position in range(draft_length(case, steps))
    }
    rejecting = int((accepted < drafted).sum())
    coverage = {f"rejections.position.{position}": count for position, count in seen.items()}
    coverage["steps.rejecting"] = rejecting
    coverage["steps.verified"] = int(counted.sum())
    metrics = {"exposure/steps_with_rejection": float(rejecting)}
    short = [position for position, count in seen.items() if count < least]
    told = Testimony(coverage=coverage, metrics=metrics)
    if short:
        told += _objection(short, seen, least)
    if counted.any() and rejecting == 0:
        text = "every draft token was accepted: nothing about rejection was put to the test"
        told += Testimony((Finding(kind="all-accepted", severity=Severity.NOTICE, text=text),))
    return told


def _objection(short: list[int], seen: dict[int, int], least: int) -> Testimony:
    places = ", ".join(f"position {position} ({seen[position]})" for position in short)
    reason = f"fewer than {least} rejections at draft {places}"
    return Testimony(objections=(Objection(Verdict.INCONCLUSIVE, reason),))
