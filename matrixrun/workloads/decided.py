"""`decided`: texts whose continuation leaves no choice, so that margins are wide.

A fork on such a prompt is an event, since no rounding error turns a margin of nats. Every text is
longest at its front: what is cut off to reach a length is the oldest repetition.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from matrixrun.workloads.draws import below, between, choose

# Short and frequent, so that most vocabularies hold each as one token or two.
WORDS = (
    "red", "green", "blue", "one", "two", "three", "sun", "moon", "star", "tree", "stone",
    "river", "north", "south", "east", "west", "cat", "dog", "bird", "fish", "bread", "salt",
    "door", "window", "table", "chair", "paper", "glass", "house", "road", "hill", "sea",
)  # fmt: skip


def copy(random: Random, words: int, *, chat: bool) -> str:
    """Return lines, each followed by its copy; the last copy is left to the model."""
    if chat:
        line = " ".join(choose(random, WORDS, between(random, 3, 8)))
        return f"Copy this line three times, one copy a line, and write nothing else:\n{line}"
    parts: list[str] = []
    while sum(len(part.split()) for part in parts) < words:
        line = " ".join(choose(random, WORDS, between(random, 2, 4)))
        parts.insert(0, f"Line: {line}\nCopy: {line}\n")
    return "".join(parts) + f"Line: {' '.join(choose(random, WORDS, 3))}\nCopy:"


def count(random: Random, words: int, *, chat: bool) -> str:
    """Return numbers counted up by a fixed step; the model goes on counting."""
    step, start = between(random, 1, 3), between(random, 1, 400)
    if chat:
        return f"Count from {start} in steps of {step}, separated by commas. Numbers only."
    return ", ".join(str(start + step * index) for index in range(words)) + ","


def echo(random: Random, words: int, *, chat: bool) -> str:
    """Return one line of words written again and again, ended where the next echo begins."""
    line = " ".join(choose(random, WORDS, between(random, 3, 6)))
    if chat:
        return f'Say "{line}" and then say it again, five times in all, nothing else.'
    times = max(2, words // (1 + len(line.split())) + 1)
    return "".join(f"Say: {line}\n" for _ in range(times)) + "Say:"


def repeat(random: Random, words: int, *, chat: bool) -> str:
    """Return a short list of words repeated, ended anywhere inside the list."""
    items = choose(random, WORDS, between(random, 2, 5))
    if chat:
        listing = " ".join(items)
        return f"Repeat these words in this order until I stop you, nothing else: {listing}"
    length = max(words, 3 * len(items)) + below(random, len(items))
    return " ".join(items[index % len(items)] for index in range(length))


TASKS: tuple[Callable[..., str], ...] = (repeat, count, echo, copy)


def write(random: Random, words: int, *, chat: bool) -> str:
    """Return a text of one of the tasks.

    Args:
        random: where every choice comes from.
        words: the least number of words, except in a chat, where a task has its own length.
        chat: whether the text is a message to an assistant rather than a text to continue.
    """
    return TASKS[below(random, len(TASKS))](random, words, chat=chat)
