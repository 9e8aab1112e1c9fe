"""hardware: both arms must have run on the same kind of machine, or their difference is its."""

from __future__ import annotations

from typing import Any

from matrixrun.evidence.verdicts import Finding, Severity, Verdict
from matrixrun.judge.examination import Examination
from matrixrun.judge.testimony import Objection, Testimony

# What names a machine, or differs between equal ones (memory less what the kernel keeps).
IDENTITY = frozenset(
    {"node", "node_id", "host", "hostname", "address", "ip", "uuid", "uuids", "memory_gib"}
)


def examine_hardware(examination: Examination) -> Testimony:
    """Return an objection naming what differs between the arms' hardware, nodes' names aside."""
    outcomes = examination.case.observed.evidence.outcomes
    off = _kind(outcomes["A"].hardware)
    told = Testimony()
    for role, name in (("on", "the on arm"), ("B", "the control")):
        if role not in outcomes:
            continue
        other = _kind(outcomes[role].hardware)
        if not off or not other or off == other:
            continue
        keys = sorted(key for key in off.keys() | other.keys() if off.get(key) != other.get(key))
        what = "; ".join(f"{key}: {other.get(key)} against {off.get(key)}" for key in keys)
        reason = f"{name} ran on other hardware than the off arm ({what})"
        finding = Finding(
            kind="hardware",
            severity=Severity.NOTICE,
            text=reason,
            numbers={key: [str(other.get(key)), str(off.get(key))] for key in keys},
        )
        told += Testimony((finding,), objections=(Objection(Verdict.INCONCLUSIVE, reason),))
    return told


def _kind(hardware: dict[str, Any]) -> dict[str, Any]:
    """Return what kind of hardware it is; of a list of nodes only their number counts."""
    kind = {key: value for key, value in hardware.items() if key not in IDENTITY}
    if isinstance(kind.get("nodes"), list | tuple):
        kind["nodes"] = len(kind["nodes"])
    return kind
