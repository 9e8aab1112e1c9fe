"""replies: what a client reads of streams, whole replies, tool calls and usage counts.

A stream put together, the same reply in one piece, and what the engine's own detokeniser makes of
its token ids are one text; tool calls, counts and the reason for the end are the same too. With
speculation a part of a stream carries several tokens, which is where parsers of streams break.
Each arm is held against itself, and only replies of the same tokens against each other, so that a
near tie is nothing. What the off arm breaks in the same way is the engine's own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from matrixrun.evidence.replies import Form
from matrixrun.evidence.requests import Observation
from matrixrun.evidence.verdicts import Finding, Severity, Verdict
from matrixrun.judge.case import ProbeObserved
from matrixrun.judge.replies import LENGTH, Break, breaks_of, is_refused, pairs, unit_of
from matrixrun.judge.testimony import Objection, RateTest, Testimony
from matrixrun.judge.witnesses.accuracy import mcnemar_p_value

if TYPE_CHECKING:
    from matrixrun.judge.witnesses import ProbeExamination

PROBE = "surface"
RATE_TESTS = 1
ARMS = ("on", "off")
INHERITED, UNASKED = "surface-inherited", "surface-unasked"
WHAT = {
    "failed-request": "requests failed on a live engine",
    "surface-stream": "streams are not what was said",
    "surface-decoding": "texts are not what their token ids say",
    "surface-tool-call": "tool calls are broken",
    "surface-usage": "usage counts are wrong",
    "surface-finish": "streams end for another reason than the reply in one piece",
}

Class = tuple[str, str, Form]


def examine_replies(examination: ProbeExamination) -> Testimony:
    """Return a fault for each kind of break that the on arm alone shows, a notice for what the off
    arm shows too, and INCONCLUSIVE where nothing was put to the test."""
    observed = examination.observed
    on = observed.answers("on")
    off = observed.answers("off") + observed.answers("null")
    if not on or not off:
        text = f"[{PROBE}] replies were not looked at: this engine was asked nothing (see plan)"
        return Testimony((_notice(UNASKED, text, {}),))
    told = _coverage(observed) + _refusals(on, off)
    mine, theirs = breaks_of(on), breaks_of(off)
    known = {_class(one) for one in theirs}
    own = [one for one in mine if _class(one) not in known]
    shared = [one for one in mine if _class(one) in known]
    told += Testimony(
        findings=tuple(_fault(kind, some, len(on)) for kind, some in _by_kind(own)),
        metrics={
            "surface/broken.on": float(len({one.request for one in mine})),
            "surface/broken.off": float(len({one.request for one in theirs})),
        },
    )
    return told + _inherited(observed, shared, theirs)


def _class(one: Break) -> Class:
    return one.kind, one.check, one.unit.form


def _by_kind(breaks: Iterable[Break]) -> list[tuple[str, list[Break]]]:
    found: dict[str, list[Break]] = {}
    for one in breaks:
        found.setdefault(one.kind, []).append(one)
    return sorted(found.items())


def _said(kind: str, breaks: Sequence[Break], replies: int) -> str:
    first, broken = breaks[0], len({one.request for one in breaks})
    text = f"[{PROBE}] {broken} of {replies} replies: {WHAT[kind]}"
    return f"{text} (first: {first.request}: {first.words})"


def _fault(kind: str, breaks: Sequence[Break], replies: int) -> Finding:
    text = f"{_said(kind, breaks, replies)}; none of the off arm's"
    numbers = {
        "requests": len({one.request for one in breaks}),
        "first": breaks[0].request,
        "checks": dict(sorted(Counter(one.check for one in breaks).items())),
    }
    return Finding(kind=kind, severity=Severity.FAULT, text=text, numbers=numbers)


def _notice(kind: str, text: str, numbers: dict[str, float]) -> Finding:
    return Finding(kind=kind, severity=Severity.NOTICE, text=text, numbers=numbers)


def _inherited(observed: ProbeObserved, mine: list[Break], theirs: Sequence[Break]) -> Testimony:
    """Return a notice for what the off arm breaks in the same way, and the test whether the on arm
    breaks more of it: of requests that one arm alone breaks either has half (McNemar)."""
    if not mine:
        return Testimony()
    asked = [{unit_of(o) for o in observed.answers(arm) if not is_refused(o)} for arm in ARMS]
    both = asked[0] & asked[1]
    classes = {_class(one) for one in mine}
    on, off = ({one.unit for one in many if _class(one) in classes} & both
               for many in (mine, theirs))  # fmt: skip
    p_value = mcnemar_p_value(len(on - off), len(off - on))
    kind, some = max(_by_kind(mine), key=lambda item: len(item[1]))
    text = _said(kind, some, len(observed.answers("on")))
    text += f"; so do the off arm's, in {len(off)} requests against {len(on)}"
    numbers = {"p_value": p_value, "on": float(len(on)), "off": float(len(off))}
    finding = Finding(kind=kind, severity=Severity.FAULT, text=text, numbers=numbers)
    return Testimony((_notice(INHERITED, text, numbers),), rates=(RateTest(p_value, finding),))


def _refusals(on: Sequence[Observation], off: Sequence[Observation]) -> Testimony:
    """Return a notice for each form that an arm refuses, by the words of the on arm's first."""
    refused = [{unit_of(one).form: one for one in many if is_refused(one)} for many in (on, off)]
    found = []
    for form, one in {**refused[1], **refused[0]}.items():
        arms = [arm for arm, many in zip(ARMS, refused, strict=True) if form in many]
        words = f"[{PROBE}] {form} was not looked at, refused by {' and '.join(arms)}: {one.error}"
        found.append(_notice(UNASKED, words, {}))
    return Testimony(tuple(found))


