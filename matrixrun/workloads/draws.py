"""Random draws that give the same values on every Python version.

Only `Random.random()` and seeding by a string are promised to be stable by the standard library,
so every draw is made from these two.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import TypeVar

Item = TypeVar("Item")


def generator(*parts: object) -> Random:
    """Return a generator seeded by `parts`: the same parts, the same draws."""
    return Random("/".join(str(part) for part in parts))


def below(random: Random, bound: int) -> int:
    """Return an integer in [0, bound)."""
    return int(random.random() * bound)


def between(random: Random, low: int, high: int) -> int:
    """Return an integer in [low, high]."""
    return low + below(random, high - low + 1)


def choose(random: Random, items: Sequence[Item], count: int) -> list[Item]:
    """Return `count` different items of `items`, in random order."""
    rest = list(items)
    return [rest.pop(below(random, len(rest))) for _ in range(count)]
