"""Writes word-pairs.jsonl: sixty questions of which a small model answers a good part.

    python word_pairs.py > word-pairs.jsonl

Four worked lines of a kind, then one to complete: capitals, opposites, what comes next, plurals.
They are drawn by a seeded generator, so that the file can be made again.
"""

from __future__ import annotations

import json
from random import Random

PAIRS = {
    "capital": (
        "France Paris", "Italy Rome", "Spain Madrid", "Japan Tokyo", "Germany Berlin",
        "England London", "Russia Moscow", "Egypt Cairo", "Greece Athens", "Portugal Lisbon",
        "Austria Vienna", "Norway Oslo", "Sweden Stockholm", "Ireland Dublin", "Cuba Havana",
        "Poland Warsaw", "Peru Lima", "Hungary Budapest", "Kenya Nairobi",
    ),
    "opposite": (
        "hot cold", "big small", "up down", "good bad", "old young", "fast slow", "day night",
        "left right", "open closed", "light dark", "high low", "rich poor", "happy sad", "wet dry",
        "hard soft", "strong weak", "long short", "early late", "full empty",
    ),
    "next": (
        "Monday Tuesday", "Tuesday Wednesday", "Wednesday Thursday", "Thursday Friday",
        "Friday Saturday", "Saturday Sunday", "one two", "two three", "three four", "four five",
        "five six", "six seven", "seven eight", "January February", "March April", "April May",
        "May June", "June July", "July August",
    ),
    "plural": (
        "cat cats", "dog dogs", "tree trees", "book books", "river rivers", "house houses",
        "car cars", "star stars", "boat boats", "road roads", "apple apples", "cloud clouds",
        "door doors", "friend friends", "lamp lamps", "hill hills", "chair chairs", "fish fish",
        "window windows",
    ),
}  # fmt: skip
WORKED, OF_EACH = 4, 15


def main() -> None:
    """Print one JSON object a line, the kinds by turns."""
    random = Random(20)
    drawn = {kind: random.sample(pairs, len(pairs)) for kind, pairs in PAIRS.items()}
    for number in range(OF_EACH):
        for kind, pairs in drawn.items():
            worked = [": ".join(pair.split()) for pair in pairs[-WORKED:]]
            question, answer = pairs[number].split()
            text = "\n".join([*worked, f"{question}:"])
            print(json.dumps({"kind": kind, "question": text, "answer": answer}))


if __name__ == "__main__":
    main()
