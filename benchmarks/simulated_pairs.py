"""What the judge says of simulated pairs, healthy ones and ones with a known fault.

    python benchmarks/simulated_pairs.py [--healthy 300] [--faulty 100] [--first 1000]

The target is the tests' simulator (`tests/judge/simulator.py`): known margins, Gaussian noise on
the logits of every launch. An idealised engine, not a real one. Each pair has prompts and noise of
its own, and what the judge wants scored again is scored. Two tables come out, as in
`docs/method.md`: verdicts and ceilings of healthy pairs (40 prompts x 32 tokens), and verdicts of
pairs that let a rejected token through (100 prompts x 48 tokens).
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
from null_sweeps import upper_bound

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from judge.simulator import Pair, answer, simulate

from matrixrun.evidence.verdicts import CellResult, Severity, Verdict
from matrixrun.judge import JudgeSettings, judge_sweep

HEALTHY = (("bfloat16", 0.05), ("bfloat16", 0.15), ("bfloat16", 0.3), ("float32", 0.001),
           ("float16", 0.03))  # fmt: skip
LEAKS = tuple((noise, share) for noise in (0.0, 0.05, 0.15, 0.3) for share in (1 / 50, 1 / 500))
# A claim that so few prompts can carry: what is measured is FAIL.
SETTINGS = JudgeSettings(detect_rate=0.1)
ROUNDS = 3


def judged(pair: Pair, dtype: str) -> CellResult:
    """Return the verdict on a pair, its wants answered."""
    cell = simulate(pair, dtype=dtype)
    for salt in range(ROUNDS):
        judgement = judge_sweep([cell], SETTINGS, final=salt == ROUNDS - 1)
        if not judgement.wants:
            break
        given = answer(pair, judgement.wants, 77 + salt)
        cell = replace(cell, confirmations=cell.confirmations + given)
    return judgement.results[0]


def kinds(results: Iterable[CellResult]) -> Counter[str]:
    """Return how many of the results that FAIL have a fault of each kind."""
    return Counter(
        kind
        for one in results
        if one.verdict is Verdict.FAIL
        for kind in {f.kind for f in one.findings if f.severity is Severity.FAULT}
    )


def healthy(pairs: int, first: int) -> None:
    """Print the table of healthy pairs, and the bound over all of them."""
    print("| | judged | PASS | FAIL | INCONCLUSIVE | ceiling: least, median, most |")
    told: list[CellResult] = []
    for dtype, noise in HEALTHY:
        results = [
            judged(Pair(prompts=40, tokens=32).seeded(first + number).noisy(noise), dtype)
            for number in range(pairs)
        ]
        told += results
        verdicts = Counter(one.verdict for one in results)
        ceilings = [one.metrics["regret/ceiling"] for one in results]
        low, middle, high = (f"{value:.2g}" for value in np.quantile(ceilings, (0, 0.5, 1)))
        print(f"| {dtype}, noise {noise:g} | {pairs} | {verdicts[Verdict.PASS]} | "
              f"{verdicts[Verdict.FAIL]} | {verdicts[Verdict.INCONCLUSIVE]} | "
              f"{low}, {middle}, {high} |", flush=True)  # fmt: skip
    accused = sum(one.verdict is Verdict.FAIL for one in told)
    print(f"{accused} of {len(told)} accused, at most {upper_bound(accused, len(told)):.2%} at "
          f"95 %; by {dict(kinds(told))}")  # fmt: skip


def faulty(pairs: int, first: int) -> None:
    """Print the table of pairs that let a rejected token through."""
    print("| | FAIL | PASS, no token beyond the ceiling | PASS although a token was | other |")
    for noise, share in LEAKS:
        told: Counter[str] = Counter()
        for number in range(pairs):
            pair = Pair(prompts=100, tokens=48).seeded(first + number).noisy(noise)
            on = replace(pair.on, let_through=share)
            result = judged(replace(pair, on=on), "bfloat16")
            quiet = result.metrics["regret/max.on"] <= result.metrics["regret/ceiling"]
            name = result.verdict.value
            told[f"PASS {'quiet' if quiet else 'explained'}" if name == "PASS" else name] += 1
        rest = {name: count for name, count in told.items()
                if name not in ("FAIL", "PASS quiet", "PASS explained")}  # fmt: skip
        print(f"| noise {noise:g}, 1 in {1 / share:.0f} | {told['FAIL']} | {told['PASS quiet']} | "
              f"{told['PASS explained']} | {rest} |", flush=True)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--healthy", type=int, default=300)
    parser.add_argument("--faulty", type=int, default=100)
    parser.add_argument("--first", type=int, default=1000)
    given = parser.parse_args()
    healthy(given.healthy, given.first)
    faulty(given.faulty, given.first)


if __name__ == "__main__":
    main()
