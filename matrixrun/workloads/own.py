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
from pathlib import Path
from typing import Any

from matrixrun.evidence.errors import UserError
from matrixrun.matrix.schema import WorkloadSpec
from matrixrun.workloads import turns
from matrixrun.workloads.prompts import Prompt
from matrixrun.workloads.tokenizer import Tokenizer

CATEGORY = "own"
KEYS = ("prompt", "token_ids", "conversations", "turns")
ROLES = {"human": "user", "gpt": "assistant", "user": "user", "assistant": "assistant",
         "system": "system", "chatgpt": "assistant", "bard": "assistant"}  # fmt: skip


def read(spec: WorkloadSpec, tokenizer: Tokenizer, *, vocabulary_size: int) -> tuple[Prompt, ...]:
    """Return the first `spec.prompts` different prompts of the file at `spec.path`.

    No prompt is cut: one longer than `spec.prompt_tokens` allows is an error.

    Raises:
        UserError: the file or a line of it is not usable, or holds too few different prompts.
    """
    path = Path(spec.path or "").expanduser()
    prompts: dict[tuple[int, ...], Prompt] = {}
    for number, entry in _entries(path):
        where = f"{path}:{number}"
        token_ids, text = _tokens(entry, where, spec, tokenizer)
        _check(token_ids, where, spec, vocabulary_size)
        if token_ids not in prompts:
            prompts[token_ids] = Prompt(
                id=f"{CATEGORY}-{len(prompts):04d}",
                category=_category(entry, where),
                token_ids=token_ids,
                text=text,
                follow_ups=_follow_ups(entry, where, spec, tokenizer),
            )
        if len(prompts) == spec.prompts:
            return tuple(prompts.values())
    raise UserError(
        f"{path}: holds {len(prompts)} different prompts; workload.prompts asks for {spec.prompts}",
        remedy=f"add prompts or write `prompts: {max(1, len(prompts))}`",
    )


def _entries(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Yield line number and object of each line that is not blank."""
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
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
        yield number, entry


def _tokens(
    entry: dict[str, Any], where: str, spec: WorkloadSpec, tokenizer: Tokenizer
) -> tuple[tuple[int, ...], str | None]:
    """Return the ids to send for `entry` and the text they stand for."""
    present = [key for key in KEYS if key in entry]
    if len(present) != 1:
        raise UserError(
            f"{where}: needs exactly one of {', '.join(KEYS)}; has {', '.join(entry) or 'nothing'}",
            remedy='write {"prompt": "..."}',
        )
    value = entry[present[0]]
    if present[0] == "token_ids":
        if not isinstance(value, list) or any(type(item) is not int for item in value):
            raise UserError(f"{where}: token_ids must be a list of integers")
        return tuple(value), None
    if present[0] == "conversations":
        text = tokenizer.render(_messages(value, where))
        return tokenizer.encode(text), text
    if present[0] == "turns":
        value = _turns(value, where)[0]
    if not isinstance(value, str) or not value:
        raise UserError(f"{where}: prompt must be a text that is not empty")
    if _chat(spec, tokenizer):
        text = tokenizer.render([{"role": "user", "content": value}])
        return tokenizer.encode(text), text
    return tokenizer.prefix + tokenizer.encode(value), value


def _chat(spec: WorkloadSpec, tokenizer: Tokenizer) -> bool:
    return spec.chat if spec.chat is not None else tokenizer.chat_template is not None


def _category(entry: dict[str, Any], where: str) -> str:
    value = entry.get("category", CATEGORY)
    if not isinstance(value, str) or not value:
        raise UserError(f"{where}: category must be a text that is not empty")
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
    entry: dict[str, Any], where: str, spec: WorkloadSpec, tokenizer: Tokenizer
) -> tuple[tuple[int, ...], ...]:
    """Return the ids of the user's further turns."""
    if "turns" not in entry:
        return ()
    further = _turns(entry["turns"], where)[1:]
    chat = _chat(spec, tokenizer)
    return tuple(turns.between_answers(tokenizer, question, chat=chat) for question in further)


def _messages(given: Any, where: str) -> list[dict[str, str]]:
    """Return the turns as chat messages, up to the last one of the user."""
    if not isinstance(given, list) or not given:
        raise UserError(f"{where}: conversations must be a list of turns")
    messages = [_message(turn, f"{where}: conversations[{i}]") for i, turn in enumerate(given)]
    while messages and messages[-1]["role"] != "user":
        messages.pop()
    if not messages:
        raise UserError(f"{where}: conversations holds no turn of the user")
    return messages


def _message(turn: Any, where: str) -> dict[str, str]:
    if not isinstance(turn, dict):
        raise UserError(f"{where}: must be an object")
    sender = turn.get("from", turn.get("role"))
    content = turn.get("value", turn.get("content"))
    if sender not in ROLES:
        raise UserError(
            f"{where}: from {sender!r} is not known", remedy=f"one of {', '.join(ROLES)}"
        )
    if not isinstance(content, str):
        raise UserError(f"{where}: needs `value`, a text")
    return {"role": ROLES[sender], "content": content}


def _check(
    token_ids: tuple[int, ...], where: str, spec: WorkloadSpec, vocabulary_size: int
) -> None:
    most = spec.prompt_tokens[1]
    if not token_ids:
        raise UserError(f"{where}: the prompt has no tokens")
    if len(token_ids) > most:
        raise UserError(
            f"{where}: {len(token_ids)} tokens; workload.prompt_tokens allows {most}",
            remedy=f"write `prompt_tokens: [{spec.prompt_tokens[0]}, {len(token_ids)}]` or more",
        )
    outside = next((t for t in token_ids if not 0 <= t < vocabulary_size), None)
    if outside is not None:
        raise UserError(
            f"{where}: token id {outside} is outside the vocabulary of {vocabulary_size}",
            remedy="make the ids with the target's own tokenizer",
        )
