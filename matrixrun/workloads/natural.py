"""`natural`: English prose that every Python ships, cut at random places.

It is the language reference behind `help()`. It changes with Python's minor version, and the
prompts with it; a sweep keeps its prompts, so resuming under another Python sends the same ones.
"""

from __future__ import annotations

import functools
import re
from random import Random

from matrixrun.workloads.draws import below, generator

_UNDERLINE = re.compile(r"^[*=~^-]{4,}$", re.MULTILINE)


@functools.cache
def _text() -> str:
    """Return the whole text: paragraphs on one line each, code as it stands."""
    from pydoc_data.topics import topics

    whole = "\n\n".join(topics[name] for name in sorted(topics))
    paragraphs = _UNDERLINE.sub("", whole).split("\n\n")
    lines = (p.rstrip() if p.startswith("   ") else " ".join(p.split()) for p in paragraphs)
    return "\n".join(line for line in lines if line)


@functools.cache
def _words() -> tuple[int, ...]:
    """Return where each word of the text starts, in characters."""
    return tuple(match.start() for match in re.finditer(r"\S+", _text()))


def write(random: Random, words: int, *, chat: bool) -> str:
    """Return about `words` successive words of the text, from a random one on.

    Args:
        random: where the start comes from.
        words: how many words.
        chat: whether the text is a message to an assistant rather than a text to continue.
    """
    starts = _words()
    words = min(words, len(starts) - 2)
    first = below(random, len(starts) - words - 1)
    excerpt = _text()[starts[first] : starts[first + words]].rstrip()
    return f"Continue this text in the same style:\n\n{excerpt}" if chat else excerpt


def message(key: tuple[object, ...], words: int) -> str:
    """Return what a user might say about so many words of the text; a key has its own words."""
    return write(generator(*key), words, chat=True)
