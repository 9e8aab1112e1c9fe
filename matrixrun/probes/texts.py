"""Prompts of any length out of a workload's texts, the same on every launch."""

from __future__ import annotations

import re
import zlib
from collections import Counter
from collections.abc import Iterable

from matrixrun.workloads import Prompt, Workload

# Tokens that are frequent in the texts, so that answers are likely to reach one.
STOP_TOKENS = 5
# Strings that are frequent in them, so short that answers reach one, and often in two tokens.
STOP_STRINGS = 3
PAIR = re.compile(r"(?=(\S\S))")


class Texts:
    """Pieces of a workload's prompts, laid end to end."""

    def __init__(self, workload: Workload) -> None:
        self._stream = [token for prompt in workload.prompts for token in prompt.token_ids]

    def piece(self, name: str, length: int) -> tuple[int, ...]:
        """Return `length` tokens from a place that the name decides, whatever else is sent."""
        stream, start = self._stream, zlib.crc32(name.encode())
        return tuple(stream[(start + place) % len(stream)] for place in range(length))

    @property
    def size(self) -> int:
        """The number of tokens there are."""
        return len(self._stream)


def stop_tokens(texts: Iterable[tuple[int, ...]]) -> tuple[int, ...]:
    """Return the tokens that are most frequent in texts."""
    found: Counter[int] = Counter()
    for text in texts:
        found.update(text)
    ordered = sorted(found, key=lambda token: (-found[token], token))
    return tuple(ordered[:STOP_TOKENS])


def stop_strings(prompts: Iterable[Prompt]) -> tuple[str, ...]:
    """Return the pairs of characters that most texts of prompts hold; none where the text of a
    prompt is not known."""
    found: Counter[str] = Counter()
    for prompt in prompts:
        if prompt.text is None:
            return ()
        found.update(set(PAIR.findall(prompt.text)))
    return tuple(sorted(found, key=lambda pair: (-found[pair], pair))[:STOP_STRINGS])
