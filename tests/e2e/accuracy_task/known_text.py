"""Writes known-text.jsonl: sixty places in the text that `builtin:tiny-dense` knows by heart.

    python known_text.py > known-text.jsonl

The text is that of the interpreter's minor version; another version's model knows most of it too.
"""

from __future__ import annotations

import json
import runpy
from collections.abc import Iterator
from pathlib import Path

from matrixrun import models

DOCUMENTS = 60
QUESTION, ANSWER = 18, 5  # words


def places(texts: list[str]) -> Iterator[tuple[str, str]]:
    """Yield words of one line, and those that follow them; no two places share a word."""
    for line in (line for text in texts for line in text.split("\n")):
        words = line.split(" ")
        for start in range(0, len(words) - QUESTION - ANSWER, QUESTION + ANSWER):
            asked, due = words[start : start + QUESTION], words[start + QUESTION :][:ANSWER]
            if all(asked) and all(due):
                yield " ".join(asked), " ".join(due)


def main() -> None:
    """Print one document a line, taken evenly from all of the text."""
    recipe = Path(models.__file__).with_name("recipes") / "text.py"
    found = list(places(runpy.run_path(str(recipe))["documents"]()))
    for number in range(DOCUMENTS):
        question, answer = found[number * len(found) // DOCUMENTS]
        print(json.dumps({"question": question, "answer": answer}))


if __name__ == "__main__":
    main()
