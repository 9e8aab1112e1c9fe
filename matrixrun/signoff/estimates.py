"""Figures with intervals, and the speed of both arms. Pure.

The request is the unit (requests of one prompt together). One launch of each arm was timed, so
what differs between launches of the same command is in no interval here.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray
from scipy import stats

from matrixrun.evidence.requests import Observation
from matrixrun.judge.case import Case

Floats = NDArray[np.float64]

LEVEL = 0.95


class Estimate(msgspec.Struct, frozen=True, omit_defaults=True):
    """A figure with its two-sided interval; `low` and `high` are None where none can be given."""

    value: float
    low: float | None = None
    high: float | None = None


class ArmSpeed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One arm: median seconds to the first token, seconds for each further output token of a
    request, output tokens a second over all requests in flight."""

    first_token_seconds: Estimate | None = None
    seconds_per_output_token: Estimate | None = None
    tokens_per_second: float | None = None


class Speed(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Both arms, and how many times as many output tokens a second the on arm gives."""

    on: ArmSpeed = ArmSpeed()
    off: ArmSpeed = ArmSpeed()
    speedup: Estimate | None = None


def speed_of(case: Case, level: float = LEVEL) -> Speed:
    """Return the speed of a cell's arms over the requests that both answered without error."""
    kept = np.flatnonzero(case.comparable).tolist()
    on = [case.on.observations[index] for index in kept]
    off = [case.off.observations[index] for index in kept]
    speedup = _speedup(on, off, case.prompt_groups[kept], level) if kept else None
    return Speed(on=_arm(on, level), off=_arm(off, level), speedup=speedup)


def median_estimate(values: Floats, level: float = LEVEL) -> Estimate | None:
    """Return the median with the exact binomial interval between two order statistics."""
    known = np.sort(values[np.isfinite(values)])
    if known.size == 0:
        return None
    below = int(stats.binom.ppf((1.0 - level) / 2.0, known.size, 0.5))
    value = float(np.median(known))
    # With so few values no pair of order statistics reaches the level.
    if below < 1:
        return Estimate(value)
    return Estimate(value, float(known[below - 1]), float(known[known.size - below]))


def mean_estimate(values: Floats, level: float = LEVEL) -> Estimate | None:
    """Return the mean with Student's interval."""
    known = values[np.isfinite(values)]
    if known.size == 0:
        return None
    value = float(known.mean())
    if known.size < 2:
        return Estimate(value)
    error = float(known.std(ddof=1)) / known.size**0.5
    reach = float(stats.t.ppf(0.5 + level / 2.0, known.size - 1)) * error
    return Estimate(value, value - reach, value + reach)


def _arm(answers: Sequence[Observation], level: float) -> ArmSpeed:
    if not answers:
        return ArmSpeed()
    waits = np.array([one.first_token - one.started for one in answers])
    steps = np.array([
        (one.finished - one.first_token) / (one.token_ids.size - 1)
        if one.token_ids.size > 1 else np.nan
        for one in answers
    ])  # fmt: skip
    seconds = max(one.finished for one in answers) - min(one.started for one in answers)
    tokens = sum(one.token_ids.size for one in answers)
    return ArmSpeed(
        first_token_seconds=median_estimate(waits, level),
        seconds_per_output_token=mean_estimate(steps, level),
        tokens_per_second=tokens / seconds if seconds > 0 else None,
    )


def _speedup(
    on: Sequence[Observation], off: Sequence[Observation], prompts: NDArray[np.int64], level: float
) -> Estimate | None:
    """Return (tokens / latency) on over off, summed over requests, paired by prompt.

    With a fixed number of requests in flight, output tokens a second are that number times tokens
    over summed latency, so that the number cancels. Interval of the logarithm by the delta method
    with prompts as clusters.
    """
    latencies = [np.array([one.finished - one.started for one in arm]) for arm in (on, off)]
    tokens = [np.array([one.token_ids.size for one in arm], dtype=float) for arm in (on, off)]
    sums = [float(values.sum()) for values in (*latencies, *tokens)]
    if min(sums) <= 0:
        return None
    value = (sums[2] / sums[0]) / (sums[3] / sums[1])
    shares = tokens[0] / sums[2] - latencies[0] / sums[0]
    shares = shares - tokens[1] / sums[3] + latencies[1] / sums[1]
    clusters = np.bincount(np.unique(prompts, return_inverse=True)[1], weights=shares)
    if clusters.size < 2:
        return Estimate(value)
    error = float(np.sqrt(clusters.size / (clusters.size - 1) * (clusters**2).sum()))
    reach = float(np.exp(stats.t.ppf(0.5 + level / 2.0, clusters.size - 1) * error))
    return Estimate(value, value / reach, value * reach)
