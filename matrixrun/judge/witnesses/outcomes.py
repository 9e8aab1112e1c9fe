"""outcomes: what became of a cell's launches, before any token is looked at."""

from __future__ import annotations

from matrixrun.evidence.launches import LaunchEnd, LaunchOutcome
from matrixrun.evidence.verdicts import CellEvidence, Finding, Severity, Verdict
from matrixrun.judge.testimony import Objection, Testimony

TAIL_LINES = 20
NAMES = {"on": "the on arm", "A": "the off arm", "B": "the control launch"}
WORDS = {
    LaunchEnd.DIED: "died",
    LaunchEnd.HUNG: "made no progress",
    LaunchEnd.UNBUILT: "could not be built",
    LaunchEnd.LOST: "was lost with its node",
    LaunchEnd.AWAY: "is away",
    LaunchEnd.STOPPED: "was stopped before it was done",
    LaunchEnd.REFUSED: "was refused",
}


def examine_outcomes(evidence: CellEvidence) -> Testimony:
    """Return REFUSED, ERROR or INCONCLUSIVE for launches that did not serve, in their own words.

    A cell whose off launch is refused or dies goes the same way, with that reason.
    """
    told = Testimony()
    for role in ("on", "A", "B"):
        outcome = evidence.outcomes.get(role)
        if outcome is None and role == "B":
            continue
        if outcome is None:
            reason = f"{NAMES[role]} was never launched"
            told += Testimony(objections=(Objection(Verdict.INCONCLUSIVE, reason),))
        elif outcome.end is not LaunchEnd.SERVED:
            told += _ended(role, outcome)
    return told


def _ended(role: str, outcome: LaunchOutcome) -> Testimony:
    words = _first_line(outcome.message) or _last_line(outcome.log_tail) or "no message"
    reason = f"{NAMES[role]} {WORDS[outcome.end]}: {words}"
    verdict = {
        LaunchEnd.REFUSED: Verdict.REFUSED,
        LaunchEnd.STOPPED: Verdict.INCONCLUSIVE,
    }.get(outcome.end, Verdict.ERROR)
    severity = Severity.FAULT if verdict is Verdict.ERROR else Severity.NOTICE
    numbers = {
        "launch": outcome.launch,
        "role": role,
        "end": outcome.end.value,
        "attempts": outcome.attempts,
        "message": outcome.message,
        "log_tail": "\n".join(outcome.log_tail.splitlines()[-TAIL_LINES:]),
    }
    finding = Finding(kind="launch", severity=severity, text=reason, numbers=numbers)
    return Testimony(findings=(finding,), objections=(Objection(verdict, reason),))


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), "")


def _last_line(text: str) -> str:
    return next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "")
