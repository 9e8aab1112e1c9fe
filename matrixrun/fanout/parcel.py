"""What a job takes along: the matrix file, the files that it refers to, and nothing else."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from matrixrun.evidence.errors import UserError
from matrixrun.matrix import Matrix

# Ray keeps what a job takes along in the head's own store, which refuses more than 500 MB.
MOST_BYTES = 200 * 2**20
UNWANTED = shutil.ignore_patterns("__pycache__", ".git", ".venv", "*.pyc")


def pack(file: Path, matrix: Matrix, into: Path) -> Path:
    """Copy the matrix file and all that it names by a relative path into the empty folder `into`,
    each at its place beside the others; returns the copy of the matrix file.

    What it names by an absolute path or a hub id is the nodes' to find.

    Raises:
        UserError: it names an interpreter that would have to come along, something that is not
            there, or more than a job may carry.
    """
    _refuse_programs(matrix)
    file = file.absolute()
    named = [Path(path) for path, text in matrix.source.written.items() if _travels(text)]
    base = Path(os.path.commonpath([file.parent, *(path.parent for path in named)]))
    _refuse_too_much(named)
    for path in (file, *named):
        place = into / path.relative_to(base)
        place.parent.mkdir(parents=True, exist_ok=True)
        if path.is_dir():
            shutil.copytree(path, place, ignore=UNWANTED, dirs_exist_ok=True)
        else:
            shutil.copy2(path, place)
    return into / file.relative_to(base)


def _travels(text: str) -> bool:
    return not text.startswith(("/", "~"))


def _refuse_programs(matrix: Matrix) -> None:
    for name, engine in matrix.engines.items():
        for key in ("python", "binary"):
            path = getattr(engine, key)
            text = matrix.source.written.get(path or "")
            if text is not None and _travels(text):
                raise UserError(
                    f"engines.{name}.{key}: {text} lies beside the matrix file, and a program"
                    " cannot be sent to a cluster",
                    remedy="name it by the absolute path that it has on the nodes",
                )


def _refuse_too_much(named: list[Path]) -> None:
    sizes = {path: sum(_sizes(path)) for path in named}
    if sum(sizes.values()) > MOST_BYTES:
        largest = max(sizes, key=lambda path: sizes[path])
        raise UserError(
            f"the matrix file names {sum(sizes.values()) / 2**20:.0f} MiB of files by relative"
            f" paths, the largest {largest}; a job may carry {MOST_BYTES / 2**20:.0f} MiB",
            remedy="put it on a folder that all nodes share, and name it by its absolute path",
        )


def _sizes(path: Path) -> Iterator[int]:
    if not path.exists():
        raise UserError(f"the matrix file names {path}, which is not there")
    for found in path.rglob("*") if path.is_dir() else (path,):
        if found.is_file():
            yield found.stat().st_size
