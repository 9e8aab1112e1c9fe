"""What a witness returns: findings, figures, tests, and reasons why a cell cannot pass."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import msgspec

from matrixrun.evidence.requests import ScoreRequest
from matrixrun.evidence.verdicts import Finding, Severity, Verdict


@dataclass(frozen=True)
class Objection:
    """Why a cell cannot be PASS though nothing need be at fault: the `verdict` it gets instead.

    `voids` says that the off arm itself is unsound, so that nothing measured against it counts.
    """

    verdict: Verdict
    reason: str
    voids: bool = False


@dataclass(frozen=True)
class RateTest:
    """A test of a rate against the control; it becomes `finding` if it stands in the sweep."""

    p_value: float
    finding: Finding


@dataclass(frozen=True)
class Testimony:
    """One witness's word on one cell."""

    findings: tuple[Finding, ...] = ()
    metrics: dict[str, float] = field(default_factory=dict)
    coverage: dict[str, int] = field(default_factory=dict)
    objections: tuple[Objection, ...] = ()
    rates: tuple[RateTest, ...] = ()
    wants: tuple[ScoreRequest, ...] = ()

    def __add__(self, other: Testimony) -> Testimony:
        """Return both words together, this one first."""
        return replace(
            self,
            findings=self.findings + other.findings,
            metrics={**self.metrics, **other.metrics},
            coverage={**self.coverage, **other.coverage},
            objections=self.objections + other.objections,
            rates=self.rates + other.rates,
            wants=self.wants + other.wants,
        )


# Most tests have nothing to tell apart while nothing is wrong. Those of figures that differ from
# prompt to prompt use up what a sweep's 5 % gives them, and accuse a healthy cell in a hundred.
RARE = 1e-4
SELDOM = 1e-2


def where_rare(p_value: float, finding: Finding) -> Testimony:
    """Return the test of such a figure: its finding counts where chance does that once in 10,000
    times, and is a notice where it does once in a hundred."""
    if p_value < RARE:
        return Testimony(rates=(RateTest(p_value, finding),))
    if p_value < SELDOM:
        return Testimony((msgspec.structs.replace(finding, severity=Severity.NOTICE),))
    return Testimony()


def as_notices(tested: Testimony) -> Testimony:
    """Return findings and those of tests as notices: on a server that has other clients, their load
    is in what it does."""
    found = (*tested.findings, *(one.finding for one in tested.rates))
    return Testimony(tuple(msgspec.structs.replace(one, severity=Severity.NOTICE) for one in found))
