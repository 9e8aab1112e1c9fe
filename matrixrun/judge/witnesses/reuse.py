"""reuse: what each turn of a conversation takes from the cache, on against off.

A turn's prompt begins with the turn before it and its answer. All of that was computed once, so
whatever of it is prefilled again was lost: a block's rounding at least, the whole answer at worst.

Two limits: at one turn a loss is beyond the granularity of the cache and an answer's last step;
over all turns of the cell together, blocks are lost that were full before the answer's last step
(which is where no rounding is left, whatever the histories are), more often than in the off arm.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from matrixrun.evidence.cells import Speculation
from matrixrun.evidence.requests import Observation
from matrixrun.evidence.verdicts import CellEvidence, Finding, Severity, Verdict
from matrixrun.judge.statistics import paired_excess_p_value
from matrixrun.judge.suspicions import verified_rows
from matrixrun.judge.testimony import Objection, RateTest, Testimony

if TYPE_CHECKING:
    from matrixrun.judge.witnesses import ProbeExamination

KIND = "reuse"
RATE_TESTS = 1
TURN = re.compile(r"\.t(\d+)$")
# The ways in which a conversation's turns are to end, as coverage and as a person says it.
ENDS = {"natural": "natural", "stop": "stop_token", "string": "stop_string"}
WORDS = {
    "natural": "as the model likes",
    "stop": "at its stop token",
    "string": "at its stop string",
    "length": "at its limit",
}
# What engines call the tokens that they cache or drop at once. A hybrid's blocks are its largest.
GRANULARITIES = ("block_size", "mamba_block_size", "page_size")
# Drafters that read the target's hidden states drop the last matched block by design.
DROPPING = re.compile(r"eagle|mtp|nextn|dflash|dspark")


@dataclass(frozen=True)
class Boundary:
    """The step from one turn to the next, in tokens: `known` had been computed before, `cached`
    were taken from the cache, `answer` is the length of the answer before. Of the known tokens
    that were prefilled again `repair` lie in that answer and `repeated` before it. `seconds` is
    the time to the first token."""

    known: int
    cached: int
    answer: int
    repair: int
    repeated: int
    seconds: float

    @property
    def again(self) -> int:
        """Tokens prefilled again."""
        return self.repair + self.repeated


Boundaries = dict[tuple[str, int], Boundary]
"""By conversation and turn (from 2 on)."""


def examine_reuse(examination: ProbeExamination) -> Testimony:
    """Return a fault where the on arm prefills more again than the off arm does, beyond the cache's
    own granularity, at any turn; else a test of the full blocks that it loses over all turns; what
    turns cost, and whether prefixes were reused at all."""
    observed = examination.observed
    answers = {arm: observed.answers(arm) for arm in ("on", "off", "null")}
    if not answers["on"] and not answers["off"]:
        text = "prefix caching is off: there is nothing for a conversation to reuse"
        return Testimony((Finding(kind=KIND, severity=Severity.NOTICE, text=text),))
    found = {arm: boundaries(some) for arm, some in answers.items()}
    told = _coverage(answers["on"], found)
    for arm in ("on", "off"):
        told += Testimony(metrics=_figures(arm, found[arm], answers[arm]))
    return told + _compared(examination, found)


def boundaries(observations: Iterable[Observation]) -> Boundaries:
    """Return every step between two turns that were answered, where cached tokens are known."""
    turns = {}
    for one in observations:
        turn = TURN.search(one.request)
        if turn is not None and one.error is None:
            turns[one.prompt, int(turn[1])] = one
    return {
        (name, turn): _boundary(turns[name, turn - 1], one)
        for (name, turn), one in turns.items()
        if (name, turn - 1) in turns and one.cached_tokens is not None
    }


def _boundary(before: Observation, now: Observation) -> Boundary:
    history = np.concatenate([before.sent, before.token_ids])
    shared = min(history.size, now.sent.size)
    different = np.flatnonzero(history[:shared] != now.sent[:shared])
    known = int(different[0]) if different.size else shared
    cached = now.cached_tokens or 0
    start = min(known, before.sent.size)
    return Boundary(
        known=known,
        cached=cached,
        answer=before.token_ids.size,
        repair=max(0, known - max(cached, start)),
        repeated=max(0, start - cached),
        seconds=now.first_token - now.started,
    )


def granularity(evidence: CellEvidence) -> tuple[int, int]:
    """Return the tokens that the cache keeps or drops at once, as the engine reports them (1 where
    it reports none), and how many such blocks more the on arm drops by design."""
    sizes = [
        int(value)
        for outcome in evidence.outcomes.values()
        for name in GRANULARITIES
        if isinstance(value := outcome.facts.get(name), int | float) and value >= 1
    ]
    speculation = evidence.cell.axes.get("speculation")
    drops = False
    if isinstance(speculation, Speculation) and sizes:
        kept = speculation.options.get("disable_eagle_block_drop") is True
        drops = DROPPING.search(speculation.method) is not None and not kept
    return max(sizes, default=1), int(drops)


def _compared(examination: ProbeExamination, found: dict[str, Boundaries]) -> Testimony:
    """Return the finding on turns at which the on arm prefills too much again; a notice where an
    off arm does the same against the other, which is no matter of speculation."""
    block, dropped = granularity(examination.evidence)
    allowed = block * (1 + dropped) + _unpublished(examination.evidence) - 1
    on, off, null = (found[arm] for arm in ("on", "off", "null"))
    excess = {key: on[key].again - off[key].again for key in on.keys() & off.keys()}
    beyond = sorted(key for key, tokens in excess.items() if tokens > allowed)
    metrics = {"conversation/granularity": float(block)}
    if not beyond:
        return Testimony(metrics=metrics) + _full_blocks(examination, found, block, dropped)
    worst = max(beyond, key=lambda key: (excess[key], key))
    control = [
        key for key in null.keys() & off.keys() if null[key].again - off[key].again > allowed
    ]
    share = on[worst].again / max(1, on[worst].answer)
    text = (
        f"at {len(beyond)} of {len(excess)} turns the on arm prefills more again than the off arm, "
        f"beyond the {allowed} tokens of the cache's granularity and a last step: "
        f"{on[worst].again} tokens against {off[worst].again} at turn {worst[1]} of {worst[0]}, "
        f"{share:.2g} times the answer before"
    )
    if control:
        text += f"; so does the control at {len(control)} turns"
    attached = bool(examination.evidence.outcomes["on"].facts.get("attached"))
    finding = Finding(
        kind=KIND,
        severity=Severity.NOTICE if control or attached else Severity.FAULT,
        text=text,
        numbers={
            "turns": len(beyond),
            "compared": len(excess),
            "allowed": allowed,
            "on": on[worst].again,
            "off": off[worst].again,
            "answer": on[worst].answer,
        },
    )
    return Testimony((finding,), metrics=metrics, objections=_evicted(attached and not control))


def _unpublished(evidence: CellEvidence) -> int:
    """Return how many tokens at an answer's end may rightly be missing from the on arm's cache: its
    last step's, of which the off arm's has one."""
    return max(1, verified_rows(evidence.cell))


def full_blocks_lost(one: Boundary, block: int, rows: int, dropped: int = 0) -> int:
    """Return how many blocks were lost that held nothing but tokens committed before the answer's
    last step, beside those that are `dropped` by design.

    A step of `rows` tokens is published by the one after it, and an answer's last step has none:
    up to so many tokens at its end may rightly be missing. What is left is no rounding: it is
    taken off exactly, so that arms whose histories differ are comparable turn by turn.
    """
    full = max(0, one.known - rows) // block
    return max(0, full - dropped - one.cached // block)


def _full_blocks(
    examination: ProbeExamination, found: dict[str, Boundaries], block: int, dropped: int
) -> Testimony:
    """Return the test of whether the on arm loses full blocks at more turns than the off arm.

    Units are turns: a block that is lost at one is computed there again, and is no loss of the
    next. McNemar's exact test against the off arm and against the control; both must show it.
    """
    evidence = examination.evidence
    rows = _unpublished(evidence)
    lost = {
        arm: {
            key: full_blocks_lost(one, block, rows, dropped if arm == "on" else 0)
            for key, one in turns.items()
        }
        for arm, turns in found.items()
    }
    metrics = {
        f"conversation/full_blocks_lost.{arm}": float(sum(lost[arm].values()))
        for arm in ("on", "off")
    }
    compared = {arm: lost["on"].keys() & lost[arm].keys() for arm in ("off", "null")}
    if not all(compared.values()):
        return Testimony(metrics=metrics)
    p_value = max(
        paired_excess_p_value(
            sum(lost["on"][key] > lost[arm][key] for key in keys),
            sum(lost["on"][key] < lost[arm][key] for key in keys),
        )
        for arm, keys in compared.items()
    )
    keys = compared["off"]
    turns = sum(lost["on"][key] > lost["off"][key] for key in keys)
    again = {arm: sum(found[arm][key].again for key in keys) for arm in ("on", "off")}
    text = (
        f"at {turns} of {len(keys)} turns the on arm loses full blocks of {block} tokens that the "
        f"off arm keeps (p = {p_value:.2g}), which no rounding of the cache explains: in all "
        f"{again['on']} tokens prefilled again against {again['off']}"
    )
    attached = bool(evidence.outcomes["on"].facts.get("attached"))
    finding = Finding(
        kind=KIND,
        severity=Severity.NOTICE if attached else Severity.FAULT,
        text=text,
        numbers={"turns": turns, "compared": len(keys), "p_value": p_value, **again},
    )
    return Testimony(metrics=metrics, rates=(RateTest(p_value, finding),))


def _evicted(attached: bool) -> tuple[Objection, ...]:
    """Return what a loss on a server that others use too leaves open."""
    reason = (
        "conversation: turns were lost from the cache of an attached server, others' may be why"
    )
    return (Objection(Verdict.INCONCLUSIVE, reason),) if attached else ()


def _figures(arm: str, found: Boundaries, answers: Iterable[Observation]) -> dict[str, float]:
    """Return an arm's figures: reuse and loss over all turns and by turn, and what conversations
    cost: tokens generated, repaired and prefilled again, and seconds of requests."""
    if not found:
        return {}
    every = list(found.values())
    held = [one for one in answers if TURN.search(one.request)]
    generated = sum(one.token_ids.size for one in held)
    repair, repeated = (sum(getattr(one, name) for one in every) for name in ("repair", "repeated"))
    figures = {
        "reused_tokens": sum(one.cached for one in every),
        "prefilled_again": repair + repeated,
        "share_of_answer": (repair + repeated) / max(1, sum(one.answer for one in every)),
        "cost.generated": generated,
        "cost.repair": repair,
        "cost.repeated_prefill": repeated,
        "cost.tokens": generated + repair + repeated,
        "cost.seconds": sum(one.finished - one.started for one in held),
        "first_token_seconds": float(np.median([one.seconds for one in every])),
    }
    for turn in sorted({key[1] for key in found}):
        some = [one for key, one in found.items() if key[1] == turn]
        figures[f"turn{turn}.reused_tokens"] = sum(one.cached for one in some)
        figures[f"turn{turn}.prefilled_again"] = sum(one.again for one in some)
        figures[f"turn{turn}.first_token_seconds"] = float(np.median([one.seconds for one in some]))
    return {f"conversation/{name}.{arm}": float(value) for name, value in figures.items()}


def _coverage(answers: Iterable[Observation], found: dict[str, Boundaries]) -> Testimony:
    """Return how often turns followed one another, were served from the cache and ended in which
    way; what was asked for and never happened makes the cell INCONCLUSIVE."""
    held = [one for one in answers if TURN.search(one.request) and one.error is None]
    ended: dict[str, list[bool]] = {}
    for one in held:
        by = "length" if one.category == "length" else "stop"
        ended.setdefault(one.category, []).append(one.finish_reason == by)
    reused = sum(one.cached > 0 for one in found["on"].values())
    coverage = {"conversation.turns": len(found["on"]), "conversation.turns_reused": reused}
    coverage |= {
        f"conversation.end.{ENDS[name]}": sum(some) for name, some in ended.items() if name in ENDS
    }
    coverage["conversation.end.length"] = sum(one.finish_reason == "length" for one in held)
    reasons = []
    if not found["on"] or not found["off"]:
        reasons.append("no turn followed another with cached tokens known, in both arms")
    elif reused == 0 and not any(one.cached for one in found["off"].values()):
        reasons.append("no turn took anything from the cache, in either arm")
    reasons += [
        f"no answer ended {WORDS[name]}"
        for name, some in ended.items()
        if name in WORDS and not any(some)
    ]
    return Testimony(
        coverage=coverage,
        objections=tuple(
            Objection(Verdict.INCONCLUSIVE, f"conversation: {reason}") for reason in reasons
        ),
    )
