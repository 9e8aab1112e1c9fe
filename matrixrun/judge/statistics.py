"""Tests and intervals. Exact where that is cheap, deterministic always: no random numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy import optimize, special, stats

Floats = NDArray[np.float64]

# So many sums cost a millisecond; where there are more, the saddlepoint is within a few per cent.
MOST_COUNTED = 1 << 17
# Up to so many, all sign vectors are counted by halves: 2^13 sums each, a millisecond.
ALWAYS_COUNTED = 26
# Beside the largest difference, a smaller one than this is lost in the rounding of their sum.
NEGLIGIBLE = 1e-9


def sign_flip_p_value(differences: Floats) -> float:
    """Return P(sum of randomly signed differences >= their sum): one-sided, for an excess.

    `differences` [n] are paired, one for each prompt; zeros carry no contrast and drop out. The
    sign vectors that reach the sum are counted: always up to 26 differences, and beyond that
    wherever they are few. Else the saddlepoint approximation for randomisation tests (Robinson
    1982, J. R. Statist. Soc. B 44; tail formula of Lugannani and Rice 1980), never below the
    smallest attainable 2^-n. Signs being symmetric, a negative sum is reached unless the opposite
    one is passed.
    """
    finite = differences[np.isfinite(differences) & (differences != 0)].astype(np.float64)
    if finite.size == 0:
        return 1.0
    scaled = np.sort(finite / np.abs(finite).max())
    scaled = scaled[np.abs(scaled) > NEGLIGIBLE]
    if scaled.size <= ALWAYS_COUNTED:
        return _counted_by_halves(scaled)
    if scaled.sum() > 0.0:
        counted = _counted(scaled)
        return _saddlepoint(scaled) if counted is None else counted
    return 1.0 - _saddlepoint(-scaled)


def _to_turn(differences: Floats) -> tuple[Floats, float, float]:
    """Return the sizes of the differences, how much of them a sign vector may turn negative and
    still reach their sum (what is negative already), and what that is lost in by rounding."""
    sizes = np.sort(np.abs(differences))
    most = float(sizes.sum() - differences.sum()) / 2.0
    return sizes, most, 1e-9 * float(sizes.sum())


def _counted_by_halves(differences: Floats) -> float:
    """Return the exact p-value: a subset of the sizes is a subset of one half and one of the
    other, and for each of the first those of the other that still fit are looked up."""
    sizes, most, slack = _to_turn(differences)
    one, other = _subset_sums(sizes[::2]), np.sort(_subset_sums(sizes[1::2]))
    fitting = np.searchsorted(other, most + slack - one, side="right")
    return float(int(fitting.sum()) * 0.5**sizes.size)


def _subset_sums(sizes: Floats) -> Floats:
    sums = np.zeros(1)
    for size in sizes:
        sums = np.concatenate([sums, sums + size])
    return sums


def _counted(differences: Floats) -> float | None:
    """Return the exact p-value, or None where too many sign vectors would have to be counted:
    subsets of what may be turned negative, smallest sizes first."""
    sizes, most, slack = _to_turn(differences)
    sums = np.zeros(1)
    for size in sizes:
        added = sums + size
        sums = np.concatenate([sums, added[added <= most + slack]])
        if sums.size > MOST_COUNTED:
            return None
    return float(sums.size * 0.5**sizes.size)


def _saddlepoint(differences: Floats) -> float:
    total, largest = float(differences.sum()), float(np.abs(differences).sum())
    smallest = 0.5**differences.size
    if total >= largest * (1.0 - 1e-9):
        return smallest

    def excess(t: float) -> float:
        return float((differences * np.tanh(differences * t)).sum()) - total

    upper = 1.0
    while excess(upper) < 0.0 and upper < 1e9:
        upper *= 2.0
    point = float(optimize.brentq(excess, 0.0, upper, xtol=1e-12))
    absolute = np.abs(differences * point)
    cumulant = float((absolute + np.log1p(np.exp(-2.0 * absolute)) - math.log(2.0)).sum())
    curvature = float((differences**2 * (1.0 - np.tanh(absolute) ** 2)).sum())
    root = math.sqrt(max(0.0, 2.0 * (point * total - cumulant)))
    scale = point * math.sqrt(curvature)
    if root < 1e-3 or scale < 1e-3:
        return float(stats.norm.sf(total / math.sqrt(float((differences**2).sum()))))
    tail = stats.norm.sf(root) + stats.norm.pdf(root) * (1.0 / scale - 1.0 / root)
    # By symmetry no positive sum is reached by more than half of the sign vectors.
    return float(min(0.5, max(smallest, tail)))


def paired_excess_p_value(more: int, fewer: int) -> float:
    """Return McNemar's exact one-sided p-value: `more` pairs went against the arm under test,
    `fewer` for it, ties left out."""
    if more + fewer == 0:
        return 1.0
    return float(stats.binom.sf(more - 1, more + fewer, 0.5))


def holm(p_values: Sequence[float]) -> tuple[float, ...]:
    """Return Holm's step-down adjusted p-values, in the order given (Holm 1979)."""
    order = sorted(range(len(p_values)), key=lambda index: p_values[index])
    adjusted = [1.0] * len(p_values)
    running = 0.0
    for rank, index in enumerate(order):
        running = max(running, min(1.0, p_values[index] * (len(p_values) - rank)))
        adjusted[index] = running
    return tuple(adjusted)


