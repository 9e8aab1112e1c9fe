"""What was seen of one specimen with one seed, and what is told of it."""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
import numpy as np

from matrixrun.evidence.launches import Role
from matrixrun.evidence.ledger import Event
from matrixrun.evidence.requests import Observation, Score
from matrixrun.evidence.verdicts import CellResult, Severity, Verdict
from matrixrun.faultbench.control import Struck
from matrixrun.faultbench.pair import PLACES, LaunchDied
from matrixrun.faultbench.specimen import Specimen
from matrixrun.judge import ProbeObserved

# What a verdict says against a pair: a fault is caught by any of these, while something harmless
# is accused by those that call it a fault. A pair without speculation is rightly INACTIVE.
AGAINST = (Verdict.FAIL, Verdict.INACTIVE, Verdict.ERROR)
ACCUSING = (Verdict.FAIL, Verdict.ERROR)


@dataclass
class Seen:
    """All that was observed of one specimen with one seed so far."""

    on: list[Observation] = field(default_factory=list)
    off: list[Observation] = field(default_factory=list)
    null: list[Observation] = field(default_factory=list)
    on_scores: list[Score] = field(default_factory=list)
    off_scores: list[Score] = field(default_factory=list)
    null_scores: list[Score] = field(default_factory=list)
    confirmations: list[Score] = field(default_factory=list)
    before: dict[str, float] = field(default_factory=dict)
    growth: dict[str, float] = field(default_factory=dict)
    prompts: dict[str, tuple[int, ...]] = field(default_factory=dict)
    probed: ProbeObserved | None = None
    ledgers: dict[str, tuple[Event, ...]] = field(default_factory=dict)

    @property
    def order(self) -> list[Observation]:
        """The answers that the specimen shows in, in the order sent."""
        return self.on if self.probed is None else list(self.probed.answers("on"))


class TrialResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came of one specimen with one seed.

    `caught` says that the verdict is against the specimen (for something harmless: that it was
    accused), `finding` is the kind of the first finding that carries the verdict, `requests` and
    `tokens` the fewest of the on arm's answers, in the order sent, with which the judge says the
    same. Regrets in nats, over all on tokens seen (the largest over those of a further probe too);
    `logprob_shift` is how far the on arm's own logprobs are off. `struck` counts how often the
    injection did something.
    """

    specimen: str
    seed: int
    verdict: str
    caught: bool
    finding: str
    reason: str
    requests: int
    tokens: int
    sent: int
    struck: int
    steps: int
    regret_max: float
    regret_mean: float
    logprob_shift: float
    ceiling: float
    acceptance: float
    metrics: dict[str, float] = {}


def place_of(specimen: Specimen) -> Role:
    """Return the launch that a fault of speculation goes into."""
    return PLACES.get(specimen.probe or "", Role.ON)


def died(specimen: Specimen, seed: int, error: LaunchDied) -> TrialResult:
    """Return the result of a trial in which an on launch's engine ended by itself, which is an
    ERROR of the cell in a sweep. A fault did that only in the launch that it is in; what is
    harmless is accused of any."""
    there = error.role is place_of(specimen)
    return TrialResult(
        specimen=specimen.name, seed=seed, verdict=Verdict.ERROR.value,
        caught=there or specimen.harmless, finding="died", reason=error.message,
        requests=0, tokens=0, sent=0, struck=int(there), steps=0,
        regret_max=0.0, regret_mean=0.0, logprob_shift=0.0, ceiling=0.0, acceptance=0.0,
    )  # fmt: skip


def caught(specimen: Specimen, verdict: Verdict) -> bool:
    """Return whether a verdict is against a specimen."""
    return verdict in (ACCUSING if specimen.harmless else AGAINST)


def _shift(metrics: dict[str, float]) -> float:
    """Return the larger of the shifts of mean and 99 % point of the on arm's logprobs, beyond the
    control's."""
    mean = abs(metrics.get("drift/mean.on", 0.0) - metrics.get("drift/mean.null", 0.0))
    return max(mean, metrics.get("drift/p99.on", 0.0) - metrics.get("drift/p99.null", 0.0))


def told_of(
    specimen: Specimen, seed: int, result: CellResult, seen: Seen, struck: Struck
) -> TrialResult:
    """Return what came of a trial with this end of its cell."""
    faults = [one for one in result.findings if one.severity is Severity.FAULT]
    named = faults[0].kind if faults else ""
    if faults and specimen.of_state and faults[0].text.startswith(f"[{specimen.probe}]"):
        named += f" [{specimen.probe}]"
    if result.verdict is Verdict.INACTIVE:
        named = "inactive"
    regrets = [score.regret for score in seen.on_scores if score.error is None]
    values = np.concatenate(regrets) if regrets else np.zeros(1)
    values = values[np.isfinite(values)]
    metrics = result.metrics
    processed = [v for name, v in metrics.items() if "regret/max." in name and name.endswith(".on")]
    return TrialResult(
        specimen=specimen.name, seed=seed, verdict=result.verdict.value,
        caught=caught(specimen, result.verdict), finding=named, reason=result.reason,
        requests=len(seen.order), tokens=sum(one.token_ids.size for one in seen.order),
        sent=len(seen.order), struck=struck.times, steps=struck.steps,
        regret_max=max([float(values.max(initial=0.0)), *processed]),
        regret_mean=float(values.mean()) if values.size else 0.0,
        logprob_shift=_shift(metrics),
        ceiling=metrics.get("regret/ceiling", 0.0),
        acceptance=metrics.get("acceptance/draft_acceptance_rate", 0.0), metrics=metrics,
    )  # fmt: skip
