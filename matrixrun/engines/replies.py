"""Replies of OpenAI's endpoints put together as their clients do it. Pure.

`/v1/completions` gives a `text`, `/v1/chat/completions` a `message`; streamed they come in parts,
each the `data:` of an event, with a choice's `text` or `delta`. What a part may lack it lacks; what
it may not be (no JSON object, two choices, an error in its place) raises Failed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from matrixrun.engines.http import Failed, parsed_part
from matrixrun.evidence.replies import Ask, Form, Reply, Stream, ToolCall
from matrixrun.evidence.requests import Observation

DATA, DONE = "data:", "[DONE]"
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
CATEGORY = "surface"
# Engines name the part of a message that they took for reasoning in either way.
REASONING = ("reasoning", "reasoning_content")


def path_of(form: Form) -> str:
    """Return the endpoint that answers a form."""
    return COMPLETIONS if form is Form.COMPLETION else CHAT


def question(ask: Ask) -> dict[str, Any]:
    """Return what every engine takes of a request, its sampling aside."""
    body: dict[str, Any] = {"stream": ask.streamed, "max_tokens": ask.max_tokens, "n": 1}
    if ask.streamed:
        body["stream_options"] = {"include_usage": True}
    if ask.form is Form.COMPLETION:
        return body | {"prompt": list(ask.token_ids)}
    body["messages"] = [{"role": "user", "content": ask.message}]
    if ask.tool is not None:
        function = {
            "name": ask.tool.name,
            "description": ask.tool.description,
            "parameters": json.loads(ask.tool.parameters),
            "strict": True,
        }
        body["tools"] = [{"type": "function", "function": function}]
        required = ask.form is Form.TOOL_REQUIRED
        body["tool_choice"] = "required" if required else "auto"
        body["parallel_tool_calls"] = False
    return body


@dataclass
class Parts:
    """A reply in the making, of one part or of many."""

    ask: Ask
    text: str = ""
    reasoning: str = ""
    calls: dict[int, tuple[str, str]] = field(default_factory=dict)
    token_ids: list[int] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    usage: Mapping[str, Any] | None = None
    finish_reason: str | None = None
    finishes: int = 0
    usages: int = 0
    dones: int = 0
    late: int = 0

    def line(self, line: str) -> None:
        """Take a line of the stream; those that are no event's data mean nothing."""
        if not line.startswith(DATA):
            return
        data = line.removeprefix(DATA).strip()
        if data == DONE:
            self.dones += 1
            return
        self.add(parsed_part(data))

    def add(self, part: Any) -> None:
        """Take one part, or the whole reply in one."""
        if not isinstance(part, dict) or "error" in part:
            raise Failed(f"an error in the place of an answer: {json.dumps(part)[:300]}")
        late = self.dones > 0
        if part.get("usage"):
            self.usage, self.usages = part["usage"], self.usages + 1
        choices = part.get("choices") or []
        if not isinstance(choices, list) or len(choices) > 1:
            raise Failed(f"{len(choices)} choices in an answer: one was asked for")
        for choice in choices:
            said = self._choice(choice)
            late |= said and self.finishes > 0
            if choice.get("finish_reason"):
                self.finish_reason, self.finishes = choice["finish_reason"], self.finishes + 1
        self.late += late

    def _choice(self, choice: Mapping[str, Any]) -> bool:
        """Take what a choice says; returns whether it says anything."""
        ids = choice.get("token_ids") or []
        message = choice.get("delta") or choice.get("message") or {}
        text = choice.get("text") or message.get("content") or ""
        reasoning = next((message[key] for key in REASONING if message.get(key)), "")
        calls = message.get("tool_calls") or []
        self.token_ids += ids
        if ids:
            self.tokens.append(len(ids))
        self.text += text
        self.reasoning += reasoning
        for place, call in enumerate(calls):
            self._call(call.get("index", place), call.get("function") or {})
        return bool(ids or text or reasoning or calls)

    def _call(self, index: int, function: Mapping[str, Any]) -> None:
        name, arguments = self.calls.get(index, ("", ""))
        name += function.get("name") or ""
        self.calls[index] = (name, arguments + (function.get("arguments") or ""))

    @property
    def emitted(self) -> list[int]:
        """The token ids that a client reads as text: all but one that ended the reply."""
        return self.token_ids[:-1] if self.finish_reason == "stop" else self.token_ids

    def observation(self, *, seconds: float, decoded: str | None) -> Observation:
        """Return the reply that arrived whole `seconds` after sending."""
        usage = self.usage or {}
        stream = Stream(
            tokens=tuple(self.tokens), finishes=self.finishes, usages=self.usages,
            dones=self.dones, late=self.late,
        )  # fmt: skip
        reply = Reply(
            form=self.ask.form,
            text=_writable(self.text),
            reasoning=_writable(self.reasoning),
            tool_calls=tuple(
                ToolCall(name=_writable(name), arguments=_writable(arguments))
                for _, (name, arguments) in sorted(self.calls.items())
            ),
            completion_tokens=usage.get("completion_tokens"),
            prompt_tokens=usage.get("prompt_tokens"),
            decoded=None if decoded is None else _writable(decoded),
            stream=stream if self.ask.streamed else None,
        )
        return Observation(
            request=self.ask.id,
            prompt=self.ask.prompt,
            category=CATEGORY,
            token_ids=np.asarray(self.token_ids, np.int32),
            prompt_tokens=usage.get("prompt_tokens") or 0,
            finish_reason=self.finish_reason,
            finished=seconds,
            reply=reply,
        )


def failed(ask: Ask, *, seconds: float, error: str) -> Observation:
    """Return what is left of a request that failed after `seconds`; its form stays known."""
    return Observation(
        request=ask.id,
        prompt=ask.prompt,
        category=CATEGORY,
        finished=seconds,
        error=error,
        reply=Reply(form=ask.form, stream=Stream() if ask.streamed else None),
    )


def _writable(text: str) -> str:
    """Halves of surrogate pairs, which JSON can hold and UTF-8 cannot, are kept as \\udXXX."""
    return text.encode("utf-8", "backslashreplace").decode()
