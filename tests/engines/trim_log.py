"""How the logs beside this file were cut: `python trim_log.py LOG > logs/NAME.log`.

Kept are the argument parser's words and the last frames of tracebacks, with paths made neutral.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

KEPT = re.compile(r"ERROR|Traceback|^  |^\S*(Error|Exception)\b|error:|^(During|The above)|^$")

FRAME = re.compile(r"(^|\] )  File \"")
SOURCE = re.compile(r"(^|\] )    \S")
CARETS = re.compile(r"(^|\])\s*[~^]+\s*$")
FRAMES = 3


def trim(log: str) -> str:
    """The lines of a vLLM log that say why it ended."""
    lines = [line for line in log.splitlines() if KEPT.search(line)]
    text = "\n".join(_last_frames(lines)) + "\n"
    text = re.sub(r"/\S+?/lib/python3\.\d+/site-packages/", "/env/site-packages/", text)
    text = re.sub(r"/\S+?/lib/python3\.\d+/", "/python/", text)
    return re.sub(r"(?<=['\"])/\S*?/(?=[\w-]+['\"])", "/models/", text)


def _last_frames(lines: list[str]) -> list[str]:
    """The lines without all but the last FRAMES frames of each traceback; carets go too."""
    kept: list[str] = []
    frames: list[list[str]] = []
    for line in lines:
        if CARETS.search(line):
            continue
        if FRAME.search(line):
            frames.append([line])
        elif frames and SOURCE.search(line):
            frames[-1].append(line)
        else:
            kept += [part for frame in frames[-FRAMES:] for part in frame]
            frames = []
            kept.append(line)
    return kept


if __name__ == "__main__":
    sys.stdout.write(trim(Path(sys.argv[1]).read_text()))
