"""What a bench found: one line a specimen, and the whole as JSON."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

import msgspec
from rich.table import Table

from matrixrun.faultbench.result import TrialResult
from matrixrun.faultbench.specimen import Harm, Specimen
from matrixrun.judge import LEAST_LOSS


class Outcome(StrEnum):
    """What is said of a specimen over all its seeds."""

    CAUGHT = "caught"
    PARTLY = "partly caught"
    MISSED = "missed"
    BELOW = "below the floor"
    IDLE = "never struck"
    CLEAR = "not accused"
    ACCUSED = "accused"


BAD = (Outcome.PARTLY, Outcome.MISSED, Outcome.IDLE, Outcome.ACCUSED)


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A specimen's trials in sum. Requests and tokens are medians over the seeds that caught it,
    regrets the largest and the mean over all trials, in nats."""

    specimen: str
    what: str
    report: str
    harmless: bool
    outcome: Outcome
    caught: int
    trials: int
    finding: str
    requests: float | None
    tokens: float | None
    regret_max: float
    regret_mean: float
    logprob_shift: float
    acceptance: float
    struck: int
    steps: int


def summarise(
    specimen: Specimen, trials: Sequence[TrialResult], healthy: Mapping[int, TrialResult]
) -> Line:
    """Return a specimen's line. A fault that no seed caught and that moved nothing by more than
    the floor is listed by its size; the bench counts it as harmless in this place. `healthy` are
    the trials, by seed, of its launch with nothing switched on, as far as there are."""
    caught = [one for one in trials if one.caught]
    findings = list(dict.fromkeys(one.finding for one in caught))
    return Line(
        specimen=specimen.name,
        what=specimen.what,
        report=specimen.report,
        harmless=specimen.harmless,
        outcome=_outcome(specimen, trials, healthy),
        caught=len(caught),
        trials=len(trials),
        finding=", ".join(findings),
        requests=statistics.median(one.requests for one in caught) if caught else None,
        tokens=statistics.median(one.tokens for one in caught) if caught else None,
        regret_max=max(one.regret_max for one in trials),
        regret_mean=statistics.fmean(one.regret_mean for one in trials),
        logprob_shift=max(one.logprob_shift for one in trials),
        acceptance=statistics.fmean(one.acceptance for one in trials),
        struck=sum(one.struck for one in trials),
        steps=sum(one.steps for one in trials),
    )


def _outcome(
    specimen: Specimen, trials: Sequence[TrialResult], healthy: Mapping[int, TrialResult]
) -> Outcome:
    if specimen.harmless:
        accused = any(one.caught for one in trials)
        return Outcome.ACCUSED if accused else Outcome.CLEAR
    left = [one for one in trials if not one.caught]
    if not left:
        return Outcome.CAUGHT
    if all(one.struck == 0 for one in left):
        return Outcome.IDLE
    if all(_small(specimen, one, healthy.get(one.seed)) for one in left):
        return Outcome.BELOW if len(left) == len(trials) else Outcome.CAUGHT
    return Outcome.PARTLY if len(left) < len(trials) else Outcome.MISSED


def _small(specimen: Specimen, trial: TrialResult, healthy: TrialResult | None) -> bool:
    """Return whether a trial's effect is one of size, and within what arithmetic alone explains,
    or a loss of acceptance that is none to the judge; a trial in which nothing happened shows
    nothing either way."""
    small = trial.regret_max <= trial.ceiling and trial.logprob_shift <= trial.ceiling
    if specimen.harm is Harm.ACCEPTANCE:
        kept = healthy is not None and trial.acceptance > (1 - LEAST_LOSS) * healthy.acceptance
        small = small and kept
    return trial.struck == 0 or (specimen.harm is not Harm.OTHER and small)


def as_table(lines: Sequence[Line]) -> Table:
    """Return the table for a terminal."""
    table = Table(title="Fault bench", caption="requests and tokens: the fewest with which the "
                  "judge says the same, median over seeds; regret in nats")  # fmt: skip
    for name in ("fault", "modelled on", "outcome", "seeds", "first finding"):
        table.add_column(name, overflow="fold")
    for name in ("requests", "tokens", "largest regret", "mean regret", "struck"):
        table.add_column(name, justify="right")
    for line in lines:
        table.add_row(
            line.specimen, line.report, line.outcome.value, f"{line.caught}/{line.trials}",
            line.finding or "-", _number(line.requests), _number(line.tokens),
            f"{line.regret_max:.3g}", f"{line.regret_mean:.2g}", f"{line.struck}",
        )  # fmt: skip
    return table


def as_json(lines: Sequence[Line], trials: Sequence[TrialResult], about: dict[str, Any]) -> bytes:
    """Return all of it as JSON."""
    content = {"about": about, "lines": list(lines), "trials": list(trials)}
    return msgspec.json.format(msgspec.json.encode(content), indent=1)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"
