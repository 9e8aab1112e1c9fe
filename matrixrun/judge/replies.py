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
# How clients spell that a request was not taken: it lacks something, or asks for too much.
REFUSED = ("HTTP 400:", "HTTP 404:", "HTTP 422:")
# A character cut off by the end of the answer is written or held back as the engine pleases.
UNFINISHED = "\ufffd"
LENGTH = "length"


class Unit(NamedTuple):
    """What was asked in several ways: one form about one prompt."""

    form: Form
    prompt: str


class Look(NamedTuple):
    """One thing looked at in a reply: its kind, what it is, where, and at which tokens (none where
    they do not matter). `words` say what is wrong; they are empty where it is right."""

    kind: str
    check: str
    unit: Unit
    request: str
    tokens: tuple[int, ...]
    words: str


def unit_of(seen: Observation) -> Unit:
    """Return what a reply is about."""
    return Unit(_reply(seen).form, seen.prompt)


def refused_forms(seen: Sequence[Observation]) -> dict[Form, str]:
    """Return the forms of which an arm takes no request at all, with the engine's first words. A
    request that it does not take while it takes others of the form is one that failed."""
    words: dict[Form, list[str]] = {}
    for one in seen:
        words.setdefault(_reply(one).form, []).append(one.error or "")
    return {
        form: said[0]
        for form, said in words.items()
        if all(one.startswith(REFUSED) for one in said)
    }


def looks_of(seen: Sequence[Observation]) -> tuple[Look, ...]:
    """Return all that was looked at in the replies of one launch, right or wrong. Of a form that
    the engine refuses there are none."""
    refused = refused_forms(seen)
    taken = [one for one in seen if _reply(one).form not in refused]
    found = [look for one in taken for look in _alone(one)]
    for whole, streamed in pairs(taken):
        found += _together(whole, streamed)
    return tuple(found)


def pairs(seen: Sequence[Observation]) -> list[tuple[Observation, Observation]]:
    """Return the replies of one launch that came in one piece, each with the streamed one of the
    same request and the same tokens. Those that differ in a token have other texts, and rightly."""
    answered = [one for one in seen if one.error is None]
    whole = {unit_of(one): one for one in answered if _reply(one).stream is None}
    streamed = {unit_of(one): one for one in answered if _reply(one).stream is not None}
    return [
        (one, streamed[unit])
        for unit, one in whole.items()
        if unit in streamed and np.array_equal(one.token_ids, streamed[unit].token_ids)
    ]


def _alone(seen: Observation) -> Iterator[Look]:
    reply, count = _reply(seen), int(seen.token_ids.size)
    words = "" if seen.error is None else seen.error.strip().split("\n")[0] or "without a word"
    yield Look(FAILED, "failed", unit_of(seen), seen.request, (), words)
    if words:
        return
    counted = reply.completion_tokens
    words = f"{counted} tokens counted, {count} emitted" if counted != count else ""
    yield _look(seen, USAGE, "count", words)
    if reply.stream is not None:
        for check, words in _stream(reply.stream):
            yield _look(seen, STREAM, check, words)
    if reply.decoded is not None and not reply.reasoning and not reply.tool_calls:
        kind = DECODING if reply.stream is None else STREAM
        words = _differ(_bare(reply.text), _bare(reply.decoded), "its token ids say")
        yield _look(seen, kind, "decoded", words)
    if reply.form is Form.TOOL_REQUIRED and seen.finish_reason != LENGTH:
        yield _look(seen, TOOL_CALL, "json", next(_invalid(reply), ""))


def _stream(stream: Stream) -> Iterator[tuple[str, str]]:
    counts = {
        "end": (stream.dones, "marks of its end"),
        "finish": (stream.finishes, "parts that say why it ended"),
        "usage": (stream.usages, "parts with its usage"),
    }
    for check, (count, what) in counts.items():
        yield check, f"{count} {what}, not one" if count != 1 else ""
    yield "late", f"{stream.late} parts behind its end" if stream.late else ""


def _invalid(reply: Reply) -> Iterator[str]:
    if not reply.tool_calls:
        yield "no tool call although one was required"
    for call in reply.tool_calls:
        if not isinstance(_value(call.arguments), dict):
            yield f"arguments that are no JSON object: {call.arguments[:60]!r}"


def _together(whole: Observation, streamed: Observation) -> Iterator[Look]:
    """Return what was looked at in two replies of the same tokens. One with tools that the limit
    cut off ends as `length` or with the call that was complete by then, and what there is of a call
    stands in a stream and may lack in one piece: engines do as they please there."""
    one, other = _reply(whole), _reply(streamed)
    says = "the reply in one piece has"
    yield _look(streamed, USAGE, "prompt", _counted(one.prompt_tokens, other.prompt_tokens))
    if one.form.has_tools and LENGTH in (whole.finish_reason, streamed.finish_reason):
        return
    mine, theirs = streamed.finish_reason, whole.finish_reason
    words = f"{mine!r}, {says} {theirs!r}" if mine != theirs else ""
    yield _look(streamed, FINISH, "reason", words)
    yield _look(streamed, STREAM, "text", _differ(other.text, one.text, says))
    yield _look(streamed, STREAM, "reasoning", _differ(other.reasoning, one.reasoning, says))
    same = _calls(one) == _calls(other)
    words = "" if same else _differ(_spelled(other), _spelled(one), says)
    yield _look(streamed, TOOL_CALL, "calls", words)


def _counted(whole: int | None, streamed: int | None) -> str:
    if whole == streamed:
        return ""
    return f"{streamed} prompt tokens counted, the reply in one piece has {whole}"


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
    """Return where two texts differ, nothing where they do not."""
    if mine == theirs:
        return ""
    places = (n for n, (a, b) in enumerate(zip(mine, theirs, strict=False)) if a != b)
    place = next(places, min(len(mine), len(theirs)))
    part = slice(max(0, place - 8), place + 16)
    return f"{mine[part]!r} at character {place}, where {says} {theirs[part]!r}"


def _look(seen: Observation, kind: str, check: str, words: str) -> Look:
    tokens = tuple(seen.token_ids.tolist())
    return Look(kind, check, unit_of(seen), seen.request, tokens, words)


def _reply(seen: Observation) -> Reply:
    assert seen.reply is not None
    return seen.reply
