"""Acceptance paired step by step between cells that differ in nothing a drafter should notice.

Two steps that begin after the same committed tokens and offer as many draft tokens see the same
draft, and accept as much of it, as long as the target goes on alike; where it does not (a tie), the
pair says nothing. So a loss of acceptance needs hundreds of steps to be seen, not the tens of
thousands that a difference of two rates takes, and which text was sent does not matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from matrixrun.evidence.cells import Cell
from matrixrun.evidence.verdicts import Finding, Severity
from matrixrun.judge.case import Case, Ints, counted
from matrixrun.judge.invariance import comparable_groups
from matrixrun.judge.statistics import sign_flip_p_value
from matrixrun.judge.steps import LEAST_LOSS, steps_of

KIND = "acceptance-by-step"
LEVEL = 0.001
# What is kept of a cell: enough to see a tenth, and small beside the cell itself.
MOST_STEPS = 20_000

Hashes = NDArray[np.uint64]
_FACTOR = np.uint64(0x9E3779B97F4A7C15)


@dataclass(frozen=True)
class Trail:
    """A cell's verification steps [S]: `start` is the place of the committed text before it in
    `texts`, the hash of every prefix of every answer [tokens + requests], prompt included;
    `prompt` names its prompt by hash, `accepted` and `drafted` count draft tokens."""

    start: Ints
    prompt: Hashes
    accepted: Ints
    drafted: Ints
    texts: Hashes


def trail_of(case: Case) -> Trail:
    """Return the steps of requests all of whose tokens after the first came from steps: elsewhere
    it is not known where a step began."""
    steps, lengths = steps_of(case), case.on.lengths
    first_step = np.searchsorted(steps.owner, np.arange(lengths.size + 1))
    texts, starts, prompts, kept, base = [], [], [], [], 0
    for index, request in enumerate(case.requests):
        mine = np.arange(first_step[index], first_step[index + 1])
        emitted = steps.accepted[mine] + 1
        whole = emitted.sum() + 1 >= lengths[index] and emitted[:-1].sum() < lengths[index]
        prompt = case.prompt_tokens(request)
        if prompt is None or mine.size < 2 or not whole or not steps.ordered[mine].all():
            continue
        seed = _prefixes(np.array(prompt, dtype=np.int64), np.uint64(1))[-1]
        text = _prefixes(case.on.part(case.on.token_ids, index), seed)
        places = 1 + np.concatenate([[0], np.cumsum(emitted)[:-2]])
        texts.append(text)
        starts.append(base + places)
        prompts.append(np.full(places.size, seed))
        kept.append(mine[:-1])
        base += text.size
        if sum(many.size for many in kept) > MOST_STEPS:
            break
    chosen = np.concatenate([np.zeros(0, np.int64), *kept]).astype(np.int64)
    return Trail(
        start=np.concatenate([np.zeros(0, np.int64), *starts]).astype(np.int64),
        prompt=np.concatenate([np.zeros(0, np.uint64), *prompts]),
        accepted=steps.accepted[chosen],
        drafted=steps.drafted[chosen],
        texts=np.concatenate([np.zeros(0, np.uint64), *texts]),
    )


def _prefixes(tokens: Ints, seed: np.uint64) -> Hashes:
    """Return a hash of every prefix of `tokens` [n + 1], that of the empty one first: sums of
    scrambled tokens with weights by position, so that one cumulative sum gives them all."""
    with np.errstate(over="ignore"):
        places = np.arange(1, tokens.size + 1, dtype=np.uint64)
        mixed = (tokens.astype(np.uint64) + np.uint64(1)) * _FACTOR
        mixed ^= mixed >> np.uint64(29)
        mixed *= places * np.uint64(0xBF58476D1CE4E5B9) + np.uint64(1)
        mixed ^= mixed >> np.uint64(32)
        sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(mixed, dtype=np.uint64)])
        return sums * _FACTOR + seed


@dataclass(frozen=True)
class _Paired:
    """One cell's steps against another's: accepted draft tokens a step, and the p-value that the
    first accepts no fewer."""

    mine: float
    theirs: float
    steps: int
    p_value: float


def step_findings(
    cells: Sequence[Cell], trails: Mapping[str, Trail]
) -> dict[str, tuple[Finding, ...]]:
    """Return, by cell id, a fault for each cell whose steps accept a tenth and more less than the
    same steps of another cell of its group (engine, model, drafter and all else alike but batch
    size, caching and topology)."""
    groups = comparable_groups([cell for cell in cells if cell.id in trails])
    pairs = [(one, other) for group in groups for one in group for other in group if one != other]
    worst: dict[str, tuple[str, _Paired]] = {}
    for one, other in pairs:
        found = _compare(trails[one], trails[other])
        if found is None or found.mine > (1.0 - LEAST_LOSS) * found.theirs:
            continue
        if found.p_value < LEVEL / len(pairs):
            known = worst.get(one)
            if known is None or found.p_value < known[1].p_value:
                worst[one] = (other, found)
    return {name: (_finding(other, found),) for name, (other, found) in worst.items()}


def _compare(one: Trail, other: Trail) -> _Paired | None:
    if one.start.size == 0 or other.start.size == 0:
        return None
    mine, theirs = one.texts[one.start], other.texts[other.start]
    _, left, right = np.intersect1d(mine, theirs, return_indices=True)
    same = one.drafted[left] == other.drafted[right]
    left, right = left[same], right[same]
    shared = np.minimum(one.accepted[left], other.accepted[right]) + 1
    on = one.texts[one.start[left] + shared] == other.texts[other.start[right] + shared]
    left, right = left[on], right[on]
    if left.size == 0:
        return None
    differences = (other.accepted[right] - one.accepted[left]).astype(np.float64)
    _, prompts = np.unique(one.prompt[left], return_inverse=True)
    return _Paired(
        mine=float(one.accepted[left].mean()),
        theirs=float(other.accepted[right].mean()),
        steps=int(left.size),
        p_value=sign_flip_p_value(counted(prompts.astype(np.int64), differences, 0)),
    )


def _finding(other: str, found: _Paired) -> Finding:
    text = (
        f"after the same text the same steps accept {found.mine:.3g} draft tokens here and "
        f"{found.theirs:.3g} in {other} ({found.steps} steps paired, p = {found.p_value:.2g})"
    )
    numbers = {"accepted": found.mine, "other": other, "theirs": found.theirs,
               "steps": found.steps, "p_value": found.p_value}  # fmt: skip
    return Finding(kind=KIND, severity=Severity.FAULT, text=text, numbers=numbers)
