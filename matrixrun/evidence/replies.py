"""What is asked of an engine's public endpoints, as a user's program asks it, and what comes back.

Other requests send token ids and take token ids. These take everything that a client reads: pieces
of a stream, texts, tool calls, usage counts, the reason why it ended.
"""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Form(StrEnum):
    """What is asked for: a prompt of token ids to be continued; a message to be answered; the same
    with a tool that must be called, or may be."""

    COMPLETION = "completion"
    CHAT = "chat"
    TOOL_REQUIRED = "tool-required"
    TOOL_AUTO = "tool-auto"

    @property
    def has_tools(self) -> bool:
        """Whether the request offers a tool."""
        return self in (Form.TOOL_REQUIRED, Form.TOOL_AUTO)


class Tool(msgspec.Struct, frozen=True, kw_only=True):
    """A tool that is offered: `parameters` is the JSON schema of its arguments, as JSON."""

    name: str
    description: str
    parameters: str


class Ask(msgspec.Struct, frozen=True, kw_only=True):
    """One request, greedy: `token_ids` are a completion's prompt, `message` is what a user says in
    the other forms. `prompt` names what is asked about, the unit of statistics."""

    id: str
    prompt: str
    form: Form
    streamed: bool
    max_tokens: int
    token_ids: tuple[int, ...] = ()
    message: str = ""
    tool: Tool | None = None
    seed: int | None = 0


class ToolCall(msgspec.Struct, frozen=True, kw_only=True):
    """A tool call as its client has it in the end: the name, and the arguments' JSON."""

    name: str
    arguments: str


class Stream(msgspec.Struct, frozen=True, kw_only=True):
    """How a streamed reply came: the tokens of each part (empty where the engine does not tell);
    how many parts gave a reason for the end, and how many the usage; how often the end of the
    stream was marked; and how many parts came after the reason for the end that say more than the
    usage, or after the mark."""

    tokens: tuple[int, ...] = ()
    finishes: int = 0
    usages: int = 0
    dones: int = 0
    late: int = 0


class Reply(msgspec.Struct, frozen=True, kw_only=True):
    """A reply put together as a client does it, beside the token ids in its Observation.

    `text` and `reasoning` are the whole ones. `completion_tokens` and `prompt_tokens` are the usage
    counts, None where none came. `decoded` is what the engine's own detokeniser makes of the
    reply's token ids, less the one that ended it; None where that was not asked. `stream` is None
    where the reply came in one piece.
    """

    form: Form
    text: str = ""
    reasoning: str = ""
    tool_calls: tuple[ToolCall, ...] = ()
    completion_tokens: int | None = None
    prompt_tokens: int | None = None
    decoded: str | None = None
    stream: Stream | None = None
