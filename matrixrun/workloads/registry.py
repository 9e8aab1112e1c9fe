"""The workloads by name. A new one is a file with a `write` function and a line here."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from random import Random
from typing import Protocol

from matrixrun.evidence.errors import UserError
from matrixrun.workloads import decided, editing, known, natural, turns


class Writer(Protocol):
    """Writes one text; the same `random` state gives the same text."""

    def __call__(self, random: Random, words: int, *, chat: bool) -> str: ...


WRITERS: dict[str, Writer] = {
    "decided": decided.write,
    "natural": natural.write,
    "chat": turns.write,
    "edits": editing.write_edits,
    "code": editing.write_code,
    "known": known.write,
}
KNOWN = frozenset({"known"})
"""Workloads whose prompts have known answers."""

CONVERSATIONS = frozenset({"chat"})
"""Workloads whose prompts open a conversation."""


def names() -> tuple[str, ...]:
    """Return the names that `workload.categories` may hold."""
    return tuple(WRITERS)


def check_categories(categories: Iterable[str]) -> None:
    """Raise UserError if a category is not a workload, or if there is none."""
    given = tuple(categories)
    if not given:
        raise UserError(
            "workload.categories: the list is empty", remedy=f"name some of: {', '.join(WRITERS)}"
        )
    for name in given:
        if name not in WRITERS:
            close = difflib.get_close_matches(name, WRITERS, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(WRITERS)}"
            raise UserError(f"workload.categories: there is no workload {name!r}", remedy=hint)
