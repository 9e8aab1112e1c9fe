"""Replies of OpenAI's endpoints put together as their clients do it. Pure.

`/v1/completions` gives a `text`, `/v1/chat/completions` a `message`; streamed they come in parts,
each the `data:` of an event, with a choice's `text` or `delta`. What a part may lack, or give as
null, it lacks; what it may not be (no JSON object, a content that is no text, two choices, an error
in its place) raises Failed.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Annotated, Any

import msgspec
import numpy as np

from matrixrun.engines.http import Failed, parsed_part
from matrixrun.evidence.replies import Ask, Form, Reply, Stream, ToolCall
from matrixrun.evidence.requests import Observation

DATA, DONE = "data:", "[DONE]"
COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
CATEGORY = "surface"
Count = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]


class _Function(msgspec.Struct):
    name: str | None = None
    arguments: str | None = None


class _Call(msgspec.Struct):
    index: int | None = None
    function: _Function | None = None


class _Message(msgspec.Struct):
    # Engines name the part of a message that they took for reasoning in either way.
    content: str | None = None
    reasoning: str | None = None
    reasoning_content: str | None = None
    tool_calls: list[_Call] | None = None


class _Choice(msgspec.Struct):
    text: str | None = None
    message: _Message | None = None
    delta: _Message | None = None
    token_ids: list[Count] | None = None
    finish_reason: str | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None


class _Part(msgspec.Struct):
    choices: list[_Choice] | None = None
    usage: _Usage | None = None


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
    usage: _Usage = field(default_factory=_Usage)
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
        try:
            said = msgspec.convert(part, _Part)
        except msgspec.ValidationError as error:
            words = f"an answer that is none: {error} in {json.dumps(part)[:300]}"
            raise Failed(words) from error
        late = self.dones > 0
        if said.usage is not None and said.usage != _Usage():
            self.usage, self.usages = said.usage, self.usages + 1
        if len(said.choices or ()) > 1:
            raise Failed(f"{len(said.choices or ())} choices in an answer: one was asked for")
        for choice in said.choices or ():
            late |= self._choice(choice) and self.finishes > 0
            if choice.finish_reason:
                self.finish_reason, self.finishes = choice.finish_reason, self.finishes + 1
        self.late += late

    def _choice(self, choice: _Choice) -> bool:
        """Take what a choice says; returns whether it says anything."""
        ids = choice.token_ids or []
        message = choice.delta or choice.message or _Message()
        text = choice.text or message.content or ""
        reasoning = message.reasoning or message.reasoning_content or ""
        calls = message.tool_calls or []
        self.token_ids += ids
        if ids:
            self.tokens.append(len(ids))
        self.text += text
        self.reasoning += reasoning
        for place, call in enumerate(calls):
            index = place if call.index is None else call.index
            self._call(index, call.function or _Function())
        return bool(ids or text or reasoning or calls)

    def _call(self, index: int, function: _Function) -> None:
        name, arguments = self.calls.get(index, ("", ""))
        self.calls[index] = (name + (function.name or ""), arguments + (function.arguments or ""))

    @property
    def emitted(self) -> list[int]:
        """The token ids that a client reads as text: all but one that ended the reply."""
        return self.token_ids[:-1] if self.finish_reason == "stop" else self.token_ids

    def observation(self, *, seconds: float, decoded: str | None) -> Observation:
        """Return the reply that arrived whole `seconds` after sending."""
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
            completion_tokens=self.usage.completion_tokens,
            prompt_tokens=self.usage.prompt_tokens,
            decoded=None if decoded is None else _writable(decoded),
            stream=stream if self.ask.streamed else None,
        )
        return Observation(
            request=self.ask.id,
            prompt=self.ask.prompt,
            category=CATEGORY,
            token_ids=np.asarray(self.token_ids, np.int32),
            prompt_tokens=self.usage.prompt_tokens or 0,
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
