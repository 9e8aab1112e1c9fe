"""How many documents the accuracy test needs to find a loss: the table in docs/method.md.

    python benchmarks/accuracy_power.py

A document is lost with probability `loss + flips / 2` and gained with `flips / 2`, independently;
the test is the witness's own, at the level that it has in a sweep of one cell.
"""

from __future__ import annotations

import math

import numpy as np
from scipy.stats import binom

from matrixrun.judge.witnesses import RATE_TESTS
from matrixrun.judge.witnesses.accuracy import RATE_TESTS as OWN
from matrixrun.judge.witnesses.accuracy import mcnemar_p_value

LEVEL = 0.05 / (RATE_TESTS + OWN)
DOCUMENTS = (60, 200, 500, 1319)
LOSSES = (0.01, 0.02, 0.05, 0.1, 0.2)
FLIPS = (0.0, 0.05, 0.1)


def power(documents: int, loss: float, flips: float) -> float:
    """Return the probability that the loss is found."""
    discordant = loss + flips
    found = 0.0
    for count in range(documents + 1):
        weight = float(binom.pmf(count, documents, discordant))
        if weight < 1e-12:
            continue
        least = _least(count)
        if least is not None:
            found += weight * float(binom.sf(least - 1, count, (loss + flips / 2) / discordant))
    return found


def _least(discordant: int) -> int | None:
    """Return the least number lost that the test finds, None where no number is enough."""
    if discordant == 0 or math.ldexp(1.0, -discordant) > LEVEL:
        return None
    lost = np.arange(discordant // 2, discordant + 1)
    return next(
        (int(n) for n in lost if mcnemar_p_value(int(n), discordant - int(n)) <= LEVEL), None
    )


def main() -> None:
    """Print the table in Markdown."""
    print(f"level {LEVEL:.4f}")
    print("| lost more than gained | flips | " + " | ".join(f"{n:,}" for n in DOCUMENTS) + " |")
    print("| --- |" * 1 + " --- |" * (len(DOCUMENTS) + 1))
    for flips in FLIPS:
        for loss in LOSSES:
            row = " | ".join(f"{power(n, loss, flips):.0%}" for n in DOCUMENTS)
            print(f"| {loss:.0%} | {flips:.0%} | {row} |")


if __name__ == "__main__":
    main()
