"""acceptance: how much of what the drafter proposes the target takes, computed by us.

From per-step data, without each request's last step (the output limit cuts it) and without steps
that offered less than a whole draft. The engine's counters are only checked against it.
"""

from __future__ import annotations

import numpy as np

from matrixrun.evidence.verdicts import Finding, Severity
from matrixrun.judge.case import Case, counted
from matrixrun.judge.examination import Examination
from matrixrun.judge.statistics import Ratio, clustered_ratio
from matrixrun.judge.steps import Counters, Steps, counters_of, draft_length, steps_of
from matrixrun.judge.testimony import Testimony

KIND = "acceptance"
LENGTH = "acceptance/mean_acceptance_length"
RATE = "acceptance/draft_acceptance_rate"


def examine_acceptance(examination: Examination) -> Testimony:
    """Return acceptance with its intervals, compared with expectations and with the counters."""
    case = examination.case
    steps, counters = steps_of(case), counters_of(case)
    level = 1.0 - examination.settings.alpha / max(1, case.sweep_cells)
    ratios = acceptance_ratios(case, steps, level)
    if not ratios:
        return _from_counters(counters)
    metrics = {name: ratio.value for name, ratio in ratios.items()}
    metrics["acceptance/steps"] = float(steps.used(draft_length(case, steps)).sum())
    for name in (LENGTH, RATE):
        ratio = ratios[name]
        if np.isfinite(ratio.error):
            metrics[f"{name}.low"], metrics[f"{name}.high"] = ratio.low, ratio.high
    findings = _expected(examination, ratios)
    return Testimony(findings=findings + _counted(case, steps, counters), metrics=metrics)


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
        found[f"acceptance/rate.position.{position}"] = ratio(accepted > position, offered)
    return {name: value for name, value in found.items() if value is not None}


def _from_counters(counters: Counters) -> Testimony:
    """Return what the engine's counters say, where there are no per-step data."""
    metrics = {}
    if counters.drafts and counters.accepted_tokens is not None:
        metrics[LENGTH] = 1.0 + counters.accepted_tokens / counters.drafts
    if counters.draft_tokens and counters.accepted_tokens is not None:
        metrics[RATE] = counters.accepted_tokens / counters.draft_tokens
    if not metrics:
        return Testimony()
    text = "acceptance is the engine's own count: it gives no per-step data"
    finding = Finding(kind=KIND, severity=Severity.NOTICE, text=text)
    return Testimony((finding,), metrics=metrics)


def _expected(examination: Examination, ratios: dict[str, Ratio]) -> tuple[Finding, ...]:
    """Return a fault where an interval lies outside an expectation, too high or too low, and a
    notice where only the figure itself does."""
    told = []
    for entry in examination.settings.expectations:
        ratio = ratios.get(entry.metric)
        if entry.cell != examination.case.cell.id or ratio is None:
            continue
        if entry.low <= ratio.value <= entry.high:
            continue
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
        told.append(Finding(kind=KIND, severity=severity, text=text, numbers=numbers))
    return tuple(told)


def _counted(case: Case, steps: Steps, counters: Counters) -> tuple[Finding, ...]:
    """Return notices where per-step data fit neither the tokens emitted nor the counters."""
    told = []
    early = ~steps.last
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
