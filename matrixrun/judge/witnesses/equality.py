"""equality: where the on arm's tokens leave the off arm's, and whether a near tie accounts for it.

Only the first fork of a request is evidence here: what follows is conditioned on other text.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from matrixrun.evidence.verdicts import Finding, Severity
from matrixrun.judge.case import Answers, Case, Ints
from matrixrun.judge.examination import Examination
from matrixrun.judge.statistics import paired_excess_p_value
from matrixrun.judge.suspicions import State, Suspected, top_gap
from matrixrun.judge.testimony import Testimony

# A changed rate of ties is only ever a notice; it is not part of the sweep's error budget.
NOTICE_LEVEL = 0.01


class Relation(StrEnum):
    """How one answer relates to the off arm's."""

    IDENTICAL = "identical"
    EXPLAINED = "explained"
    UNEXPLAINED = "unexplained"
    SUSPECTED = "suspected"
    LENGTH_ONLY = "length_only"
    UNSCORED = "unscored"


@dataclass(frozen=True)
class Fork:
    """A request's first difference: `gap` is what the off arm holds against the other token, in
    nats (NaN where unknown); `token` and `own` are the other arm's and the off arm's."""

    index: int
    position: int
    relation: Relation
    gap: float
    token: int | None
    own: int | None


def examine_equality(examination: Examination) -> Testimony:
    """Return the relations of all requests; faults in strict mode, notices otherwise."""
    case = examination.case
    on = forks_of(examination, case.on, case.forks, examination.on)
    null = forks_of(examination, case.null, case.null_forks, examination.null)
    metrics = {**_metrics(on, case, "on"), **_metrics(null, case, "null")}
    findings: tuple[Finding, ...] = ()
    if examination.settings.equality == "strict" and on:
        findings += _strict(examination, on)
    findings += _numerics(on, null) + _lengths(case, on)
    return Testimony(findings=findings, metrics=metrics)


def forks_of(
    examination: Examination, answers: Answers, forks: Ints, found: Suspected
) -> tuple[Fork, ...]:
    """Return the first fork of every comparable request that has one, in the case's order."""
    case = examination.case
    states = {(one.index, one.position): one.state for one in found.named}
    told = []
    for index in np.flatnonzero((forks >= 0) & case.comparable).tolist():
        position = int(forks[index])
        mine = answers.part(answers.token_ids, index)
        off = case.off.part(case.off.token_ids, index)
        token = int(mine[position]) if position < mine.size else None
        own = int(off[position]) if position < off.size else None
        gap, relation = np.nan, Relation.LENGTH_ONLY
        if token is not None and own is not None:
            gap = _gap(case, answers, index, position, token)
            state = states.get((index, position))
            relation = _relation(gap, examination.ceiling.value, state)
        told.append(Fork(index, position, relation, gap, token, own))
    return tuple(told)


def _gap(case: Case, answers: Answers, index: int, position: int, token: int) -> float:
    """Return the off arm's gap against `token`: by prefill, else among its own top logprobs."""
    prefill = float(answers.part(answers.regrets, index)[position])
    if np.isfinite(prefill):
        return prefill
    decoded = top_gap(case.off, index, position, token)
    return float("nan") if decoded is None else decoded


def _relation(gap: float, ceiling: float, state: State | None) -> Relation:
    if state is State.UNEXPLAINED:
        return Relation.UNEXPLAINED
    if state in (State.ASKED, State.UNSETTLED):
        return Relation.SUSPECTED
    if np.isnan(gap):
        return Relation.UNSCORED
    # Beyond the ceiling yet not named: pardoned by an off arm's decoding, or past the cap.
    return Relation.EXPLAINED if gap <= ceiling or state is not None else Relation.SUSPECTED


def _metrics(forks: tuple[Fork, ...], case: Case, arm: str) -> dict[str, float]:
    compared = int(case.comparable.sum())
    if compared == 0:
        return {}
    gaps = [fork.gap for fork in forks if np.isfinite(fork.gap)]
    counts = {
        relation: sum(fork.relation is relation for fork in forks)
        for relation in Relation
        if relation is not Relation.IDENTICAL
    }
    metrics = {f"same/forks_{name.value}.{arm}": float(n) for name, n in counts.items()}
    metrics[f"same/exact_match.{arm}"] = 1.0 - len(forks) / compared
    if arm == "on":
        metrics["same/exact_match"] = metrics["same/exact_match.on"]
    if gaps:
        metrics[f"same/largest_fork_gap.{arm}"] = max(gaps)
    return metrics


def _strict(examination: Examination, forks: tuple[Fork, ...]) -> tuple[Finding, ...]:
    told = tuple(
        Finding(
            kind="equality",
            severity=Severity.FAULT,
            text=_sentence(examination.case, fork),
            numbers=_numbers(examination.case, fork),
        )
        for fork in forks[: examination.settings.top_reasons]
    )
    compared = int(examination.case.comparable.sum())
    text = f"strict equality: {len(forks)} of {compared} requests differ from the off arm"
    numbers = {"requests": len(forks), "compared": compared}
    return (Finding(kind="equality", severity=Severity.FAULT, text=text, numbers=numbers), *told)


def _sentence(case: Case, fork: Fork) -> str:
    request = case.requests[fork.index]
    if fork.relation is Relation.LENGTH_ONLY:
        lengths = case.on.lengths[fork.index], case.off.lengths[fork.index]
        return f"request {request}: {lengths[0]} tokens, the off arm {lengths[1]}; equal until then"
    return (
        f"request {request}, token {fork.position}: {fork.token} where the off arm emitted "
        f"{fork.own} (gap {fork.gap:.3g} nats, {fork.relation.value})"
    )


def _numbers(case: Case, fork: Fork) -> dict[str, object]:
    gap = fork.gap if np.isfinite(fork.gap) else None
    return {
        "request": case.requests[fork.index],
        "position": fork.position,
        "token": fork.token,
        "own": fork.own,
        "gap": gap,
        "relation": fork.relation.value,
    }


def _numerics(on: tuple[Fork, ...], null: tuple[Fork, ...]) -> tuple[Finding, ...]:
    """Return a notice when near ties fall the other way more often than in the control."""
    mine = {fork.index for fork in on if fork.relation is Relation.EXPLAINED}
    theirs = {fork.index for fork in null if fork.relation is Relation.EXPLAINED}
    more, fewer = len(mine - theirs), len(theirs - mine)
    p_value = paired_excess_p_value(more, fewer)
    if p_value >= NOTICE_LEVEL:
        return ()
    text = (
        f"numerics changed: {len(mine)} requests leave the off arm at a near tie, "
        f"{len(theirs)} in the control (p = {p_value:.2g}); a near tie is no fault"
    )
    numbers = {"on": len(mine), "null": len(theirs), "p_value": p_value}
    notice = Severity.NOTICE
    return (Finding(kind="numerics-changed", severity=notice, text=text, numbers=numbers),)


def _lengths(case: Case, on: tuple[Fork, ...]) -> tuple[Finding, ...]:
    found = [fork for fork in on if fork.relation is Relation.LENGTH_ONLY]
    if not found:
        return ()
    text = f"{len(found)} answers differ in length alone; first: {_sentence(case, found[0])}"
    numbers = {"requests": len(found), **_numbers(case, found[0])}
    return (Finding(kind="length", severity=Severity.NOTICE, text=text, numbers=numbers),)
