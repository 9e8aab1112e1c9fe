"""How often does the judge accuse a healthy sweep? Made from stored observations of healthy pairs.

    python benchmarks/null_sweeps.py RESULTS... [--sweeps 10000] [--seed 0] [--processes 2]
                                     [--disjoint 30]

Where nothing is wrong, the on arm and the control are exchangeable within a prompt. So each null
sweep takes the stored cells and, prompt by prompt, swaps what the two arms emitted and how it was
scored, at random; verification steps stay with the on arm. Every such sweep is judged as a whole,
with its correction over cells. A FAIL is a false alarm. What is given is the share of sweeps with
one, and its exact one-sided bound at 95 % (Clopper and Pearson). The bound is on the sweeps that
can be made of these observations: launches are as many as there were.

Before that, each cell's prompts are divided into groups of `--disjoint` prompts, and every group is
judged by itself as it was observed: healthy judgements on prompts that no two of them share.
"""

from __future__ import annotations

import argparse
import time
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from scipy import stats

from matrixrun.evidence.requests import Observation, Score
from matrixrun.evidence.verdicts import CellEvidence, Severity, Verdict
from matrixrun.judge import CellObservations, JudgeSettings, judge_sweep
from matrixrun.record import Store
from matrixrun.record.replay import Reader

UNSERVED = (Verdict.ERROR, Verdict.REFUSED)


def healthy_cells(root: Path) -> tuple[list[CellObservations], JudgeSettings]:
    """Return the cells of a results folder whose launches served, and its settings. Whatever their
    verdicts are: one that was accused is a false alarm, and leaving it out would hide others."""
    store = Store.open(root)
    settings: JudgeSettings = store.settings(JudgeSettings)
    cells = Reader(store).cells(store.evidences())
    results = judge_sweep(cells, settings, final=True).results
    kept = [cell for cell, one in zip(cells, results, strict=True) if one.verdict not in UNSERVED]
    return kept, settings


def swapped(cell: CellObservations, random: np.random.Generator) -> CellObservations:
    """Return a cell with its on arm and its control exchanged in half of the prompts."""
    prompts = sorted({one.prompt for one in cell.off})
    exchanged = {name for name, coin in zip(prompts, random.random(len(prompts)), strict=True)
                 if coin < 0.5}  # fmt: skip
    others = {one.request: one for one in cell.null}
    moved = {one.request for one in cell.on if one.prompt in exchanged and one.request in others}
    on, null = [], {one.request: one for one in cell.null}
    scores = {score.request: score for score in cell.on_scores if score.error is None}
    for one in cell.on:
        if one.request not in moved:
            on.append(one)
            continue
        other = others[one.request]
        silent = np.isnan(one.logprobs).all()
        on.append(_with_steps(_without_logprobs(other) if silent else other, one))
        filled = _with_logprobs(one, other, scores.get(one.request))
        null[one.request] = _with_steps(filled, other)
    on_scores, null_scores = _exchange(cell.on_scores, cell.null_scores, moved)
    return replace(
        cell, evidence=_unpredicted(cell.evidence), on=tuple(on), null=tuple(null.values()),
        on_scores=on_scores, null_scores=null_scores,
    )  # fmt: skip


def _unpredicted(evidence: CellEvidence) -> CellEvidence:
    """Return the evidence without what an n-gram drafter is predicted from: steps stay with the on
    arm, and are not those of another answer."""
    on = evidence.outcomes["on"]
    facts = {name: value for name, value in on.facts.items() if "prompt_lookup" not in name}
    silent = msgspec.structs.replace(on, facts=facts)
    return msgspec.structs.replace(evidence, outcomes={**evidence.outcomes, "on": silent})


def _with_steps(tokens: Observation, steps: Observation) -> Observation:
    return replace(tokens, accepted=steps.accepted, drafted=steps.drafted)


def _without_logprobs(one: Observation) -> Observation:
    """Return an off arm's answer as an on arm shows it whose engine gives no logprobs there."""
    return replace(
        one,
        logprobs=np.full_like(one.logprobs, np.nan),
        top_ids=np.full_like(one.top_ids, -1),
        top_logprobs=np.full_like(one.top_logprobs, np.nan),
    )


def _with_logprobs(one: Observation, other: Observation, score: Score | None) -> Observation:
    """Return an on arm's answer with the logprobs that an off arm would have shown: some engines
    give none for accepted draft tokens. After the same prefix they are the other arm's, else the
    score's."""
    missing = np.isnan(one.logprobs)
    reach = min(one.token_ids.size, other.token_ids.size)
    if not missing.any() or reach == 0:
        return one
    differ = one.token_ids[:reach] != other.token_ids[:reach]
    shared = int(differ.argmax()) if differ.any() else reach
    logprobs = one.logprobs.copy()
    places = np.flatnonzero(missing)
    same, later = places[places < shared], places[places >= shared]
    logprobs[same] = other.logprobs[same]
    if score is not None:
        later = later[later < score.token_logprobs.size]
        logprobs[later] = score.token_logprobs[later]
    top_ids, top_logprobs = one.top_ids, one.top_logprobs
    if top_ids.ndim == 2 and top_ids.shape[1:] == other.top_ids.shape[1:]:
        top_ids, top_logprobs = top_ids.copy(), top_logprobs.copy()
        top_ids[same], top_logprobs[same] = other.top_ids[same], other.top_logprobs[same]
    return replace(one, logprobs=logprobs, top_ids=top_ids, top_logprobs=top_logprobs)


