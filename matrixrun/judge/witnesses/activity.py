"""activity: whether the on arm speculated at all, and for how much of its output."""

from __future__ import annotations

import math

import numpy as np

from matrixrun.evidence.verdicts import Finding, Severity, Verdict
from matrixrun.judge.examination import Examination
from matrixrun.judge.steps import Counters, Steps, counters_of, steps_of
from matrixrun.judge.testimony import Objection, Testimony
from matrixrun.judge.witnesses.acceptance import LENGTH, acceptance_ratios, counted_ratios
from matrixrun.judge.witnesses.attached import is_attached


def examine_activity(examination: Examination) -> Testimony:
    """Return INACTIVE when nothing, or too little, was drafted; the share of tokens that came from
    verification steps otherwise. An on arm that answered nothing at all is not idle but broken:
    others speak of that."""
    case, least = examination.case, examination.settings.min_speculated_share
    steps, counters = steps_of(case), counters_of(case)
    tokens = int(case.on.lengths.sum())
    if tokens == 0:
        return Testimony()
    drafted = _drafted(steps, counters)
    if drafted is None and is_attached(examination):
        reason = "whether the endpoint drafted is not known: it gives neither steps nor counters"
        return Testimony(objections=(Objection(Verdict.INCONCLUSIVE, reason),))
    if drafted is None:
        return _inactive("nothing shows that the engine drafted: no steps and no counters", 0.0)
    if drafted == 0:
        return _inactive("the engine took the settings and never drafted a token", 0.0)
    share = _share(steps, counters, case.on.lengths)
    metrics = {"acceptance/speculated_share": share, "acceptance/draft_tokens": drafted}
    if share < least:
        reason = f"{share:.1%} of tokens came from verification steps, fewer than {least:.0%}"
        return _inactive(reason, share) + Testimony(metrics=metrics)
    return Testimony(metrics=metrics) + _collapsed(examination, steps, counters, share)


def _collapsed(
    examination: Examination, steps: Steps, counters: Counters, share: float
) -> Testimony:
    """Return INACTIVE when hardly a draft token was accepted, whatever else the figures may be:
    what an engine does after it accepts was not put to the test then, and nothing was gained.

    The bound is on the upper end of the interval, and on the figure itself where it is the
    engine's own count of the whole pass. sglang#40144 had 1.06, with the output right.
    """
    case, least = examination.case, examination.settings.least_acceptance_length
    level = 1.0 - examination.settings.alpha / max(1, case.sweep_cells)
    length = acceptance_ratios(case, steps, level).get(LENGTH)
    if length is not None:
        most, source = length.high, f"at most {length.high:.3g}"
    else:
        length = counted_ratios(case, steps, counters, level).get(LENGTH)
        most, source = (math.inf if length is None else length.value), "by the engine's own count"
    if length is None or not most < least:
        return Testimony()
    reason = (
        f"hardly any draft token was accepted: the mean acceptance length is {length.value:.3g} "
        f"({source}; {least:.3g} is the least that counts as speculation)"
    )
    return _inactive(reason, share)


def _inactive(reason: str, share: float) -> Testimony:
    finding = Finding(
        kind="inactive", severity=Severity.NOTICE, text=reason, numbers={"speculated_share": share}
    )
    return Testimony((finding,), objections=(Objection(Verdict.INACTIVE, reason),))


def _drafted(steps: Steps, counters: Counters) -> float | None:
    """Return the draft tokens proposed: per-step data first, else the engine's counter."""
    if steps.given and steps.drafted.any():
        return float(steps.drafted.sum())
    if counters.draft_tokens is not None:
        return counters.draft_tokens
    if counters.drafts is not None:
        return counters.drafts
    return 0.0 if steps.given else None


def _share(steps: Steps, counters: Counters, lengths: np.ndarray) -> float:
    """Return the share of emitted tokens that verification steps emitted (a step emits what it
    accepts and one more; the last step of a request may be cut, so no more than there are)."""
    if steps.given:
        emitted = np.bincount(
            steps.owner[steps.verified],
            weights=steps.accepted[steps.verified] + 1,
            minlength=lengths.size,
        )
        return float(np.minimum(emitted, lengths).sum() / lengths.sum())
    if counters.drafts is None or counters.accepted_tokens is None:
        return 1.0
    return float(min(1.0, (counters.drafts + counters.accepted_tokens) / lengths.sum()))
