"""How many sampled tokens show a wrong sampler, and how often is a right one accused?

    python benchmarks/sampling_power.py [RESULTS] [--repeats 300] [--seed 0] [--json FILE]

RESULTS is a sweep with the probe `sampling`. The target's own laws are taken from it: what A scored
of the off arm's samples, given their real prefixes. Without it they are those of the tests'
simulated target (`tests/judge/sampling_simulator.py`). From those laws tokens are drawn again, as a
right sampler would and as each wrong one would, and the bets of the judge are made on them. Drafts
are the target's best token in three steps of four, its second best else, one token at each place. A
detection is a p-value that stands by itself among the tests of a cell with equality and sampling.
Under a right sampler the shares are false alarms.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

from judge.sampling_simulator import Sampler as SimulatedSampler
from judge.sampling_simulator import observed

from matrixrun.judge import JudgeSettings, ProbeObserved
from matrixrun.judge.betting import Draws, wager
from matrixrun.judge.case import Floats, Ints
from matrixrun.judge.laws import Flags, Setting
from matrixrun.judge.sampled import sampled
from matrixrun.judge.witnesses import PROBE_WITNESSES, RATE_TESTS
from matrixrun.record import Store
from matrixrun.record.replay import Reader

SIZES = (250, 500, 1000, 2000, 4000)
BEST_DRAFTED = 0.75
Random = np.random.Generator
# Of laws [N, K] and drafts [N]: the outcomes and whether each is the draft's, taken.
Sampler = Callable[[Floats, Ints, Random], tuple[Ints, Flags]]


def drawn(law: Floats, random: Random) -> Ints:
    """Return an outcome of each law [N, K]."""
    ends = law.cumsum(axis=1)
    places = (ends < random.random(law.shape[0])[:, None] * ends[:, -1:]).sum(axis=1)
    return np.asarray(np.minimum(places, law.shape[1] - 1))


def without(law: Floats, draft: Ints) -> Floats:
    rest = law.copy()
    rest[np.arange(draft.size), draft] = 0.0
    return rest


def accepting(
    chance: Callable[[Floats], Floats], residual: Callable[[Floats, Ints, Random], Ints]
) -> Sampler:
    """Return a sampler that takes a draft of probability p with `chance(p)`, else draws from what
    `residual` leaves."""

    def sampler(law: Floats, draft: Ints, random: Random) -> tuple[Ints, Flags]:
        taken = random.random(draft.size) < chance(law[np.arange(draft.size), draft])
        return np.where(taken, draft, residual(law, draft, random)), taken

    return sampler


def reduced(law: Floats, draft: Ints, random: Random) -> Ints:
    return drawn(without(law, draft), random)


def second_missing(law: Floats, draft: Ints, random: Random) -> tuple[Ints, Flags]:
    """A residual that takes the draft token off even where it was not rejected: in one place of
    ten it cannot come."""
    some = random.random(draft.size) < 0.1
    outcome, taken = SAMPLERS["right"](law, draft, random)
    return np.where(some, reduced(law, draft, random), outcome), taken & ~some


SAMPLERS: dict[str, Sampler] = {
    "right": accepting(lambda p: p, reduced),
    "residual not reduced": accepting(lambda p: p, lambda law, _, random: drawn(law, random)),
    "residual greedy": accepting(lambda p: p, lambda law, draft, _: without(law, draft).argmax(1)),
    "drafts accepted with p / 0.9": accepting(lambda p: p / 0.9, reduced),
    "draft token in 1 of 20": accepting(lambda p: 0.05 + 0.95 * p, reduced),
    "draft token impossible in 1 of 10": second_missing,
}


def detected(draws: Draws, sampler: Sampler, random: Random, level: float) -> bool:
    """Return whether the bets on tokens drawn again by `sampler` reach the level."""
    chosen = random.random(draws.token.size) < BEST_DRAFTED
    outcome, taken = sampler(draws.law, np.where(chosen, 0, 1), random)
    logprob = np.log(draws.law[np.arange(outcome.size), outcome])
    drawn_again = replace(
        draws, outcome=outcome, logprob=logprob, taken=taken, draft=np.zeros_like(outcome)
    )
    return wager(drawn_again, single=True).log >= math.log(1.0 / level)


def laws_of(root: Path | None) -> Draws:
    """Return the off arm's sampled tokens of the first cell of a sweep that has them, or of the
    simulated target."""
    if root is None:
        found = laid_out(observed(SimulatedSampler(seed=1), prompts=44))
        assert found is not None
        return found
    store = Store.open(root)
    for cell in Reader(store).cells(store.evidences()):
        for probe in cell.probes:
            if probe.kind == "sampling":
                draws = laid_out(probe)
                if draws is not None:
                    return draws
    raise SystemExit(f"{root}: no cell was sampled")


def laid_out(probe: ProbeObserved) -> Draws | None:
    """Return the off arm's tokens that no request's settings cut the law of."""
    draws = sampled(probe.answers("off"), probe.scores.get("off", ())).draws()
    return None if draws is None else draws.where(draws.cut == Setting.WHOLE.number)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", type=Path, nargs="?")
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
