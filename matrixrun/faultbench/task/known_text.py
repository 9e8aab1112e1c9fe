"""A task of sixty places in the text that `builtin:tiny-dense` knows by heart: its next five words.

    python -m matrixrun.faultbench.task.known_text FOLDER

writes it there. The text is that of the interpreter's minor version; another version's model knows
most of it too.
"""

from __future__ import annotations

import json
import runpy
import shutil
import sys
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


def write(folder: Path) -> Path:
    """Write the task and its documents, taken evenly from all of the text; returns its file."""
    recipe = Path(models.__file__).with_name("recipes") / "text.py"
    found = list(places(runpy.run_path(str(recipe))["documents"]()))
    chosen = [found[number * len(found) // DOCUMENTS] for number in range(DOCUMENTS)]
    lines = [json.dumps({"question": question, "answer": answer}) for question, answer in chosen]
    (folder / "known-text.jsonl").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return Path(shutil.copy(Path(__file__).with_name("known-text.yaml"), folder))


if __name__ == "__main__":
    print(write(Path(sys.argv[1])))