def _exchange(
    one: Sequence[Score], other: Sequence[Score], moved: set[str]
) -> tuple[tuple[Score, ...], tuple[Score, ...]]:
    mine = [score for score in one if score.request not in moved]
    theirs = [score for score in other if score.request not in moved]
    mine += [score for score in other if score.request in moved]
    theirs += [score for score in one if score.request in moved]
    return tuple(mine), tuple(theirs)


def disjoint(cell: CellObservations, size: int) -> list[CellObservations]:
    """Return the cell in whole groups of `size` prompts, in the order in which they were sent."""
    prompts = list(dict.fromkeys(one.prompt for one in cell.off))
    groups = [set(prompts[start : start + size]) for start in range(0, len(prompts), size)]
    return [_only(cell, group) for group in groups if len(group) == size]


def _only(cell: CellObservations, prompts: set[str]) -> CellObservations:
    kept = {one.request for one in cell.off if one.prompt in prompts}

    def some(many: Sequence[Any]) -> tuple[Any, ...]:
        return tuple(one for one in many if one.request in kept)

    return replace(
        cell, on=some(cell.on), off=some(cell.off), null=some(cell.null),
        on_scores=some(cell.on_scores), off_scores=some(cell.off_scores),
        null_scores=some(cell.null_scores),
    )  # fmt: skip


def judge_groups(cells: Sequence[CellObservations], settings: JudgeSettings, size: int) -> str:
    """Return a line on the healthy judgements of all groups, each a sweep of its own."""
    verdicts: Counter[str] = Counter()
    for cell in cells:
        for group in disjoint(cell, size):
            verdicts[judge_sweep([group], settings, final=True).results[0].verdict.value] += 1
    total, accused = sum(verdicts.values()), verdicts["FAIL"]
    counts = ", ".join(f"{count} {name}" for name, count in sorted(verdicts.items()))
    bound = f"{upper_bound(accused, total):.2%}" if total else "1"
    return f"{total} judgements of {size} prompts each: {counts} (FAIL at most {bound} at 95 %)"


def run_some(root: Path, seed: int, sweeps: int) -> Counter[str]:
    """Return how many of `sweeps` null sweeps end in an accusation, by verdict and finding."""
    cells, settings = healthy_cells(root)
    random = np.random.default_rng(seed)
    told: Counter[str] = Counter()
    for _ in range(sweeps):
        made = [swapped(cell, random) for cell in cells]
        results = judge_sweep(made, settings, final=True).results
        bad = [one for one in results if one.verdict is Verdict.FAIL]
        told["sweeps"] += 1
        told["cells"] += len(results)
        told["sweeps accused"] += bool(bad)
        told["cells inconclusive"] += sum(one.verdict is Verdict.INCONCLUSIVE for one in results)
        for one in bad:
            kinds = {f.kind for f in one.findings if f.severity is Severity.FAULT}
            told.update(f"accused by {kind}" for kind in kinds)
    return told


def upper_bound(events: int, trials: int, confidence: float = 0.95) -> float:
    """Return the exact one-sided upper bound of a rate."""
    if events >= trials:
        return 1.0
    return float(stats.beta.ppf(confidence, events + 1, trials - events))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("results", nargs="+", type=Path)
    parser.add_argument("--sweeps", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--disjoint", type=int, default=30)
    given = parser.parse_args()
    for root in given.results:
        cells, settings = healthy_cells(root)
        differing = sum(
            not np.array_equal(one.token_ids, other.token_ids)
            for cell in cells
            for one, other in zip(cell.on, sorted(cell.null, key=_order(cell)), strict=True)
        )
        requests = sum(len(cell.on) for cell in cells)
        print(f"{root}: {len(cells)} healthy cells, on and control differ in {differing} of "
              f"{requests} requests")  # fmt: skip
        print(f"  {judge_groups(cells, settings, given.disjoint)}")
        began, share = time.monotonic(), -(-given.sweeps // given.processes)
        with ProcessPoolExecutor(given.processes) as pool:
            seeds = [given.seed * 1000 + number for number in range(given.processes)]
            many = pool.map(run_some, [root] * len(seeds), seeds, [share] * len(seeds))
            told = sum(many, Counter[str]())
        accused, sweeps = told.pop("sweeps accused", 0), told.pop("sweeps")
        bound, seconds = upper_bound(accused, sweeps), time.monotonic() - began
        print(f"  {sweeps} null sweeps, {accused} accused ({accused / sweeps:.2%}, at most "
              f"{bound:.2%} at 95 %), {seconds:.0f} s")  # fmt: skip
        for name, count in sorted(told.items()):
            print(f"  {name}: {count}")


def _order(cell: CellObservations):  # type: ignore[no-untyped-def]
    places = {one.request: place for place, one in enumerate(cell.on)}
    return lambda one: places[one.request]


if __name__ == "__main__":
    main()
