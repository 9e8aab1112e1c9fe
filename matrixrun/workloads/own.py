"""The user's own prompts: a JSONL file, one prompt a line.

A line is one of

- `{"prompt": "..."}`;
- `{"token_ids": [...]}`;
- `{"conversations": [...]}`, as ShareGPT has it: turns of `from` and `value`, or of `role` and
  `content`; everything up to the last turn of the user is sent;
- `{"turns": ["...", "..."]}`, as Spec-Bench and MT-Bench have it: the user's turns alone. The first
  is the prompt, the further ones are its follow-ups.

`"category"` beside it names the prompt's category.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from matrixrun.evidence.errors import UserError
from matrixrun.matrix.schema import WorkloadSpec
from matrixrun.workloads import turns
from matrixrun.workloads.prompts import Prompt
from matrixrun.workloads.tokenizer import Tokenizer

CATEGORY = "own"
_TURNS = 'write {"conversations": [{"from": "human", "value": "..."}]}'
KEYS = ("prompt", "token_ids", "conversations", "turns")
ROLES = {"human": "user", "gpt": "assistant", "user": "user", "assistant": "assistant",
         "system": "system", "chatgpt": "assistant", "bard": "assistant"}  # fmt: skip


@dataclass(frozen=True)
class _Line:
    """A line as it is before any tokenizer: ids, or a text, or the messages of a chat."""

    where: str
    category: str
    token_ids: tuple[int, ...] | None = None
    text: str | None = None
    messages: tuple[tuple[str, str], ...] = ()
    further: tuple[str, ...] = ()

    @property
    def content(self) -> tuple[Any, ...]:
        """What makes two lines the same prompt with every tokenizer."""
        return (self.token_ids, self.text, self.messages)


def read(spec: WorkloadSpec, tokenizer: Tokenizer, *, vocabulary_size: int) -> tuple[Prompt, ...]:
    """Return the first `spec.prompts` different prompts of the file at `spec.path`.

    No prompt is cut: one longer than `spec.prompt_tokens` allows is an error.

    Raises:
        UserError: the file or a line of it is not usable, or holds too few different prompts.
    """
    prompts: dict[tuple[int, ...], Prompt] = {}
    for line in _lines(spec):
        token_ids, text = _tokens(line, spec, tokenizer)
        _check_length(token_ids, line.where, spec)
        _check_vocabulary(token_ids, line.where, vocabulary_size)
        if token_ids not in prompts:
            prompts[token_ids] = Prompt(
                id=f"{CATEGORY}-{len(prompts):04d}",
                category=line.category,
                token_ids=token_ids,
                text=text,
                follow_ups=_follow_ups(line, spec, tokenizer),
            )
        if len(prompts) == spec.prompts:
            return tuple(prompts.values())
    raise _too_few(spec, len(prompts))


@dataclass(frozen=True)
class Survey:
    """What a file of prompts holds: how many are used, how many different ones there are (as far
    as it can be read), and what is wrong behind those that are used."""

    used: int
    different: int
    trouble: UserError | None = None


def check_file(spec: WorkloadSpec) -> Survey:
    """Look at the lines that `read` would read, as far as that needs no tokenizer, and at those
    behind them. Where the matrix does not say how many prompts, it is all of them, up to the
    default.

    Raises:
        UserError: as `read` does; what is refused here is refused there with every tokenizer.
    """
    different: set[tuple[Any, ...]] = set()
    trouble = None
    try:
        for line in _lines(spec):
            if line.token_ids is not None and len(different) < spec.prompts:
                _check_length(line.token_ids, line.where, spec)
            different.add(line.content)
    except UserError as error:
        if len(different) < spec.prompts:
            raise
        trouble = error
    used = min(len(different), spec.prompts)
    if used == 0 or (used < spec.prompts and "prompts" in spec.model_fields_set):
        raise _too_few(spec, len(different))
    return Survey(used, len(different), trouble)


def _too_few(spec: WorkloadSpec, found: int) -> UserError:
    if not found:
        return UserError(
            f"{_path(spec)}: holds no prompt", remedy='write one a line: {"prompt": "..."}'
        )
    return UserError(
        f"{_path(spec)}: holds {found} different prompts; workload.prompts asks for {spec.prompts}",
        remedy=f"add prompts, write `prompts: {found}`, or leave `prompts` out: all are used then",
    )


def _path(spec: WorkloadSpec) -> Path:
    return Path(spec.path or "").expanduser()


def _lines(spec: WorkloadSpec) -> Iterator[_Line]:
    path = _path(spec)
    for number, entry in _entries(path):
        yield _line(entry, f"{path}:{number}")


def _entries(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield line number and object of each line that is not blank."""
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(
            f"workload.path: {path} cannot be read: {error}",
            remedy="give a JSONL file (relative to the matrix file's folder)",
        ) from error
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except ValueError as error:
            raise UserError(
                f"{path}:{number}: not JSON: {error}", remedy="write one JSON object a line"
            ) from error
        if not isinstance(entry, dict):
            raise UserError(
                f"{path}:{number}: {type(entry).__name__} instead of an object",
                remedy='write {"prompt": "..."}',
            )
        try:
            json.dumps(entry, ensure_ascii=False).encode()
        except UnicodeEncodeError as error:
            raise UserError(
                f"{path}:{number}: holds half of a character ({error.object[error.start]!a})",
                remedy="write the character itself, or both of its halves",
            ) from error
        yield number, entry