def _coverage(observed: ProbeObserved) -> Testimony:
    """Return how much was put to the test, INCONCLUSIVE where that was nothing."""
    figures = {arm: _figures(observed.answers(arm)) for arm in ARMS}
    on = figures["on"]
    told = Testimony(
        coverage={f"{PROBE}.{name}": value for name, value in on.items()},
        metrics={
            f"{PROBE}/{name}.{arm}": float(value)
            for arm, many in figures.items()
            for name, value in many.items()
        },
    )
    asked = {unit_of(one).form for one in observed.answers("on") if not is_refused(one)}
    missing = {
        "no stream has the tokens of the reply in one piece": on["compared"] == 0,
        "no part of a stream carried several tokens on the on arm": on["several_tokens"] == 0,
        "no tool was called to the end on the on arm": Form.TOOL_REQUIRED in asked
        and on["tool_calls"] == 0,
    }
    reasons = [reason for reason, lacks in missing.items() if lacks]
    return told + Testimony(
        objections=tuple(
            Objection(Verdict.INCONCLUSIVE, f"[{PROBE}] {reason}") for reason in reasons
        )
    )


def _figures(seen: Sequence[Observation]) -> dict[str, int]:
    """Return what was compared, the parts of streams and those of several tokens, and the requests
    with a tool call, streamed or in one piece, that the limit did not cut (one that it cuts is
    compared with nothing)."""
    called = {
        unit_of(one)
        for one in seen
        if one.reply is not None and one.reply.tool_calls and one.finish_reason != LENGTH
    }
    streams = [
        (one.reply.stream.tokens, unit_of(one) in called)
        for one in seen
        if one.reply is not None and one.reply.stream is not None
    ]
    return {
        "compared": len(pairs(seen)),
        "parts": sum(len(tokens) for tokens, _ in streams),
        "several_tokens": sum(count > 1 for tokens, _ in streams for count in tokens),
        "tool_calls": len(called),
        "several_in_tool_calls": sum(
            count > 1 for tokens, inside in streams if inside for count in tokens
        ),
    }
