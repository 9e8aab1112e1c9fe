"""What a witness returns: findings, figures, tests, and reasons why a cell cannot pass."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from matrixrun.evidence.requests import ScoreRequest
from matrixrun.evidence.verdicts import Finding, Verdict


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