def _line(entry: dict[str, Any], where: str) -> _Line:
    present = [key for key in KEYS if key in entry]
    if len(present) != 1:
        raise UserError(
            f"{where}: needs exactly one of {', '.join(KEYS)}; has {', '.join(entry) or 'nothing'}",
            remedy='write {"prompt": "..."}',
        )
    key, value = present[0], entry[present[0]]
    category = _category(entry, where)
    if key == "token_ids":
        if not isinstance(value, list) or any(type(item) is not int for item in value):
            raise UserError(
                f"{where}: token_ids must be a list of integers",
                remedy='write {"token_ids": [1, 2, 3]}',
            )
        return _Line(where, category, token_ids=tuple(value))
    if key == "conversations":
        return _Line(where, category, messages=_messages(value, where))
    if key == "turns":
        first, *further = _turns(value, where)
        return _Line(where, category, text=first, further=tuple(further))
    if not isinstance(value, str) or not value:
        raise UserError(
            f"{where}: prompt must be a text that is not empty",
            remedy="write the prompt, or remove the line",
        )
    return _Line(where, category, text=value)


def _tokens(
    line: _Line, spec: WorkloadSpec, tokenizer: Tokenizer
) -> tuple[tuple[int, ...], str | None]:
    """Return the ids to send for a line and the text they stand for."""
    if line.token_ids is not None:
        return line.token_ids, None
    messages = line.messages
    if line.text is not None:
        if not _chat(spec, tokenizer):
            return tokenizer.prefix + tokenizer.encode(line.text), line.text
        messages = (("user", line.text),)
    text = tokenizer.render([{"role": role, "content": content} for role, content in messages])
    return tokenizer.encode(text), text


def _chat(spec: WorkloadSpec, tokenizer: Tokenizer) -> bool:
    return spec.chat if spec.chat is not None else tokenizer.chat_template is not None


def _category(entry: dict[str, Any], where: str) -> str:
    value = entry.get("category", CATEGORY)
    if not isinstance(value, str) or not value:
        raise UserError(
            f"{where}: category must be a text that is not empty",
            remedy="write a name, or remove `category`",
        )
    return value


def _turns(value: Any, where: str) -> list[str]:
    """Return the user's turns, as texts that are not empty."""
    good = isinstance(value, list) and value and all(isinstance(t, str) and t for t in value)
    if not good:
        raise UserError(
            f"{where}: turns must be a list of texts that are not empty",
            remedy='write {"turns": ["...", "..."]}',
        )
    return list(value)


def _follow_ups(
    line: _Line, spec: WorkloadSpec, tokenizer: Tokenizer
) -> tuple[tuple[int, ...], ...]:
    """Return the ids of the user's further turns."""
    chat = _chat(spec, tokenizer)
    return tuple(turns.between_answers(tokenizer, question, chat=chat) for question in line.further)


def _messages(given: Any, where: str) -> tuple[tuple[str, str], ...]:
    """Return the turns as role and content, up to the last one of the user."""
    if not isinstance(given, list) or not given:
        raise UserError(f"{where}: conversations must be a list of turns", remedy=_TURNS)
    messages = [_message(turn, f"{where}: conversations[{i}]") for i, turn in enumerate(given)]
    while messages and messages[-1][0] != "user":
        messages.pop()
    if not messages:
        raise UserError(f"{where}: conversations holds no turn of the user", remedy=_TURNS)
    return tuple(messages)


def _message(turn: Any, where: str) -> tuple[str, str]:
    if not isinstance(turn, dict):
        raise UserError(f"{where}: must be an object", remedy=_TURNS)
    sender = turn.get("from", turn.get("role"))
    content = turn.get("value", turn.get("content"))
    if sender not in ROLES:
        raise UserError(
            f"{where}: from {sender!r} is not known", remedy=f"one of {', '.join(ROLES)}"
        )
    if not isinstance(content, str):
        raise UserError(f"{where}: needs `value`, a text", remedy=_TURNS)
    return ROLES[sender], content


def _check_length(token_ids: tuple[int, ...], where: str, spec: WorkloadSpec) -> None:
    most = spec.prompt_tokens[1]
    if not token_ids:
        raise UserError(
            f"{where}: the prompt has no tokens", remedy="write the prompt, or remove the line"
        )
    if len(token_ids) > most:
        raise UserError(
            f"{where}: {len(token_ids)} tokens; workload.prompt_tokens allows {most}",
            remedy=f"write `prompt_tokens: [{spec.prompt_tokens[0]}, {len(token_ids)}]` or more",
        )


def _check_vocabulary(token_ids: tuple[int, ...], where: str, vocabulary_size: int) -> None:
    outside = next((t for t in token_ids if not 0 <= t < vocabulary_size), None)
    if outside is not None:
        raise UserError(
            f"{where}: token id {outside} is outside the vocabulary of {vocabulary_size}",
            remedy="make the ids with the target's own tokenizer",
        )
