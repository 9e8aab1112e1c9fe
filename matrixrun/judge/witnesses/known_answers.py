"""known answers: prompts of which the right answer is known judge both arms by it.

The share of a small target is low, and says how much the baseline can be judged by it at all; so
the figures are there for both arms, and a notice where the on arm gets fewer right.
"""

from __future__ import annotations

from matrixrun.evidence.verdicts import Finding, Severity
from matrixrun.judge.case import Answers, Case
from matrixrun.judge.examination import Examination
from matrixrun.judge.testimony import Testimony

KIND = "known-answers"
LEAST_SHARE = 0.5


def examine_known_answers(examination: Examination) -> Testimony:
    """Return the share of known answers that each arm gave, and notices where the on arm gave fewer
    or the off arm gave too few to say anything about it."""
    case = examination.case
    right = {"on": _right(case, case.on), "off": _right(case, case.off)}
    asked = len(right["off"])
    if asked == 0:
        return Testimony()
    shares = {arm: sum(found) / asked for arm, found in right.items()}
    told = Testimony(metrics={f"known/right.{arm}": share for arm, share in shares.items()})
    if sum(right["on"]) < sum(right["off"]):
        text = (
            f"{sum(right['on'])} of {asked} known answers are right on the on arm, "
            f"{sum(right['off'])} on the off arm"
        )
        told += _notice(text, shares)
    if shares["off"] < LEAST_SHARE:
        text = (
            f"the off arm gives {sum(right['off'])} of {asked} known answers: the target is weak "
            "at them, or the baseline is not what it should be"
        )
        told += _notice(text, shares)
    return told


def _right(case: Case, arm: Answers) -> list[bool]:
    """Return whether each known answer stands in what an arm said, where its text was kept."""
    known = case.observed.answers
    return [
        known[request] in text
        for request, answer in zip(case.requests, arm.observations, strict=True)
        if request in known and (text := answer.text) is not None
    ]


def _notice(text: str, shares: dict[str, float]) -> Testimony:
    finding = Finding(kind=KIND, severity=Severity.NOTICE, text=text, numbers=dict(shares))
    return Testimony((finding,))
