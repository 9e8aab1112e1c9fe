"""What is wrong with replies, by themselves and among those that have the same tokens."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from matrixrun.evidence.replies import Form, Reply, Stream
from matrixrun.evidence.requests import Observation

STREAM, DECODING, TOOL_CALL = "surface-stream", "surface-decoding", "surface-tool-call"
USAGE, FINISH, FAILED = "surface-usage", "surface-finish", "failed-request"
# How clients spell that a request was not taken.
REFUSED = "HTTP 4"
# A character cut off by the end of the answer is written or held back as the engine pleases.
UNFINISHED = "\ufffd"
LENGTH = "length"


class Unit(NamedTuple):
    """What was asked in several ways: one form about one prompt."""

    form: Form
    prompt: str


class Break(NamedTuple):
    """Something wrong: its kind, what was looked at, where, and in words."""

    kind: str
    check: str
    unit: Unit
    request: str
    words: str


def unit_of(seen: Observation) -> Unit:
    """Return what a reply is about."""
    return Unit(_reply(seen).form, seen.prompt)


def is_refused(seen: Observation) -> bool:
    """Return whether the engine did not take the request."""
    return (seen.error or "").startswith(REFUSED)


def breaks_of(seen: Sequence[Observation]) -> tuple[Break, ...]:
    """Return all that is wrong with the replies of one arm. What the engine refuses is no reply."""
    found = [one for reply in seen if not is_refused(reply) for one in _alone(reply)]
    for whole, streamed in pairs(seen):
        found += _together(whole, streamed)
    return tuple(found)


def pairs(seen: Sequence[Observation]) -> list[tuple[Observation, Observation]]:
    """Return the replies that came in one piece, each with the streamed one of the same request and
    the same tokens. Those that differ in a token have other texts, and rightly."""
    answered = [one for one in seen if one.error is None]
    whole = {unit_of(one): one for one in answered if _reply(one).stream is None}
    streamed = {unit_of(one): one for one in answered if _reply(one).stream is not None}
    return [
        (one, streamed[unit])
        for unit, one in whole.items()
        if unit in streamed and np.array_equal(one.token_ids, streamed[unit].token_ids)
    ]


def _alone(seen: Observation) -> Iterator[Break]:
    reply, count = _reply(seen), int(seen.token_ids.size)
    if seen.error is not None:
        yield _break(seen, FAILED, "failed", seen.error.splitlines()[0])
        return
    if reply.completion_tokens != count:
        words = f"{reply.completion_tokens} tokens counted, {count} emitted"
        yield _break(seen, USAGE, "count", words)
    if reply.stream is not None:
        for check, words in _stream(reply.stream):
            yield _break(seen, STREAM, check, words)
    if reply.decoded is not None and not reply.reasoning and not reply.tool_calls:
        mine, theirs = _bare(reply.text), _bare(reply.decoded)
        if mine != theirs:
            kind = DECODING if reply.stream is None else STREAM
            yield _break(seen, kind, "decoded", _differ(mine, theirs, "its token ids say"))
    if reply.form is Form.TOOL_REQUIRED and seen.finish_reason != LENGTH:
        yield from (_break(seen, TOOL_CALL, "json", words) for words in _invalid(reply))


def _stream(stream: Stream) -> Iterator[tuple[str, str]]:
    counts = {
        "end": (stream.dones, "marks of its end"),
        "finish": (stream.finishes, "parts that say why it ended"),
        "usage": (stream.usages, "parts with its usage"),
    }
    for check, (count, what) in counts.items():
        if count != 1:
            yield check, f"{count} {what}, not one"
    if stream.late:
        yield "late", f"{stream.late} parts behind its end"


def _invalid(reply: Reply) -> Iterator[str]:
    if not reply.tool_calls:
        yield "no tool call although one was required"
    for call in reply.tool_calls:
        if not isinstance(_value(call.arguments), dict):
            yield f"arguments that are no JSON object: {call.arguments[:60]!r}"


def _together(whole: Observation, streamed: Observation) -> Iterator[Break]:
    """Return what differs between two replies of the same tokens. One that was cut off inside a
    tool call has that in the stream as far as it came, and in one piece not at all."""
    one, other = _reply(whole), _reply(streamed)
    says = "the reply in one piece has"
    if whole.finish_reason != streamed.finish_reason:
        words = f"{streamed.finish_reason!r}, {says} {whole.finish_reason!r}"
        yield _break(streamed, FINISH, "reason", words)
    if one.prompt_tokens != other.prompt_tokens:
        words = f"{other.prompt_tokens} prompt tokens counted, {says} {one.prompt_tokens}"
        yield _break(streamed, USAGE, "prompt", words)
    if one.form.has_tools and LENGTH in (whole.finish_reason, streamed.finish_reason):
        return
    for check, mine, theirs in (
        ("text", other.text, one.text),
        ("reasoning", other.reasoning, one.reasoning),
    ):
        if mine != theirs:
            yield _break(streamed, STREAM, check, _differ(mine, theirs, says))
    if _calls(one) != _calls(other):
        words = _differ(_spelled(other), _spelled(one), says)
        yield _break(streamed, TOOL_CALL, "calls", words)


def _calls(reply: Reply) -> list[Any]:
    """Return names and arguments, as values where they are JSON: spaces there mean nothing."""
    return [(call.name, _value(call.arguments)) for call in reply.tool_calls]


class _Unreadable(NamedTuple):
    text: str


def _value(arguments: str) -> Any:
    try:
        return json.loads(arguments)
    except ValueError:
        return _Unreadable(arguments)


def _spelled(reply: Reply) -> str:
    return " ".join(f"{call.name}({call.arguments})" for call in reply.tool_calls)


def _bare(text: str) -> str:
    """Return a text without what a detokeniser may leave out at its ends: a first space, which
    some write only behind another word, and an unfinished character."""
    return text.lstrip(" ").rstrip(UNFINISHED)


def _differ(mine: str, theirs: str, says: str) -> str:
    places = (n for n, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b)
    place = next(places, min(len(mine), len(theirs)))
    part = slice(max(0, place - 8), place + 16)
    return f"{mine[part]!r} at character {place}, where {says} {theirs[part]!r}"


def _break(seen: Observation, kind: str, check: str, words: str) -> Break:
    return Break(kind, check, unit_of(seen), seen.request, words)


def _reply(seen: Observation) -> Reply:
    assert seen.reply is not None
    return seen.reply
