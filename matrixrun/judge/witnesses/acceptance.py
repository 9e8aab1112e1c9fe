"""acceptance: how much of what the drafter proposes the target takes, computed by us.

From per-step data, without each request's last step (the output limit cuts it) and without steps
that offered less than a whole draft. The engine's counters are checked against it, and stand in
where there are no per-step data.
"""

from __future__ import annotations

import math
import re

import numpy as np
from scipy import stats

from matrixrun.evidence.verdicts import Finding, Severity, Verdict
from matrixrun.judge.case import Case, counted
from matrixrun.judge.examination import Examination
from matrixrun.judge.settings import Expectation
from matrixrun.judge.statistics import Ratio, clustered_ratio
from matrixrun.judge.steps import Counters, Steps, counters_of, draft_length, steps_of
from matrixrun.judge.testimony import Objection, Testimony

KIND = "acceptance"
LENGTH = "acceptance/mean_acceptance_length"
RATE = "acceptance/draft_acceptance_rate"
POSITION = "acceptance/rate.position."
CATEGORY = "acceptance/mean_length.category."
_POSITION = re.compile(re.escape(POSITION) + r"(0|[1-9]\d*)")


def examine_acceptance(examination: Examination) -> Testimony:
    """Return acceptance with its intervals, compared with expectations and with the counters."""
    case = examination.case
    steps, counters = steps_of(case), counters_of(case)
    level = 1.0 - examination.settings.alpha / max(1, case.sweep_cells)
    ratios = acceptance_ratios(case, steps, level)
    if ratios:
        told = Testimony(
            findings=_counted(case, steps, counters),
            metrics={
                "acceptance/steps": float(steps.used(draft_length(case, steps)).sum()),
                **_by_category(case, steps),
            },
        )
    else:
        ratios = counted_ratios(case, steps, counters, level)
        told = _stood_in() if ratios else Testimony()
    metrics = {name: ratio.value for name, ratio in ratios.items()}
    for name in (LENGTH, RATE):
        if name in ratios and np.isfinite(ratios[name].error):
            metrics[f"{name}.low"], metrics[f"{name}.high"] = ratios[name].low, ratios[name].high
    return _expected(examination, ratios) + told + Testimony(metrics=metrics)


def _by_category(case: Case, steps: Steps) -> dict[str, float]:
    """Return the mean acceptance length of each category of prompts, where there are several."""
    categories = np.array([one.category for one in case.on.observations])
    names = np.unique(categories)
    if names.size < 2:
        return {}
    used = steps.used(draft_length(case, steps))
    found = {}
    for name in names:
        some = steps.accepted[used & (categories[steps.owner] == name)]
        if some.size:
            found[f"{CATEGORY}{name}"] = 1.0 + float(some.mean())
    return found


def is_acceptance_metric(name: str) -> bool:
    """Return whether `name` is one of the figures that an expectation may be about."""
    return name in (LENGTH, RATE) or _POSITION.fullmatch(name) is not None


def acceptance_ratios(case: Case, steps: Steps, level: float) -> dict[str, Ratio]:
    """Return the metrics of acceptance by name, with intervals at `level` clustered by request.

    Mean acceptance length is 1 + accepted / verification steps; the rate at position j is
    unconditional: steps that accepted more than j, of those that offered more than j.
    """
    used = steps.used(draft_length(case, steps))
    accepted, drafted, owner = steps.accepted[used], steps.drafted[used], steps.owner[used]
    if accepted.size == 0:
        return {}

    def ratio(top: np.ndarray, bottom: np.ndarray) -> Ratio | None:
        count = len(case.requests)
        tops, bottoms = counted(owner, top, count), counted(owner, bottom, count)
        return clustered_ratio(tops, bottoms, level=level)

    found = {
        LENGTH: ratio(accepted + 1, np.ones(accepted.size)),
        RATE: ratio(accepted, drafted),
    }
    for position in range(int(drafted.max())):
        offered = drafted > position
        found[f"{POSITION}{position}"] = ratio(accepted > position, offered)
    return {name: value for name, value in found.items() if value is not None}


