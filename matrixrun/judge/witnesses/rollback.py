"""rollback: what planned rejections leave behind in the very next token.

Tokens and regrets of the launch with planned drafts are compared by the witnesses that compare all
answers. This one looks at the token right after each rejection, whose logprob shows damage that
changes no token yet, and says at which places drafts were rejected at all.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from matrixrun.evidence.cells import Speculation
from matrixrun.evidence.launches import LaunchEnd
from matrixrun.evidence.ledger import Event
from matrixrun.evidence.requests import Observation
from matrixrun.evidence.verdicts import CellEvidence, Finding, Severity, Verdict
from matrixrun.judge import counters
from matrixrun.judge.case import Answers, Case, Floats, Ints
from matrixrun.judge.ceiling import learn_ceiling
from matrixrun.judge.examination import Examination
from matrixrun.judge.ledger import audit
from matrixrun.judge.testimony import Objection, Testimony
from matrixrun.judge.witnesses.ledger import broken_rules, ended_early

if TYPE_CHECKING:
    from matrixrun.judge.witnesses import ProbeExamination

KIND = "rollback"
FORCED = "forced"


@dataclass(frozen=True)
class Rejection:
    """A rejection of an answer's draft at `position` (from 0); `emitted` tokens stand before the
    token that comes next, the prompt's not counted."""

    position: int
    emitted: int


@dataclass(frozen=True)
class Account:
    """An answer's rejections, and whether it ended inside an accepted draft."""

    rejections: tuple[Rejection, ...]
    ended_inside: bool


def examine_rollback(examination: ProbeExamination) -> Testimony:
    """Return a fault where a token right after a rejection is valued otherwise than by the off arm,
    beyond what rounding explains and unlike the control; INCONCLUSIVE where the launch ended early,
    and where rejections that were planned did not come about."""
    observed, evidence = examination.observed, examination.evidence
    answers = observed.answers("on")
    if not answers:
        return _absent(evidence)
    told = ended_early(KIND, "the launch with planned drafts", evidence.outcomes.get(FORCED))
    told += _coverage(examination, answers) + _ledger(examination.ledgers.get(FORCED))
    if examination.case is not None and examination.case.requests:
        told += _next_tokens(examination.case, examination.main)
    return told


def account(answer: Observation) -> Account | None:
    """Return what an answer's verification steps say; None where they do not add up to it: a step
    without a draft is not among them, and from there on places are unknown."""
    emitted, found = 1, []
    for accepted, drafted in zip(answer.accepted.tolist(), answer.drafted.tolist(), strict=True):
        emitted += accepted + 1
        if accepted < drafted:
            found.append(Rejection(accepted, emitted))
    if emitted < answer.token_ids.size:
        return None
    return Account(tuple(found), ended_inside=emitted > answer.token_ids.size)


def _absent(evidence: CellEvidence) -> Testimony:
    """Say why there is nothing: the launch did not serve, or was none of the plan's."""
    outcome = evidence.outcomes.get(FORCED)
    if outcome is not None and outcome.end is not LaunchEnd.SERVED:
        return ended_early(KIND, "the launch with planned drafts", outcome)
    text = (
        "there is no launch with planned drafts: the engine has no place for them, how many to "
        "draft is not said, or it is attached; rejections are those that come by themselves"
    )
    return Testimony((Finding(kind=KIND, severity=Severity.NOTICE, text=text),))


def _ledger(events: tuple[Event, ...] | None) -> Testimony:
    """Return the rules that the scheduler of the launch with planned drafts broke, where it kept a
    ledger."""
    return Testimony() if events is None else broken_rules(audit(events), "planned drafts'")


