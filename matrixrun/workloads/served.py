"""A tokenizer that answers from elsewhere: a running engine that read it out of a checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from matrixrun.workloads.tokenizer import Tokenizer


class Source(Protocol):
    """What is needed of it; `special` are texts by name (`bos_token`, `eos_token`)."""

    name: str
    vocabulary_size: int
    prefix: tuple[int, ...]
    chat_template: str | None
    special: dict[str, str]

    def encode(self, text: str) -> tuple[int, ...]:
        """Return the ids of `text` alone."""
        ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of `token_ids`."""
        ...


class ServedTokenizer(Tokenizer):
    """A Tokenizer over a `Source`; chat templates are rendered here, as for other checkpoints."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._special = dict(source.special)
        self.name = source.name
        self.chat_template = source.chat_template
        self.vocabulary_size = source.vocabulary_size
        self.prefix = source.prefix

    def encode(self, text: str) -> tuple[int, ...]:
        """Return the ids of `text` alone, with nothing put before or after it."""
        return self._source.encode(text)

    def decode(self, token_ids: Sequence[int]) -> str:
        """Return the text of `token_ids`, special tokens included."""
        return self._source.decode(token_ids)
