"""What is wrong in a matrix file, and where: problems are collected, then raised as one error."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from matrixrun.evidence.errors import MatrixError

Key = tuple[str | int, ...]

MAX_SHOWN = 10
"""Problems shown in one message: enough to repair a file in one go, short enough to read."""


@dataclass(frozen=True)
class Problem:
    """One mistake: the key path it stands at, what is wrong, and what to do about it."""

    key: Key
    message: str
    remedy: str | None = None


class Remedied(ValueError):
    """A value that a field's own check turns down, with what to write instead."""

    def __init__(self, message: str, remedy: str) -> None:
        self.remedy = remedy
        super().__init__(message)


class Invalid(Exception):
    """Carries one problem out of a function that reads a single value."""

    def __init__(self, problem: Problem) -> None:
        self.problem = problem
        super().__init__(problem.message)


@dataclass(frozen=True)
class Positions:
    """Lines (1-based) of every key and item of a file, by key path."""

    lines: dict[Key, int] = field(default_factory=dict)

    def line(self, key: Key) -> int | None:
        """The line of `key`, or of the nearest thing around it that stands in the file."""
        for end in range(len(key), -1, -1):
            line = self.lines.get(key[:end])
            if line is not None:
                return line
        return None


class MatrixErrors(MatrixError):
    """Several mistakes in one file. File, line, key and remedy are the first one's; `problems`
    holds every one of them, and the text lists the first ten."""

    def __init__(self, problems: Sequence[MatrixError]) -> None:
        first = problems[0]
        self.problems = tuple(problems)
        super().__init__(first.file, first.line, first.key, first.message, remedy=first.remedy)

    def __str__(self) -> str:
        shown = [str(problem) for problem in self.problems[:MAX_SHOWN]]
        left = len(self.problems) - len(shown)
        more = [f"... and {left} more"] if left > 0 else []
        return "\n".join([*shown, *more])


def key_text(key: Key) -> str:
    """`("grid", "speculation", 0, "method")` as `grid.speculation[0].method`."""
    text = ""
    for part in key:
        if isinstance(part, int):
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


def error_at(
    file: str, positions: Positions, key: Key, message: str, remedy: str | None = None
) -> MatrixError:
    """The error for one mistake at `key`."""
    return MatrixError(file, positions.line(key), key_text(key), message, remedy=remedy)


def raise_problems(file: str, positions: Positions, problems: Sequence[Problem]) -> None:
    """Raise what was found, in the order of the file; return if nothing was.

    Raises:
        MatrixError: for one problem; `MatrixErrors` for several.
    """
    if not problems:
        return
    errors = [error_at(file, positions, p.key, p.message, p.remedy) for p in problems]
    errors.sort(key=lambda error: error.line or 0)
    raise errors[0] if len(errors) == 1 else MatrixErrors(errors)


def closest(word: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """The known word most like `word`, or None if none is like it."""
    names = sorted(known)
    found = difflib.get_close_matches(word.lower(), [name.lower() for name in names], 1, cutoff)
    return next((name for name in names if name.lower() == found[0]), None) if found else None


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A remedy for a word that is not known: the most similar one, else the list of all."""
    names = sorted(known)
    match = closest(word, names)
    if match is not None:
        return f"did you mean `{match}`?"
    return f"known are: {', '.join(names)}" if names else "there is none to choose from"


def described(value: Any) -> str:
    """A value as a message names it: `the text 'on'`, `the number 1.5`, `true`, `a list`."""
    if value is None:
        return "empty"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return f"the number {value}"
    if isinstance(value, str):
        return f"the text {value[:60]!r}"
    return "a mapping" if isinstance(value, dict) else "a list"
