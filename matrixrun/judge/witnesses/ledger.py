"""ledger: whether the scheduler of a traced launch kept its own rules (see `judge.ledger`).

A broken rule is a fault before any token differs. The launch has another scheduler class, so its
findings are evidence besides the plain on arm's and never stand in for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from matrixrun.evidence.launches import LaunchEnd, LaunchOutcome
from matrixrun.evidence.requests import CANCELLED, Observation
from matrixrun.evidence.verdicts import CellEvidence, Finding, Severity, Verdict
from matrixrun.judge.ledger import ABORTED, Account, Turn, audit
from matrixrun.judge.testimony import Objection, Testimony

if TYPE_CHECKING:
    from matrixrun.judge.witnesses import ProbeExamination

KIND = "ledger"
TRACED = "traced"
# Until the front end's word arrives, a scheduler that plans ahead has a step in flight and another
# planned: whatever else ends the request in these is no end that was missed.
ABORT_STEPS = 2
# What the probe's requests end by, and what must then have happened.
ASKED = {
    "stop": "ends.stop_token",
    "length": "ends.length",
    "string": "ends.stop_string",
}


@dataclass(frozen=True)
class Overrun:
    """What an answer that ended at a stop string left behind: `tokens` kept past it, over `steps`
    steps besides the one in which it appeared, until the server's word came `seconds` later."""

    turn: Turn
    tokens: int
    steps: int
    seconds: float


def examine_ledger(examination: ProbeExamination) -> Testimony:
    """Return a fault for each rule that was broken, with the step; INCONCLUSIVE where there is no
    ledger, where its launch ended early, and where what was asked for never happened."""
    observed, evidence = examination.observed, examination.evidence
    events = examination.ledgers.get(TRACED)
    if events is None:
        return _absent(evidence)
    account = audit(events)
    overruns = tuple(matched(account, observed.answers("on")))
    told = ended_early(KIND, "the traced launch", evidence.outcomes.get(TRACED))
    told += broken_rules(account, "traced") + _past_stop_strings(overruns)
    dropped = sum(one.finish_reason == CANCELLED for one in observed.answers("on"))
    counts = {**account.counts, "dropped": dropped, "ends.stop_string": len(overruns)}
    return told + coverage(KIND, counts, _asked(examination))


def _asked(examination: ProbeExamination) -> set[str]:
    """Return the transitions that the probe's requests were to bring about."""
    observed = examination.observed
    categories = {one.category for one in observed.answers("on")}
    passes = [one.pass_id.rpartition(".")[2] for one in observed.records.get("on", ())]
    asked = {"steps.verified"} | {ASKED[name] for name in categories if name in ASKED}
    if examination.evidence.cell.axes.get("prefix_caching") is True:
        asked.add("blocks_published")
    for part, name in (("preempt", "preemptions"), ("cancel", "dropped")):
        if any(one.startswith(part) for one in passes):
            asked.add(name)
    return asked


def coverage(kind: str, counts: dict[str, int], asked: Iterable[str]) -> Testimony:
    """Return how often transitions happened; INCONCLUSIVE where one that was asked for did not."""
    absent = sorted(name for name in asked if counts[name] == 0)
    reason = f"{kind}: asked for and never happened: {', '.join(absent)}"
    return Testimony(
        coverage={f"{kind}.{name}": count for name, count in counts.items()},
        objections=(Objection(Verdict.INCONCLUSIVE, reason),) if absent else (),
    )


def broken_rules(account: Account, launch: str) -> Testimony:
    """Return a fault for each rule that the launch's scheduler broke, with its first step."""
    found = []
    for rule, times in account.broken.items():
        first = next(one for one in account.violations if one.rule is rule)
        more = f" (and {times - 1} times more)" if times > 1 else ""
        found.append(
            Finding(
                kind=KIND,
                severity=Severity.FAULT,
                text=f"{rule}, step {first.step} of the {launch} launch: {first.text}{more}",
                numbers={"rule": rule.value, "step": first.step, "times": times},
            )
        )
    objections: tuple[Objection, ...] = ()
    if account.cut:
        reason = f"ledger: the {launch} launch could not go on with it: {account.cut}"
        objections = (Objection(Verdict.INCONCLUSIVE, reason),)
    elif account.cut is not None:
        text = f"the ledger of the {launch} launch was cut at its size: what came after is unseen"
        found.append(Finding(kind=KIND, severity=Severity.NOTICE, text=text))
    metrics = {f"ledger/{launch}.violations": float(sum(account.broken.values()))}
    return Testimony(tuple(found), metrics=metrics, objections=objections)


