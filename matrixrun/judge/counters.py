"""An engine's own counters and gauges, by what they count and not by one engine's name for it."""

from __future__ import annotations

from collections.abc import Mapping

PREEMPTIONS = ("num_preemptions", "num_retractions", "num_retracted_reqs")
"""Requests put back into the queue because the cache was full."""

RUNNING = ("num_requests_running", "num_running_reqs", "requests_processing")
WAITING = ("num_requests_waiting", "num_queue_reqs", "requests_deferred")
USAGE = ("kv_cache_usage_perc",)
"""Gauges that return to where they were when nothing is in flight. A usage that counts cached
prefixes as well is none of them."""

CAPACITY = ("kv_cache_capacity_tokens", "max_total_num_tokens")
"""Tokens that the KV cache can hold."""

Counters = Mapping[str, float]


def reading(counters: Counters, names: tuple[str, ...]) -> float | None:
    """Return the sum of the counters of one of these names, whatever their labels; None where the
    engine has none."""
    found = [value for key, value in counters.items() if _name(key) in names]
    return sum(found) if found else None


def growth(before: Counters, after: Counters, names: tuple[str, ...]) -> float | None:
    """Return by how much such a counter grew; None where the engine has none."""
    end = reading(after, names)
    return None if end is None else end - (reading(before, names) or 0.0)


def _name(key: str) -> str:
    return key.split("{", maxsplit=1)[0].removesuffix("_total")
