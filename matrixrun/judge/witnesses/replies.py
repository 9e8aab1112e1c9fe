"""replies: what a client reads of streams, whole replies, tool calls and usage counts.

A stream put together, the same reply in one piece, and what the engine's own detokeniser makes of
its token ids are one text; tool calls, counts and the reason for the end are the same too. With
speculation a part of a stream carries several tokens, which is where parsers of streams break.
Each arm is held against itself, and only replies of the same tokens against each other, so that a
near tie is nothing. What the off arm breaks in the same way is the engine's own; what it was never
put to, since no reply of its has these tokens, may be, so that only a rate can tell.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from matrixrun.evidence.replies import Form
from matrixrun.evidence.requests import Observation
from matrixrun.evidence.verdicts import Finding, Severity, Verdict
from matrixrun.judge.case import ProbeObserved
from matrixrun.judge.replies import LENGTH, Look, looks_of, pairs, refused_forms, unit_of
from matrixrun.judge.testimony import Objection, RateTest, Testimony
from matrixrun.judge.witnesses.accuracy import mcnemar_p_value

if TYPE_CHECKING:
    from matrixrun.judge.witnesses import ProbeExamination

PROBE = "surface"
RATE_TESTS = 1
ARMS = ("on", "off")
INHERITED, UNCONFIRMED = "surface-inherited", "surface-unconfirmed"
UNASKED = "surface-unasked"
WHAT = {
    "failed-request": "requests failed on a live engine",
    "surface-stream": "streams are not what was said",
    "surface-decoding": "texts are not what their token ids say",
    "surface-tool-call": "tool calls are broken",
    "surface-usage": "usage counts are wrong",
    "surface-finish": "streams end for another reason than the reply in one piece",
}

Class = tuple[str, str, Form]


@dataclass(frozen=True)
class _Looks:
    """What was looked at: on the on arm, on the off arm (launch A), and in all launches without
    speculation, each by itself."""

    on: tuple[Look, ...]
    off: tuple[Look, ...]
    every_off: tuple[Look, ...]

    @cached_property
    def known(self) -> frozenset[Class]:
        """What some launch without speculation breaks."""
        return frozenset(_class(one) for one in self.every_off if one.words)

    @cached_property
    def right(self) -> frozenset[tuple[Class, str, tuple[int, ...]]]:
        """What some launch without speculation has right, in which request at which tokens."""
        return frozenset(map(_place, (one for one in self.every_off if not one.words)))

    def is_event(self, one: Look) -> bool:
        """Whether an off arm was put to the same with the same tokens, and none breaks it."""
        return _class(one) not in self.known and _place(one) in self.right


def examine_replies(examination: ProbeExamination) -> Testimony:
    """Return a fault for each kind of break that the on arm alone shows at tokens that the off arm
    has too, a notice and one test of rates for what is left, and INCONCLUSIVE where nothing was put
    to the test."""
    observed = examination.observed
    on, off, null = (observed.answers(arm) for arm in (*ARMS, "null"))
    if not on or not off:
        text = f"[{PROBE}] replies were not looked at: this engine was asked nothing (see plan)"
        return Testimony((_notice(UNASKED, text, {}),))
    looks = _Looks(looks_of(on), looks_of(off), looks_of(off) + looks_of(null))
    broken = [one for one in looks.on if one.words]
    events = [one for one in broken if looks.is_event(one)]
    rest = [one for one in broken if not looks.is_event(one)]
    told = Testimony(
        findings=tuple(_fault(kind, some, len(on)) for kind, some in _by_kind(events)),
        metrics={
            f"surface/broken.{arm}": float(len({one.request for one in some if one.words}))
            for arm, some in zip(ARMS, (looks.on, looks.off), strict=True)
        },
    )
    forms = {one.unit.form for one in broken}
    told = _coverage(observed) + _refusals(on, off, forms) + told
    return told + Testimony(tuple(_left(looks, rest, len(on))), rates=_rates(looks, rest, len(on)))


def _class(one: Look) -> Class:
    return one.kind, one.check, one.unit.form


def _place(one: Look) -> tuple[Class, str, tuple[int, ...]]:
    return _class(one), one.request, one.tokens


def _by_kind(breaks: Iterable[Look]) -> list[tuple[str, list[Look]]]:
    found: dict[str, list[Look]] = {}
    for one in breaks:
        found.setdefault(one.kind, []).append(one)
    return sorted(found.items())


def _said(kind: str, breaks: Sequence[Look], replies: int) -> str:
    first, broken = breaks[0], len({one.request for one in breaks})
    text = f"[{PROBE}] {broken} of {replies} replies: {WHAT[kind]}"
    return f"{text} (first: {first.request}: {first.words})"


def _fault(kind: str, breaks: Sequence[Look], replies: int) -> Finding:
    text = f"{_said(kind, breaks, replies)}; the off arm has it right"
    numbers = {
        "requests": len({one.request for one in breaks}),
        "first": breaks[0].request,
        "checks": dict(sorted(Counter(one.check for one in breaks).items())),
    }
    return Finding(kind=kind, severity=Severity.FAULT, text=text, numbers=numbers)


def _notice(kind: str, text: str, numbers: dict[str, float]) -> Finding:
    return Finding(kind=kind, severity=Severity.NOTICE, text=text, numbers=numbers)


def _left(looks: _Looks, rest: Sequence[Look], replies: int) -> Iterator[Finding]:
    """Yield a notice for each kind of what is no event: an off arm breaks the same, or was not put
    to it."""
    shared = [one for one in rest if _class(one) in looks.known]
    untested = [one for one in rest if _class(one) not in looks.known]
    for kind, some in _by_kind(shared):
        text = f"{_said(kind, some, replies)}; so do the off arm's"
        yield _notice(INHERITED, text, {"requests": len({one.request for one in some})})
    for kind, some in _by_kind(untested):
        text = f"{_said(kind, some, replies)}; the off arm has no reply of these tokens"
        yield _notice(UNCONFIRMED, text, {"requests": len({one.request for one in some})})


def _rates(looks: _Looks, rest: Sequence[Look], replies: int) -> tuple[RateTest, ...]:
    """Return the test whether the on arm breaks more of what is no event than the off arm does.

    Of the requests that one arm alone breaks, either has half (McNemar), in each class by itself:
    one that nearly all requests show would hide another. The smallest p-value counts, times the
    number of classes that either arm breaks (Bonferroni; given which requests differ, that number
    is fixed). The off arm is one launch, so that both arms have one reply to each request.
    """
    both = {one.unit for one in looks.on} & {one.unit for one in looks.off}
    theirs = [one for one in looks.off if one.words]
    classes = sorted({_class(one) for one in (*rest, *theirs)})
    tests = []
    for name in classes:
        on, off = ({one.unit for one in many if _class(one) == name} & both
                   for many in (rest, theirs))  # fmt: skip
        tests.append((mcnemar_p_value(len(on - off), len(off - on)), -len(on), name, len(off)))
    if not rest:
        return ()
    own = {_class(one) for one in rest}
    least, on_units, name, off_units = min(test for test in tests if test[2] in own)
    p_value = min(1.0, least * len(classes))
    text = _said(name[0], [one for one in rest if _class(one) == name], replies)
    text += f"; in {-on_units} requests, and in {off_units} on the off arm"
    numbers = {
        "p_value": p_value, "classes": len(classes), "on": -on_units, "off": off_units,
        "check": name[1],
    }  # fmt: skip
    finding = Finding(kind=name[0], severity=Severity.FAULT, text=text, numbers=numbers)
    return (RateTest(p_value, finding),)


def _refusals(
    on: Sequence[Observation], off: Sequence[Observation], broken: Collection[Form]
) -> Testimony:
    """Return a notice for each form that is refused, by the words of an arm that does. INCONCLUSIVE
    is one that the on arm alone refuses, and one of the `broken` that the off arm refuses: there is
    nothing to hold it against."""
    refused = [refused_forms(many) for many in (on, off)]
    found, open_ = [], []
    for form, error in {**refused[1], **refused[0]}.items():
        arms = [arm for arm, many in zip(ARMS, refused, strict=True) if form in many]
        words = f"[{PROBE}] {form} was not compared, refused by {' and '.join(arms)}: {error}"
        if arms == ["on"] or form in broken:
            open_.append(Objection(Verdict.INCONCLUSIVE, words))
        else:
            found.append(_notice(UNASKED, words, {}))
    return Testimony(tuple(found), objections=tuple(open_))


def _coverage(observed: ProbeObserved) -> Testimony:
    """Return how much was put to the test, INCONCLUSIVE where that was nothing."""
    figures = {arm: _figures(observed.answers(arm)) for arm in ARMS}
    theirs = {_tokens(one) for arm in ("off", "null") for one in observed.answers(arm)}
    shared = sum(_tokens(one) in theirs for one in observed.answers("on") if one.error is None)
    on = figures["on"] | {"shared": shared}
    told = Testimony(
        coverage={f"{PROBE}.{name}": value for name, value in on.items()},
        metrics={
            f"{PROBE}/{name}.{arm}": float(value)
            for arm, many in figures.items()
            for name, value in many.items()
        },
    )
    answers = observed.answers("on")
    asked = {unit_of(one).form for one in answers} - set(refused_forms(answers))
    missing = {
        "no stream has the tokens of the reply in one piece": on["compared"] == 0,
        "no reply of the on arm has the tokens of the off arm's": shared == 0,
        "no part of a stream carried several tokens on the on arm": on["several_tokens"] == 0,
        "no tool was called to the end on the on arm": Form.TOOL_REQUIRED in asked
        and on["tool_calls"] == 0,
    }
    blind = [one for one in answers if one.error is None and _lacks_decoded(one)]
    if blind:
        text = f"[{PROBE}] {len(blind)} texts on the on arm were not held against their token ids: "
        told += Testimony((_notice(UNASKED, text + "no detokeniser answers", {}),))
    reasons = [reason for reason, lacks in missing.items() if lacks]
    return told + Testimony(
        objections=tuple(
            Objection(Verdict.INCONCLUSIVE, f"[{PROBE}] {reason}") for reason in reasons
        )
    )


def _lacks_decoded(seen: Observation) -> bool:
    reply = seen.reply
    return reply is not None and reply.decoded is None and not reply.form.has_tools


def _tokens(seen: Observation) -> tuple[str, bytes]:
    return seen.request, seen.token_ids.tobytes()


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
