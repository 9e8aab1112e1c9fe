"""How many requests show a fault, and which fault a number of requests shows.

A request is affected with probability p and an affected one is seen with probability s (the
sensitivity), so n requests show at least one with confidence 1 - (1 - p s)^n. Pure arithmetic:
the plan uses it before anything has run.
"""

from __future__ import annotations

import math


def required_requests(rate: float, confidence: float, sensitivity: float = 1.0) -> int:
    """Return the least number of requests that shows a fault of `rate` with `confidence`.

    n = ln(1 - c) / ln(1 - p s), rounded up. All three arguments are shares in (0, 1];
    `confidence` below 1.
    """
    _check(rate, confidence, sensitivity)
    seen = rate * sensitivity
    if seen >= 1.0:
        return 1
    # The tolerance keeps 0.95 and its like from rounding an exact answer up by one.
    return max(1, math.ceil(math.log1p(-confidence) / math.log1p(-seen) - 1e-9))


def visible_fault_rate(requests: int, confidence: float, sensitivity: float = 1.0) -> float:
    """Return the smallest share of faulty requests that `requests` show with `confidence`.

    1.0 where no rate is visible (no requests, or a sensitivity too low for that many).
    """
    _check(1.0, confidence, sensitivity)
    if requests < 1:
        return 1.0
    return min(1.0, -math.expm1(math.log1p(-confidence) / requests) / sensitivity)


def confidence_of(requests: int, rate: float, sensitivity: float = 1.0, cells: int = 1) -> float:
    """Return the confidence that `requests` a cell give against `rate`, for `cells` at once.

    The bound for several cells adds up the probabilities of a miss; it is never below 0.
    """
    miss = (1.0 - min(1.0, rate * sensitivity)) ** requests
    return max(0.0, 1.0 - cells * miss)


def _check(rate: float, confidence: float, sensitivity: float) -> None:
    if not (0.0 < rate <= 1.0 and 0.0 < confidence < 1.0 and 0.0 < sensitivity <= 1.0):
        raise ValueError(
            "rate and sensitivity lie in (0, 1], confidence in (0, 1): "
            f"got {rate}, {sensitivity}, {confidence}"
        )
