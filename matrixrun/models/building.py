"""Make a built-in checkpoint once and keep it.

A family appears in the cache whole or not at all: it is written beside its place and renamed.
Two processes that want the same family wait for one another.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import tempfile
from collections import deque
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

from matrixrun.evidence.errors import BuildError
from matrixrun.models.catalogue import Family, family_folder, find, needed_family

TAIL_LINES = 25
USED = ".used"  # touched at every use, so that `gc` knows what is not used any more


def build(name: str, python: Path, cache: Path, on_line: Callable[[str], None]) -> Path:
    """Return the folder (or file) of the checkpoint `name`, building its family if it is not there.

    Args:
        name: a `builtin:` name.
        python: the engine's interpreter, with what its recipes import (torch and safetensors for
            folders, gguf for GGUF files).
        cache: the cache's root.
        on_line: called with each line that the recipe prints.

    Raises:
        UserError: `name` is unknown.
        BuildError: the recipe failed; quotes its last lines.
    """
    checkpoint = find(name)
    folder = _build_family(checkpoint.family, python, cache, on_line) / checkpoint.folder
    if not folder.is_file() and not (folder / "config.json").is_file():
        raise BuildError(
            f"{folder} is no file and holds no config.json",
            remedy=f"delete {folder.parent} and try again",
        )
    return folder


def _build_family(
    family: Family, python: Path, cache: Path, on_line: Callable[[str], None]
) -> Path:
    """Return the family's folder, with what it needs built before it."""
    needed = needed_family(family)
    needed_folder = None if needed is None else _build_family(needed, python, cache, on_line)
    folder = family_folder(family, cache)
    if folder.is_dir() and not os.access(folder.parent, os.W_OK):
        return folder  # a cache that is only read is nobody's to clean from here
    folder.parent.mkdir(parents=True, exist_ok=True)
    # Also where it is built: `gc` may be deleting it.
    with FileLock(folder.with_name(folder.name + ".lock")):
        if not folder.is_dir():  # another process may have built it while this one waited
            _write_and_rename(family, python, needed_folder, folder, on_line)
        with contextlib.suppress(OSError):  # somebody else's, in a cache that is shared
            (folder / USED).touch()
    return folder


def _write_and_rename(
    family: Family,
    python: Path,
    needed_folder: Path | None,
    folder: Path,
    on_line: Callable[[str], None],
) -> None:
    """Run the recipe into a temporary folder beside `folder`, then rename it."""
    temporary = Path(tempfile.mkdtemp(prefix=f".{family.name}-", dir=folder.parent))
    try:
        out = temporary / "out"
        arguments = [str(out)] if needed_folder is None else [str(out), str(needed_folder)]
        _run([str(python), str(family.recipe), *arguments], family, on_line)
        out.rename(folder)
    finally:
        shutil.rmtree(temporary, ignore_errors=True)


def _run(command: list[str], family: Family, on_line: Callable[[str], None]) -> None:
    """Run `command`, passing on its lines.

    Raises:
        BuildError: it did not start or ended with a status other than 0.
    """
    tail: deque[str] = deque(maxlen=TAIL_LINES)
    remedy = "the interpreter needs the packages that the recipe imports"
    try:
        process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            errors="replace",
            env=_environment(),
        )
    except OSError as error:
        raise BuildError(f"cannot run {command[0]}: {error}", remedy=remedy) from error
    with process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                tail.append(line.rstrip("\n"))
                on_line(tail[-1])
        except BaseException:  # an interrupt must not leave a training process behind
            process.kill()
            raise
    if process.returncode != 0:
        raise BuildError(
            f"building {family.name} failed: {family.script} ended with {process.returncode}",
            log_tail="\n".join(tail),
            remedy=remedy,
        )


def _environment() -> dict[str, str]:
    """Return the recipe's environment: ours, less what would put our packages into its path."""
    dropped = {"PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "OMP_NUM_THREADS", "MKL_NUM_THREADS"}
    kept = {key: value for key, value in os.environ.items() if key not in dropped}
    return {**kept, "PYTHONUNBUFFERED": "1", "PYTHONHASHSEED": "0", "CUDA_VISIBLE_DEVICES": ""}
