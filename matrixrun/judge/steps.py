"""Verification steps of an arm, and the engine's own counters of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from matrixrun.evidence.cells import Speculation
from matrixrun.judge.case import Case, Floats

# Of steps that offered a draft, so many must have offered a whole one; where fewer did, the method
# varies its drafts' length and shorter ones are used too.
LEAST_WHOLE_SHARE = 0.3
# Of accepted drafts: a smaller part is no loss that anybody would stop an upgrade for.
LEAST_LOSS = 0.1


@dataclass(frozen=True)
class Steps:
    """The on arm's verification steps in one row [S]: draft tokens `accepted` and `drafted`, the
    request's index `owner`, and `last`, whether it is its request's last step (which the output
    limit may have cut). `ordered` is False for steps of which only that much is known: they are
    counted whole, so none of them is last. `given` is False where the engine gives no per-step
    data."""

    accepted: NDArray[np.int64]
    drafted: NDArray[np.int64]
    owner: NDArray[np.int64]
    last: NDArray[np.bool_]
    ordered: NDArray[np.bool_]
    given: bool

    @property
    def verified(self) -> NDArray[np.bool_]:
        """Steps that had a draft to verify [S]."""
        return self.drafted > 0

    def used(self, draft_length: int) -> NDArray[np.bool_]:
        """Return the steps [S] from which acceptance is computed: not a request's last, and with
        whole drafts only, unless the method's drafts vary in length."""
        counted = self.verified & ~self.last
        whole = counted & (self.drafted >= draft_length)
        return whole if whole.sum() >= LEAST_WHOLE_SHARE * counted.sum() else counted


def steps_of(case: Case) -> Steps:
    """Return the on arm's verification steps over the case's requests."""
    answers = case.on.observations
    lengths = np.array([answer.drafted.size for answer in answers], dtype=np.int64)
    ends = np.cumsum(lengths)
    ordered = np.repeat([answer.steps_ordered for answer in answers], lengths).astype(bool)
    last = np.zeros(int(lengths.sum()), dtype=bool)
    last[ends[lengths > 0] - 1] = True
    last &= ordered
    return Steps(
        accepted=_joined([answer.accepted for answer in answers]),
        drafted=_joined([answer.drafted for answer in answers]),
        owner=np.repeat(np.arange(lengths.size), lengths),
        last=last,
        ordered=ordered,
        given=bool(lengths.sum() > 0),
    )


def first_taken(case: Case) -> Floats:
    """Return in what share of each request's verification steps the first draft token was accepted
    [requests], whatever their drafts' lengths; NaN where it has none."""
    steps = steps_of(case)
    return _by_request(case, steps, steps.accepted > 0)


def tokens_a_step(case: Case) -> tuple[Floats, Floats]:
    """Return the draft tokens that each request's verification steps accept on average, and those
    that they are offered [requests]; NaN where it has none."""
    steps = steps_of(case)
    return _by_request(case, steps, steps.accepted), _by_request(case, steps, steps.drafted)


def _by_request(case: Case, steps: Steps, values: NDArray[Any]) -> Floats:
    """Return the mean of `values` [S] over each request's steps [requests] but its last, which the
    output limit may have cut."""
    used, count = steps.verified & ~steps.last, len(case.requests)
    total = np.bincount(steps.owner[used], minlength=count).astype(np.float64)
    summed = np.bincount(steps.owner[used], weights=values[used], minlength=count)
    return np.asarray(np.divide(summed, total, out=np.full(count, np.nan), where=total > 0))


def draft_length(case: Case, steps: Steps) -> int:
    """Return k, the draft tokens a step: the cell's own, or the longest draft seen."""
    speculation = case.cell.axes.get("speculation")
    if isinstance(speculation, Speculation) and speculation.num_speculative_tokens:
        return speculation.num_speculative_tokens
    return int(steps.drafted.max()) if steps.drafted.size else 0


@dataclass(frozen=True)
class Counters:
    """What the engine counted over an arm's pass; None where it has no such counter."""

    drafts: float | None
    draft_tokens: float | None
    accepted_tokens: float | None


def counters_of(case: Case, arm: str = "on", role: str = "on") -> Counters:
    """Return the growth of the engine's counters over an arm's pass, or over its launch.

    `arm` is `on`, `off` or `null`; `role` is that of its launch: `on`, `A` or `B`.
    """
    evidence = case.observed.evidence
    record, outcome = evidence.records.get(arm), evidence.outcomes.get(role)
    before, after = {}, {}
    if record is not None and record.counters_after:
        before, after = record.counters_before, record.counters_after
    elif outcome is not None:
        before, after = outcome.counters_before, outcome.counters_after
    return Counters(
        drafts=_growth(before, after, "num_drafts"),
        draft_tokens=_growth(before, after, "num_draft_tokens"),
        accepted_tokens=_growth(before, after, "num_accepted_tokens"),
    )


def _growth(before: dict[str, float], after: dict[str, float], name: str) -> float | None:
    """Return the growth of all counters whose name ends in `name`, whatever their labels."""
    found = [key for key in after if key.split("{")[0].removesuffix("_total").endswith(name)]
    if not found:
        return None
    return sum(after[key] - before.get(key, 0.0) for key in found)


def _joined(arrays: list[NDArray[np.int32]]) -> NDArray[np.int64]:
    return np.concatenate([np.zeros(0, np.int64), *arrays]).astype(np.int64)