def _coverage(examination: ProbeExamination, answers: Iterable[Observation]) -> Testimony:
    """Return how often drafts were rejected at each position, on a block's border, behind a cached
    prefix, after a preemption, and how many answers ended inside an accepted draft."""
    evidence = examination.evidence
    known = [(answer, found) for answer in answers if (found := account(answer)) is not None]
    every = [(answer, one) for answer, found in known for one in found.rejections]
    positions = Counter(one.position for _, one in every)
    counts = {
        f"rejections.position.{place}": positions[place] for place in range(_length(evidence))
    }
    block = evidence.outcomes[FORCED].facts.get("block_size") if FORCED in evidence.outcomes else 0
    if isinstance(block, int) and block > 1:
        counts["rejections.at_border"] = sum(
            (answer.prompt_tokens + one.emitted) % block in (0, 1, block - 1)
            for answer, one in every
        )
    caching = evidence.cell.axes.get("prefix_caching") is True
    if caching or any(answer.cached_tokens for answer, _ in known):
        counts["rejections.reused_prefix"] = sum(bool(answer.cached_tokens) for answer, _ in every)
    counts["ended_inside_draft"] = sum(found.ended_inside for _, found in known)
    counts |= _after_preemption(examination)
    absent = [name for name, count in counts.items() if count == 0]
    reason = "rollback: planned and never happened: " + ", ".join(absent)
    return Testimony(
        coverage={f"rollback.{name}": count for name, count in counts.items()},
        objections=(Objection(Verdict.INCONCLUSIVE, reason),) if absent else (),
    )


def _after_preemption(examination: ProbeExamination) -> dict[str, int]:
    """Return how often requests were preempted, and drafts rejected after that, where it was asked
    for. The passes that drafts were learned in preempt requests too, and are in the ledger as well:
    it says of preemptions only where the engine does not count them."""
    passes = examination.observed.records.get("on", ())
    asked = [one for one in passes if ".preempt" in one.pass_id]
    if not asked:
        return {}
    # From the first to the last: what an engine counts may lag behind a pass.
    before, after = asked[0].counters_before, asked[-1].counters_after
    grown = counters.growth(before, after, counters.PREEMPTIONS)
    events = examination.ledgers.get(FORCED)
    if events is None:
        return {"preemptions": int(grown or 0)}
    counts = audit(events).counts
    return {
        "preemptions": counts["preemptions"] if grown is None else int(grown),
        "rejections.after_preemption": counts["rejections.after_preemption"],
    }


def _length(evidence: CellEvidence) -> int:
    speculation = evidence.cell.axes.get("speculation")
    if isinstance(speculation, Speculation) and speculation.num_speculative_tokens:
        return speculation.num_speculative_tokens
    return 0


def _next_tokens(case: Case, main: Examination | None) -> Testimony:
    """Return what the logprobs of the tokens right after rejections say, against the off arm's; the
    ceiling is that of equality's answers, which it takes more tokens to learn than there are."""
    on = _shifts(case, case.on, case.forks)
    null = _shifts(case, case.null, case.null_forks)
    if on.size == 0:
        return Testimony()
    ceiling = learn_ceiling(case) if main is None else main.ceiling
    most = {"on": float(on.max()), "null": float(null.max(initial=0.0))}
    metrics = {"rollback/next_tokens": float(on.size), "rollback/next_token_shift.mean": on.mean()}
    metrics |= {f"rollback/next_token_shift.{arm}": value for arm, value in most.items()}
    told = Testimony(metrics={name: float(value) for name, value in metrics.items()})
    if most["on"] <= ceiling.value:
        return told
    counted = int((on > ceiling.value).sum())
    text = (
        f"{counted} of {on.size} tokens right after a planned rejection are valued otherwise than "
        f"by the off arm, by up to {most['on']:.3g} nats ({ceiling.value:.3g} are explained; the "
        f"control's differ by up to {most['null']:.3g})"
    )
    fault = ceiling.trusted and most["null"] <= ceiling.value
    severity = Severity.FAULT if fault else Severity.NOTICE
    numbers = {"tokens": counted, "of": int(on.size), **most, "ceiling": ceiling.value}
    return told + Testimony((Finding(kind=KIND, severity=severity, text=text, numbers=numbers),))


def _shifts(case: Case, arm: Answers, forks: Ints) -> Floats:
    """Return how far an arm's logprobs are from the off arm's at the tokens right after the on
    arm's rejections [tokens], as far as the texts are the same."""
    found = []
    for index, answer in enumerate(case.on.observations):
        told = account(answer) if case.comparable[index] else None
        if told is None:
            continue
        shared = int(case.off.lengths[index]) if forks[index] < 0 else int(forks[index])
        mine = arm.part(arm.logprobs, index)
        theirs = case.off.part(case.off.logprobs, index)
        places = [one.emitted for one in told.rejections if one.emitted < shared]
        found += [abs(float(mine[place] - theirs[place])) for place in places]
    shifts = np.array(found, dtype=np.float64)
    return shifts[np.isfinite(shifts)]