def matched(account: Account, answers: Sequence[Observation]) -> Iterator[Overrun]:
    """Yield what answers that ended at a stop string left behind: those whose tokens are the
    beginning of what the ledger says was kept of a request with stop strings."""
    turns = [one for one in account.turns if one.arrived is not None and one.arrived.stop_strings]
    for answer in answers:
        if answer.category != "string" or answer.finish_reason != "stop" or answer.error:
            continue
        size = answer.token_ids.size
        for turn in turns:
            if np.array_equal(turn.kept[:size], answer.token_ids) and _sent(turn, answer):
                turns.remove(turn)
                yield _overrun(turn, size, account)
                break


def _sent(turn: Turn, answer: Observation) -> bool:
    assert turn.arrived is not None
    return turn.ended is not None and turn.arrived.prompt == answer.prompt_tokens


def _overrun(turn: Turn, answered: int, account: Account) -> Overrun:
    later = [step for length, step in turn.steps if length > answered]
    first = next((step for length, step in turn.steps if length >= answered), None)
    assert turn.ended is not None
    began = account.closed.get(first, turn.ended.seconds) if first is not None else 0.0
    # Tokens of the step in which the string appeared are no further step's.
    steps = sum(step != first for step in later)
    return Overrun(turn, len(turn.kept) - answered, steps, max(0.0, turn.ended.seconds - began))


def _past_stop_strings(overruns: Sequence[Overrun]) -> Testimony:
    """Return how much is kept past stop strings. The server's front end sees them and calls the
    request off; until then the scheduler goes on. A request that went on to another end for more
    steps than that takes, and was not called off afterwards by a front end short of time, is a
    fault."""
    if not overruns:
        return Testimony()
    missed = [one for one in overruns if one.steps > ABORT_STEPS and not _called_off(one.turn)]
    found = []
    if missed:
        ended = missed[0].turn.ended
        assert ended is not None
        text = (
            f"past the end of a turn, step {ended.step} of the traced launch: request "
            f"{ended.request} was answered up to its stop string and went on by "
            f"{missed[0].tokens} tokens in {missed[0].steps} steps to another end ({ended.how})"
        )
        found.append(Finding(kind=KIND, severity=Severity.FAULT, text=text))
    metrics = {
        "tokens.max": max(one.tokens for one in overruns),
        "tokens.mean": sum(one.tokens for one in overruns) / len(overruns),
        "steps.max": max(one.steps for one in overruns),
        "seconds.max": max(one.seconds for one in overruns),
    }
    metrics = {f"ledger/past_stop_string.{name}": float(one) for name, one in metrics.items()}
    return Testimony(tuple(found), metrics=metrics)


def _called_off(turn: Turn) -> bool:
    return turn.called_off_late or (turn.ended is not None and turn.ended.how == ABORTED)


def ended_early(kind: str, launch: str, outcome: LaunchOutcome | None) -> Testimony:
    """Return INCONCLUSIVE, in the launch's own words, where it did not serve to its end: what it
    was not sent any more is seen nowhere else."""
    if outcome is None or outcome.end is LaunchEnd.SERVED:
        return Testimony()
    words = outcome.message.strip().splitlines() or ["no message"]
    reason = f"{kind}: {launch} {outcome.end}: {words[0]}"
    return Testimony(objections=(Objection(Verdict.INCONCLUSIVE, reason),))


def _absent(evidence: CellEvidence) -> Testimony:
    """Say why there is no ledger: the launch did not serve, or was none of the plan's."""
    outcome = evidence.outcomes.get(TRACED)
    if outcome is None:
        text = (
            "there is no launch with a ledger: the engine has no place for one, a scheduler of "
            "your own is set, it has replicas, or it is attached"
        )
        return Testimony((Finding(kind=KIND, severity=Severity.NOTICE, text=text),))
    if outcome.end is not LaunchEnd.SERVED:
        return ended_early(KIND, "the traced launch", outcome)
    reason = "ledger: the traced launch: it wrote no ledger"
    return Testimony(objections=(Objection(Verdict.INCONCLUSIVE, reason),))
