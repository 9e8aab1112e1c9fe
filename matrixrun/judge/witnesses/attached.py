"""attached: what is not known of servers that run already, said with every cell they served."""

from __future__ import annotations

from matrixrun.evidence.verdicts import Finding, Severity
from matrixrun.judge.examination import Examination
from matrixrun.judge.testimony import Testimony


def examine_attached(examination: Examination) -> Testimony:
    """Return a notice for cells whose arms were attached instead of launched."""
    outcomes = examination.case.observed.evidence.outcomes
    unknown: dict[str, list[str]] = {}
    for role in ("on", "A", "B"):
        facts = outcomes[role].facts if role in outcomes else {}
        if facts.get("attached"):
            unknown[role] = [str(entry) for entry in facts.get("unknown", [])]
    if not unknown:
        return Testimony()
    both = [entry for entry in unknown.get("on", []) if entry in unknown.get("A", [])]
    parts = [f"of both arms {', '.join(both)}"] if both else []
    for role, name in (("on", "of the on arm"), ("A", "of the off arm")):
        own = [entry for entry in unknown.get(role, []) if entry not in both]
        parts += [f"{name} {', '.join(own)}"] if own else []
    finding = Finding(
        kind="attached",
        severity=Severity.NOTICE,
        text=f"attached, so not known: {'; '.join(parts)}",
        numbers=dict(unknown),
    )
    return Testimony((finding,))


def is_attached(examination: Examination) -> bool:
    """Whether the on arm is a server that runs already."""
    return bool(examination.case.observed.evidence.outcomes["on"].facts.get("attached"))
