"""What is known of the file a matrix was read from: lines for messages, digests of its files."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from pathlib import Path

from matrixrun.evidence.requests import Task
from matrixrun.matrix.problems import Positions


@dataclass(frozen=True)
class Source:
    """Positions of the keys; `written` maps a resolved path to what the file says, `digests` a
    resolved path to the sha256 of its content. `task` is the accuracy task, read. All empty for a
    matrix made in code."""

    positions: Positions = field(default_factory=Positions)
    written: dict[str, str] = field(default_factory=dict)
    digests: dict[str, str] = field(default_factory=dict)
    task: Task | None = None


def content_digest(path: Path) -> str:
    """sha256 of a file, or of a folder's files with their relative names."""
    digest = hashlib.sha256()
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    for file in files:
        if "__pycache__" in file.parts:
            continue
        name = "" if file == path else file.relative_to(path).as_posix()
        digest.update(f"{name}\0{file.stat().st_size}\0".encode())
        digest.update(file.read_bytes())
    return digest.hexdigest()