def counted_ratios(case: Case, steps: Steps, counters: Counters, level: float) -> dict[str, Ratio]:
    """Return mean acceptance length and rate by the engine's counters, for want of steps.

    A count over the whole pass does not show its own spread. The intervals are as wide as they can
    be: every request all of one piece, and what it accepts all or nothing (variance a (k - a), the
    most that a mean of a in [0, k] has), requests weighing as many tokens as they emitted.
    """
    accepted = counters.accepted_tokens
    if accepted is None:
        return {}
    lengths = case.on.lengths[case.on.lengths > 0].astype(np.float64)
    requests = float(lengths.sum() ** 2 / (lengths**2).sum()) if lengths.size else 0.0
    found = {}
    if counters.drafts:
        mean = accepted / counters.drafts
        most = max(draft_length(case, steps), (counters.draft_tokens or 0.0) / counters.drafts)
        found[LENGTH] = _widest(1.0 + mean, mean * (most - mean), requests, level)
    if counters.draft_tokens:
        rate = accepted / counters.draft_tokens
        found[RATE] = _widest(rate, rate * (1.0 - rate), requests, level)
    return found


def _widest(value: float, variance: float, requests: float, level: float) -> Ratio:
    if requests < 2:
        return Ratio(value, -math.inf, math.inf, math.inf, int(requests))
    error = math.sqrt(max(0.0, variance) / requests)
    reach = float(stats.t.ppf(0.5 + level / 2.0, requests - 1)) * error
    return Ratio(value, value - reach, value + reach, error, int(requests))


def _stood_in() -> Testimony:
    text = "acceptance is the engine's own count: it gives no per-step data"
    return Testimony((Finding(kind=KIND, severity=Severity.NOTICE, text=text),))


def _expected(examination: Examination, ratios: dict[str, Ratio]) -> Testimony:
    """Return a fault where an interval lies outside an expectation, too high or too low, a notice
    where only the figure itself does, and an objection where there is no figure to compare."""
    told = Testimony()
    for entry in examination.settings.expectations:
        if entry.cell != examination.case.cell.id:
            continue
        ratio = ratios.get(entry.metric)
        if ratio is None:
            told += Testimony(objections=(_incomparable(entry),))
        elif not entry.low <= ratio.value <= entry.high:
            told += Testimony((_departure(entry, ratio),))
    return told


def _incomparable(entry: Expectation) -> Objection:
    known = is_acceptance_metric(entry.metric)
    why = "this cell has no such figure" if known else "no figure has that name"
    reason = f"{entry.metric} is expected at {entry.low:.3g} to {entry.high:.3g}, but {why}"
    return Objection(Verdict.INCONCLUSIVE, reason)


def _departure(entry: Expectation, ratio: Ratio) -> Finding:
    outside = ratio.high < entry.low or ratio.low > entry.high
    name = entry.metric.removeprefix("acceptance/")
    text = (
        f"{name} is {ratio.value:.3g} (interval {ratio.low:.3g} to {ratio.high:.3g}), expected "
        f"{entry.low:.3g} to {entry.high:.3g}"
    )
    numbers = {
        "metric": entry.metric,
        "value": ratio.value,
        "interval": [ratio.low, ratio.high] if np.isfinite(ratio.error) else None,
        "expected": [entry.low, entry.high],
    }
    severity = Severity.FAULT if outside else Severity.NOTICE
    return Finding(kind=KIND, severity=severity, text=text, numbers=numbers)


def _counted(case: Case, steps: Steps, counters: Counters) -> tuple[Finding, ...]:
    """Return notices where per-step data fit neither the tokens emitted nor the counters."""
    told = []
    early = ~steps.last & steps.ordered
    least = np.bincount(
        steps.owner[early], weights=steps.accepted[early] + 1, minlength=len(case.requests)
    )
    wrong = np.flatnonzero((least + 1 > case.on.lengths) & (least > 0) & ~case.on.failed)
    if wrong.size:
        text = (
            f"{wrong.size} requests emitted fewer tokens than their steps before the last account "
            f"for (first: {case.requests[wrong[0]]})"
        )
        told.append(_mismatch(text, {"requests": float(wrong.size)}))
    ours, theirs = float(steps.accepted.sum()), counters.accepted_tokens
    overshoot = float(len(case.requests) * max(1, draft_length(case, steps)))
    if theirs is not None and abs(theirs - ours) > overshoot:
        text = (
            f"the engine counted {theirs:.0f} accepted draft tokens, its steps add up to {ours:.0f}"
        )
        numbers = {"counted": theirs, "steps": ours, "allowed": overshoot}
        told.append(_mismatch(text, numbers))
    return tuple(told)


def _mismatch(text: str, numbers: dict[str, float]) -> Finding:
    return Finding(kind="counters", severity=Severity.NOTICE, text=text, numbers=numbers)
