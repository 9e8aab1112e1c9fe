"""Faults of the server's front end, where tokens become what a client reads.

What it is given is right, and so is a reply in one piece; with one token at a time streams are too.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .base import Fault


class PieceLost(Fault):
    """A part of a stream that carries several tokens lacks the text of its last one."""

    def piece(self, tokens: list[int], text: str, decode: Callable[[list[int]], str]) -> str:
        last = decode(tokens[-1:])
        if len(tokens) < 2 or not last or not text.endswith(last):
            return text
        self.struck += 1
        return text.removesuffix(last)


class ArgumentsTorn(Fault):
    """Where a part of a stream carries several tokens of a tool call's arguments, the first
    character of what it adds to them is lost."""

    def delta(self, tokens: list[int], text: str, message: Any) -> Any:
        for call in [] if len(tokens) < 2 or message is None else message.tool_calls or []:
            if call.function and call.function.arguments:
                call.function.arguments = call.function.arguments[1:]
                self.struck += 1
        return message


class MarkupLeaked(Fault):
    """Where a part of a stream carries several tokens of a tool call, its text is sent as content
    too."""

    def delta(self, tokens: list[int], text: str, message: Any) -> Any:
        if len(tokens) > 1 and message is not None and message.tool_calls:
            message.content = (message.content or "") + text
            self.struck += 1
        return message


class StopStringMissed(Fault):
    """Of several tokens that come at once, only the last one's text is looked at for the end of a
    stop string: one that ends before it is never seen."""

    def read(
        self,
        original: Callable[[list[int], bool], str | None],
        detokeniser: Any,
        tokens: list[int],
        ended: bool,
    ) -> str | None:
        wanted, before = detokeniser.stop, len(detokeniser.output_text)
        if len(tokens) < 2 or not wanted:
            return original(tokens, ended)
        detokeniser.stop = []
        original(tokens[:-1], False)
        detokeniser.stop = wanted
        text = detokeniser.output_text
        seen = any(one in text[max(0, before - len(one) + 1) :] for one in wanted)
        self.struck += int(seen)
        return original(tokens[-1:], ended)


class TailLost(Fault):
    """Of a stream of which a part had several tokens the last part never comes: it is held back
    where text is put together, and nobody asks for it at the end."""

    def __init__(self, parameters: dict[str, Any], seed: int) -> None:
        super().__init__(parameters, seed)
        self._bundled: set[str] = set()

    def part(self, request: str, tokens: list[int], text: str, last: bool) -> str:
        if len(tokens) > 1:
            self._bundled.add(request)
        if not last or not text or request not in self._bundled:
            return text
        self.struck += 1
        return ""
