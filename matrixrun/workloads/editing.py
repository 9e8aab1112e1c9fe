"""Texts that are copied with changes, so that drafts are right for a while and then wrong.

`edits` is prose copied with some words replaced, `code` is code written again with its identifiers
renamed. What was written before proposes the old word at every change, so that a prompt-lookup
drafter, and any drafter that follows the text, is rejected in the middle of a draft: rejections
come about naturally, with every method.
"""

from __future__ import annotations

import re
from random import Random

from matrixrun.workloads.decided import WORDS
from matrixrun.workloads.draws import below, between, choose

NAMES = ("item", "value", "total", "index", "count", "result", "key", "left", "right", "size")
FORMS = (
    "def {f}({a}, {b}):\n    {c} = {a} + {b}\n    return {c} * {a}\n",
    "for {a} in range({b}):\n    if {a} > {c}:\n        {c} = {a}\n",
    "while {a} < {b}:\n    {a} = {a} + {c}\nprint({a}, {b})\n",
    "{a} = [{b}, {c}]\n{b} = {a}[0]\n{c} = {a}[1] - {b}\n",
)


def write_edits(random: Random, words: int, *, chat: bool) -> str:
    """Return lines, each followed by a copy with one word replaced; see `decided.write`."""
    old, new = choose(random, WORDS, 2)
    if chat:
        line = " ".join(_line(random, old))
        return f'Copy this text, but write "{new}" wherever it says "{old}":\n{line}'
    parts: list[str] = []
    while sum(len(part.split()) for part in parts) < words:
        parts.insert(0, _copied(_line(random, old), old, new))
    asked = " ".join(_line(random, old))
    return "".join(parts) + f"Text: {asked}\n{new} for {old}:"


def write_code(random: Random, words: int, *, chat: bool) -> str:
    """Return code, each piece followed by itself with other identifiers; see `decided.write`."""
    if chat:
        piece, renamed = _piece(random)
        pairs = ", ".join(f"{a} to {b}" for a, b in renamed.items())
        return f"Rename {pairs} in this code and write nothing else:\n{piece}"
    parts: list[str] = []
    while sum(len(part.split()) for part in parts) < words:
        piece, renamed = _piece(random)
        parts.insert(0, f"# before\n{piece}# after\n{_renamed(piece, renamed)}")
    piece, _ = _piece(random)
    return "".join(parts) + f"# before\n{piece}# after\n"


def _line(random: Random, old: str) -> list[str]:
    """Return 8 to 14 words, of which every few are `old`."""
    rest = [word for word in WORDS if word != old]
    words = choose(random, rest, between(random, 6, 10))
    for place in (between(random, 1, 2), between(random, 4, 5)):
        words.insert(place, old)
    return words


def _copied(line: list[str], old: str, new: str) -> str:
    changed = [new if word == old else word for word in line]
    return f"Text: {' '.join(line)}\n{new} for {old}: {' '.join(changed)}\n"


def _piece(random: Random) -> tuple[str, dict[str, str]]:
    """Return a piece of code, and new names for some of its identifiers."""
    a, b, c, f, new, other = choose(random, NAMES, 6)
    form = FORMS[below(random, len(FORMS))]
    return form.format(a=a, b=b, c=c, f=f), {a: new, c: other}


def _renamed(piece: str, renamed: dict[str, str]) -> str:
    pattern = re.compile(r"\b(" + "|".join(renamed) + r")\b")
    return pattern.sub(lambda match: renamed[match[0]], piece)