@dataclass(frozen=True)
class Ratio:
    """A ratio of sums over requests, with its interval; `error` is its standard error."""

    value: float
    low: float
    high: float
    error: float
    clusters: int


def clustered_ratio(numerators: Floats, denominators: Floats, *, level: float) -> Ratio | None:
    """Return sum(numerators) / sum(denominators) with a two-sided interval at `level`.

    Both [n], one entry a cluster (request). Delta method with the clusters as the unit: what lies
    within a request is correlated (Cochran, Sampling Techniques, ch. 6). None without a
    denominator; the interval is unbounded with fewer than two clusters.
    """
    used = denominators > 0
    top, bottom = numerators[used].astype(np.float64), denominators[used].astype(np.float64)
    if top.size == 0:
        return None
    value = float(top.sum() / bottom.sum())
    if top.size < 2:
        return Ratio(value, -math.inf, math.inf, math.inf, 1)
    count = top.size
    residuals = top - value * bottom
    variance = count / (count - 1) * float((residuals**2).sum()) / float(bottom.sum()) ** 2
    error = math.sqrt(variance)
    reach = float(stats.t.ppf(0.5 + level / 2.0, count - 1)) * error
    return Ratio(value, value - reach, value + reach, error, count)


def rate(taken: Floats, offered: Floats, *, level: float) -> Ratio | None:
    """Return the share of `offered` trials that was `taken`, both [n] by cluster, as above; None
    also with a single cluster.

    The interval holds the exact one for independent trials (Clopper and Pearson 1934, Biometrika
    26): what was never taken in any cluster has no spread between them, and is still no zero.
    """
    ratio = clustered_ratio(taken, offered, level=level)
    if ratio is None or not math.isfinite(ratio.error):
        return None
    count, total = float(taken.sum()), float(offered.sum())
    tail = (1.0 - level) / 2.0
    low = stats.beta.ppf(tail, count, total - count + 1.0) if count > 0 else 0.0
    high = stats.beta.isf(tail, count + 1.0, total - count) if count < total else 1.0
    return replace(ratio, low=min(ratio.low, float(low)), high=max(ratio.high, float(high)))


@dataclass(frozen=True)
class Tail:
    """A generalised Pareto tail: `share` of values lie above `threshold`."""

    threshold: float
    share: float
    shape: float
    scale: float

    def level(self, probability: float) -> float:
        """Return the value exceeded with `probability` (at most `share`)."""
        ratio = max(1.0, self.share / probability)
        if self.shape == 0.0:
            return self.threshold + self.scale * math.log(ratio)
        return self.threshold + self.scale * math.expm1(self.shape * math.log(ratio)) / self.shape


def fit_tail(values: Floats, *, share: float, least: int) -> Tail | None:
    """Fit the upper `share` of `values`; None when fewer than `least` values lie in that tail.

    Probability-weighted moments (Hosking and Wallis 1987, Technometrics 29). The shape is not let
    below 0: a bounded tail would promise that nothing lies beyond its end.
    """
    if values.size == 0:
        return None
    threshold = float(np.quantile(values, 1.0 - share))
    excesses = np.sort(values[values > threshold] - threshold)
    if excesses.size < least:
        return None
    count = excesses.size
    mean = float(excesses.mean())
    weights = (count - np.arange(1, count + 1)) / (count - 1)
    weighted = float((excesses * weights).mean())
    spread = mean - 2.0 * weighted
    shape = 0.0 if spread <= 0.0 else max(0.0, 2.0 - mean / spread)
    scale = mean if shape == 0.0 else 2.0 * mean * weighted / spread
    return Tail(threshold, count / values.size, shape, scale)


def poisson_excess_p_value(observed: int, expected: float) -> float:
    """Return P(a Poisson count of mean `expected` is at least `observed`)."""
    return 1.0 if observed == 0 else float(special.gammainc(observed, expected))
