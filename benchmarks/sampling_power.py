"""How many sampled tokens show a wrong sampler, and how often is a right one accused?

    python benchmarks/sampling_power.py RESULTS [--repeats 300] [--seed 0] [--json FILE]

RESULTS is a sweep with the probe `sampling`. The target's own laws are taken from it: what A scored
of the off arm's samples, given their real prefixes. From those laws tokens are drawn again, as a
right sampler would and as each wrong one would, and the bets of the judge are made on them. Drafts
are the target's best token in three steps of four, its second best else. A detection is a p-value
that stands by itself among the tests of a cell with equality and sampling. Under a right sampler
the shares are false alarms.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

from matrixrun.judge import JudgeSettings
from matrixrun.judge.betting import Draws, wager
from matrixrun.judge.case import Floats, Ints
from matrixrun.judge.sampled import sampled
from matrixrun.judge.witnesses import PROBE_WITNESSES, RATE_TESTS
from matrixrun.record import Store
from matrixrun.record.replay import Reader

SIZES = (250, 500, 1000, 2000, 4000)
BEST_DRAFTED = 0.75
Random = np.random.Generator
Sampler = Callable[[Floats, Ints, Random], Ints]


def drawn(law: Floats, random: Random) -> Ints:
    """Return an outcome of each law [N, K]."""
    ends = law.cumsum(axis=1)
    places = (ends < random.random(law.shape[0])[:, None] * ends[:, -1:]).sum(axis=1)
    return np.asarray(np.minimum(places, law.shape[1] - 1))


def without(law: Floats, draft: Ints) -> Floats:
    rest = law.copy()
    rest[np.arange(draft.size), draft] = 0.0
    return rest


def right(law: Floats, draft: Ints, random: Random) -> Ints:  # noqa: ARG001 - a sampler's
    return drawn(law, random)


def unreduced(law: Floats, draft: Ints, random: Random) -> Ints:
    """The rejected draft token stays in the law that is drawn from."""
    taken = random.random(draft.size) < law[np.arange(draft.size), draft]
    return np.where(taken, draft, drawn(law, random))


def greedy(law: Floats, draft: Ints, random: Random) -> Ints:
    """After a rejection the best token that is left."""
    taken = random.random(draft.size) < law[np.arange(draft.size), draft]
    return np.where(taken, draft, without(law, draft).argmax(axis=1))


def eager(law: Floats, draft: Ints, random: Random) -> Ints:
    """Drafts accepted with p / 0.9."""
    taken = random.random(draft.size) < law[np.arange(draft.size), draft] / 0.9
    return np.where(taken, draft, drawn(without(law, draft), random))


def leaking(law: Floats, draft: Ints, random: Random) -> Ints:
    """The draft token in one place of 20, whatever the target says."""
    return np.where(random.random(draft.size) < 0.05, draft, drawn(law, random))


def second_missing(law: Floats, draft: Ints, random: Random) -> Ints:
    """A residual that takes the draft token off even where it was not rejected: in one place of
    ten it cannot come."""
    some = random.random(draft.size) < 0.1
    return np.where(some, drawn(without(law, draft), random), drawn(law, random))


SAMPLERS: dict[str, Sampler] = {
    "right": right,
    "residual not reduced": unreduced,
    "residual greedy": greedy,
    "drafts accepted with p / 0.9": eager,
    "draft token in 1 of 20": leaking,
    "draft token impossible in 1 of 10": second_missing,
}


def detected(draws: Draws, sampler: Sampler, random: Random, level: float) -> bool:
    """Return whether the bets on tokens drawn again by `sampler` reach the level."""
    chosen = random.random(draws.token.size) < BEST_DRAFTED
    outcome = sampler(draws.law, np.where(chosen, 0, 1), random)
    return wager(replace(draws, outcome=outcome)).log >= math.log(1.0 / level)


def laws_of(root: Path) -> Draws:
    """Return the off arm's sampled tokens of the first cell of a sweep that has them."""
    store = Store.open(root)
    for cell in Reader(store).cells(store.evidences()):
        for probe in cell.probes:
            if probe.kind == "sampling":
                draws = sampled(probe.answers("off"), probe.scores.get("off", ())).draws()
                if draws is not None:
                    return draws
    raise SystemExit(f"{root}: no cell was sampled")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path)
    parser.add_argument("--repeats", type=int, default=300)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--json", type=Path)
    given = parser.parse_args()
    draws = laws_of(given.results)
    tests = RATE_TESTS + sum(one.rate_tests for one in PROBE_WITNESSES if one.probe == "sampling")
    level = JudgeSettings().alpha / tests
    entropy = float(-(draws.law * np.log(draws.law)).sum(axis=1).mean())
    print(f"{draws.token.size} tokens, mean entropy {entropy:.2f} nats, best token "
          f"{draws.law[:, 0].mean():.0%}; level {level:.2g}")  # fmt: skip
    random = np.random.default_rng(given.seed)
    found: dict[str, dict[int, float]] = {}
    for name, sampler in SAMPLERS.items():
        found[name] = {}
        for size in (one for one in SIZES if one <= draws.token.size):
            some = draws.where(np.arange(draws.token.size) < size)
            hits = [detected(some, sampler, random, level) for _ in range(given.repeats)]
            found[name][size] = float(np.mean(hits))
        shares = ", ".join(f"{size}: {share:.1%}" for size, share in found[name].items())
        print(f"{name}: {shares}", flush=True)
    if given.json:
        given.json.write_text(json.dumps({"entropy": entropy, "level": level, "shares": found}))


if __name__ == "__main__":
    main()
