"""checkpoints: both arms must have served the same target, byte for byte."""

from __future__ import annotations

from matrixrun.evidence.verdicts import Finding, Severity, Verdict
from matrixrun.judge.examination import Examination
from matrixrun.judge.testimony import Objection, Testimony


def examine_checkpoints(examination: Examination) -> Testimony:
    """Return an objection where the content hash of a launch's target is not launch A's.

    A hub id that was not resolved to a folder has no hash and is not compared.
    """
    outcomes = examination.case.observed.evidence.outcomes
    expected = outcomes["A"].checkpoints.get("target")
    told = Testimony()
    for role, name in (("on", "the on arm"), ("B", "the control")):
        found = outcomes[role].checkpoints.get("target") if role in outcomes else None
        if expected is None or found is None or found == expected:
            continue
        reason = (
            f"{name} served another target checkpoint than the off arm"
            f" (sha256 {found[:12]} against {expected[:12]})"
        )
        finding = Finding(
            kind="checkpoints",
            severity=Severity.NOTICE,
            text=reason,
            numbers={role: found, "A": expected},
        )
        told += Testimony((finding,), objections=(Objection(Verdict.INCONCLUSIVE, reason),))
    return told
