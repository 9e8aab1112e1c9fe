"""hazard: whether tokens beyond the floor stand behind rejections, within the on arm itself.

Per-step data tie each token to its verification step. Of the tokens of one request whose margin is
alike, those in a step that follows a rejection are compared with those in a step that follows a
whole draft: where the cache or a state is not rolled back, the former go wrong. No other launch is
needed, so that nothing of a launch can be the reason. Given how many tokens of a stratum lie beyond
the floor, how many of them follow a rejection is hypergeometric (a stratified Fisher test, exact:
the sum over strata is convolved). It names a cause and is a notice: that there is a fault at all,
the other witnesses say.
"""

from __future__ import annotations

import numpy as np
from scipy import stats

from matrixrun.evidence.verdicts import Finding, Severity
from matrixrun.judge.case import Case, Floats, Ints
from matrixrun.judge.examination import Examination
from matrixrun.judge.testimony import Testimony

KIND = "hazard"
LEVEL = 0.001
# Margins are alike within these, in floors.
MARGINS = (1.0, 4.0)
BEHIND, OTHER, UNKNOWN = 1, 0, -1


def examine_hazard(examination: Examination) -> Testimony:
    """Return a notice where tokens beyond the floor come after rejections more than elsewhere."""
    case, floor = examination.case, examination.ceiling.floor
    place = _places(case)
    known = (place != UNKNOWN) & np.isfinite(case.on.regrets)
    beyond = (case.on.regrets > floor) & known
    if not beyond.any():
        return Testimony()
    stratum = case.on.owner * (len(MARGINS) + 1) + np.digitize(_margins(case) / floor, MARGINS)
    counts = _counts(stratum[known], place[known] == BEHIND, beyond[known])
    p_value = _p_value(counts)
    behind = beyond & (place == BEHIND)
    rates = [float(beyond[known & (place == which)].mean()) if (place == which).any() else 0.0
             for which in (BEHIND, OTHER)]  # fmt: skip
    metrics = {"hazard/after_rejection": rates[0], "hazard/elsewhere": rates[1]}
    if p_value > LEVEL:
        return Testimony(metrics=metrics)
    text = (
        f"{int(behind.sum())} of {int(beyond.sum())} tokens beyond the floor stand in a step right "
        f"after a rejection ({rates[0]:.2%} of the tokens there, {rates[1]:.2%} elsewhere; "
        f"p = {p_value:.2g} among tokens of the same request and like margin)"
    )
    numbers = {"p_value": p_value, "behind": int(behind.sum()), "beyond": int(beyond.sum())}
    finding = Finding(kind=KIND, severity=Severity.NOTICE, text=text, numbers=numbers)
    return Testimony((finding,), metrics)


def _places(case: Case) -> Ints:
    """Return whether each on token stands in a step that follows a rejection [N]; UNKNOWN for the
    first token and the first step, and where some tokens came without a step."""
    place = np.full(case.on.token_ids.size, UNKNOWN, dtype=np.int64)
    for index, answer in enumerate(case.on.observations):
        emitted = answer.accepted.astype(np.int64) + 1
        size = int(case.on.lengths[index])
        known = answer.steps_ordered and emitted.size > 1
        if not known or not emitted[:-1].sum() < size - 1 <= emitted.sum():
            continue
        rejected = (answer.accepted < answer.drafted)[:-1]
        steps = np.repeat(np.where(rejected, BEHIND, OTHER), emitted[1:])
        first = int(case.on.offsets[index]) + 1 + int(emitted[0])
        place[first : first + size - 1 - int(emitted[0])] = steps[: size - 1 - int(emitted[0])]
    return place


def _margins(case: Case) -> Floats:
    """Return how far the on arm's best logprob lies above its second [N]; 0 where it gave none."""
    margins = np.zeros(case.on.token_ids.size)
    for index, answer in enumerate(case.on.observations):
        if answer.top_logprobs.ndim == 2 and answer.top_logprobs.shape[1] > 1:
            gap = answer.top_logprobs[:, 0] - answer.top_logprobs[:, 1]
            start = int(case.on.offsets[index])
            margins[start : start + gap.size] = np.where(np.isfinite(gap), gap, 0.0)
    return margins


def _counts(stratum: Ints, behind: np.ndarray, beyond: np.ndarray) -> Ints:
    """Return tokens, those behind a rejection, those beyond the floor, and those that are both, by
    stratum [strata, 4], strata without contrast left out."""
    _, place = np.unique(stratum, return_inverse=True)
    sums = [np.bincount(place, weights=many) for many in
            (np.ones(place.size), behind, beyond, behind & beyond)]  # fmt: skip
    counts = np.column_stack(sums).astype(np.int64)
    total, some, far, _ = counts.T
    kept: Ints = counts[(some > 0) & (some < total) & (far > 0) & (far < total)]
    return kept


def _p_value(counts: Ints) -> float:
    """Return P(as many tokens that are both, or more) given the margins of every stratum."""
    law, observed = np.ones(1), 0
    for total, behind, beyond, both in counts.tolist():
        values = np.arange(min(behind, beyond) + 1)
        law = np.convolve(law, stats.hypergeom.pmf(values, total, behind, beyond))
        observed += both
    return float(min(1.0, law[observed:].sum()))
