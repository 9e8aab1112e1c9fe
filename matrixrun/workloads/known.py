"""`known`: questions of which the answer is known, so that both arms can be judged by it.

Counting goes on with numbers, an echo says a line of numbers once more, a needle is a code that was
told further up. The answer follows from the text alone and must stand in what the model says.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from random import Random

from matrixrun.workloads.decided import WORDS
from matrixrun.workloads.draws import below, between, choose

COUNTED = 3
ECHOED = 5
# Words of room that a line of the needle's takes, tokens of its numbers included.
LINE_WORDS = 16

_COUNT = re.compile(r"(\d+),\s*(?:<|$)")
_ECHO = re.compile(r"Say: ([\d ]*\d)\nSay:\s*$")
_ECHO_IN_CHAT = re.compile(r"once more, nothing else: ([\d ]*\d)")
_NEEDLE = re.compile(r"The code of (\w+) is\s*$|What is the code of (\w+)\?")


def count(random: Random, words: int, *, chat: bool) -> str:
    """Return numbers counted up."""
    start, shown = between(random, 1, 400), max(4, min(words, 40))
    numbers = ", ".join(str(start + place) for place in range(shown))
    return f"Go on counting, numbers and commas only: {numbers}," if chat else f"{numbers},"


def echo(random: Random, words: int, *, chat: bool) -> str:
    """Return a line of numbers, said again and again where it is a text to continue."""
    line = " ".join(str(between(random, 10, 99)) for _ in range(ECHOED))
    if chat:
        return f"Say these numbers once more, nothing else: {line}"
    return f"Say: {line}\n" * max(2, words // (1 + ECHOED)) + "Say:"


def needle(random: Random, words: int, *, chat: bool) -> str:
    """Return codes of many words, and the question for one of them."""
    things = choose(random, WORDS, max(2, min(len(WORDS), words // LINE_WORDS)))
    told = "".join(f"The code of {thing} is {between(random, 1000, 9999)}.\n" for thing in things)
    wanted = things[below(random, len(things))]
    return told + (f"What is the code of {wanted}?" if chat else f"The code of {wanted} is")


TASKS: tuple[Callable[..., str], ...] = (count, echo, needle)


def write(random: Random, words: int, *, chat: bool) -> str:
    """Return the text of one of the tasks; see `decided.write`."""
    return TASKS[below(random, len(TASKS))](random, words, chat=chat)


def answer_of(text: str) -> str | None:
    """Return what must stand in the answer to a text of this workload; None where the text lacks
    what it asks for, such as a needle that was cut off with the front."""
    asked = _NEEDLE.search(text)
    if asked is not None:
        told = re.search(rf"The code of {asked[1] or asked[2]} is (\d+)\.", text)
        return None if told is None else told[1]
    echoed = _ECHO_IN_CHAT.search(text) or _ECHO.search(text)
    if echoed is not None:
        return echoed[1]
    counted = _COUNT.search(text)
    if counted is None:
        return None
    last = int(counted[1])
    return ", ".join(str(last + place) for place in range(1, COUNTED + 1))
