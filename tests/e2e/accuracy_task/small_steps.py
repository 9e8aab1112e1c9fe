"""Writes small-steps.jsonl: sixty questions that a small model answers in part.

    python small_steps.py > small-steps.jsonl

Three worked lines, then one to complete: numbers counted on, words said twice, a sum. They are
drawn by a seeded generator, so that the file can be made again.
"""

from __future__ import annotations

import json
from random import Random

WORDS = (
    "apple", "boat", "chair", "cloud", "door", "fish", "glass", "green", "hill", "house", "lamp",
    "moon", "paper", "red", "river", "road", "salt", "star", "stone", "tree", "white", "window",
)  # fmt: skip
OF_EACH = 20
WORKED = 3


def counted(random: Random) -> tuple[str, str]:
    start, step = random.randint(1, 60), random.randint(1, 5)
    numbers = [str(start + step * index) for index in range(6)]
    return ", ".join(numbers[:3]) + " ->", ", ".join(numbers[3:])


def said_twice(random: Random) -> tuple[str, str]:
    line = " ".join(random.sample(WORDS, random.randint(3, 5)))
    return f"{line} ->", f"{line} {line}"


def added(random: Random) -> tuple[str, str]:
    one, other = random.randint(2, 40), random.randint(2, 40)
    return f"{one} + {other} =", str(one + other)


def main() -> None:
    """Print one JSON object a line."""
    random = Random(20)
    for _ in range(OF_EACH):
        for kind in (counted, said_twice, added):
            worked = [" ".join(kind(random)) for _ in range(WORKED)]
            question, answer = kind(random)
            text = "\n".join([*worked, question])
            print(json.dumps({"kind": kind.__name__, "question": text, "answer": answer}))


if __name__ == "__main__":
    main()
