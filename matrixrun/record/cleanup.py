"""`matrixrun gc`: old environments, checkpoints and results, and engines that nobody owns."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import filelock
import psutil

from matrixrun import engines
from matrixrun.record.cache import cache_folder
from matrixrun.record.in_use import claimed, forget_the_dead
from matrixrun.record.remote import COPIES, is_sent
from matrixrun.record.sweep import is_sweep

DELETING = ".deleting-"


def clean(
    unused_seconds: float, *, results_root: Path, delete: bool, say: Callable[[str], None]
) -> None:
    """List what was not used for so many seconds, and delete it when `delete` is set.

    What is worked with stays, however old: a folder whose lock is held, that a launch that lives
    has claimed (on any machine that shares the cache, where its file system locks over machines),
    or that a running command on this machine names; and so does the copy of a sweep that is kept
    elsewhere, while there is something in it that was not sent. Below `results_root` only sweeps
    are looked at.
    Engines that outlived their launcher are listed too, and ended when `delete` is set.
    """
    orphans = engines.orphans()
    for orphan in orphans:
        say(f"{'ending' if delete else 'would end'} orphaned engine process {orphan}")
    if delete:
        engines.end_orphans()
        forget_the_dead(cache_folder())
    before = time.time() - unused_seconds
    total = found = 0
    words = _running_words() | claimed(cache_folder())
    for folder, lock in _folders(results_root):
        if _last_used(folder) >= before:
            continue
        size, found = _size(folder), found + 1
        if any(_names(word, folder) for word in words):
            say(f"in use: {folder}")
        elif not delete:
            say(f"would delete {folder} ({size / 2**20:.0f} MiB)")
            total += size
        elif _delete(folder, lock, before, say):
            say(f"deleted {folder} ({size / 2**20:.0f} MiB)")
            total += size
    if not found and not orphans:
        say(f"nothing to delete: nothing here was unused for {unused_seconds / 86400:g} days")
        return
    hint = "" if delete or not total else "; add --delete to do it"
    say(f"{total / 2**30:.2f} GiB{hint}")


def _folders(results_root: Path) -> Iterator[tuple[Path, Path]]:
    """Every folder that might be deleted, with the lock that its users take."""
    cache = cache_folder()
    for parent in (cache / "engines", cache / "models", cache / "compiled"):
        for folder in _children(parent):
            yield folder, folder.with_name(f"{folder.name}.lock")
    for copy in (folder for above in _children(cache / COPIES) for folder in _children(above)):
        if is_sent(copy) or copy.name.startswith(DELETING):
            yield copy, copy / ".lock"
    for folder in _children(results_root):
        if is_sweep(folder) or folder.name.startswith(DELETING):
            yield folder, folder / ".lock"


def _children(parent: Path) -> list[Path]:
    if not parent.is_dir():
        return []
    return sorted(p for p in parent.iterdir() if p.is_dir() and not p.is_symlink())


def _delete(folder: Path, path: Path, before: float, say: Callable[[str], None]) -> bool:
    """Delete a folder unless somebody holds its lock or has used it just now."""
    try:
        with filelock.FileLock(path, blocking=False):
            used = _last_used(folder, but=path) >= before
            if used or any(_names(word, folder) for word in claimed(cache_folder())):
                # Between the look and the lock.
                say(f"in use: {folder}")
                return False
            # A deletion that is cut short must not leave half of what looks whole.
            name = f"{DELETING}{secrets.token_hex(4)}-{folder.name}"
            shutil.rmtree(folder.rename(folder.with_name(name)))
    except filelock.Timeout:
        say(f"in use: {folder}")
        return False
    except OSError as error:
        say(f"cannot delete {folder}: {error.strerror or error}")
        return False
    if folder.name.startswith("."):  # left over from something cut short: nobody waits for its lock
        path.unlink(missing_ok=True)
    return True


def _last_used(folder: Path, but: Path | None = None) -> float:
    """The latest time of the folder and what lies directly in it, seconds since 1970.

    `but` is the lock file, which this program itself has just opened.
    """
    times = [0.0]
    with contextlib.suppress(FileNotFoundError):
        if but is None or but.parent != folder:
            times.append(folder.stat().st_mtime)
        times += [p.lstat().st_mtime for p in folder.iterdir() if p != but]
    return max(times)


def _running_words() -> set[str]:
    """All arguments of the commands that run on this machine, as far as they may be read."""
    words: set[str] = set()
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            words.update(process.cmdline())
    return words


def _names(word: str, folder: Path) -> bool:
    """Whether an argument is, or holds, the path of the folder or of something in it."""
    paths = {folder.absolute(), folder.resolve()}
    return any(f"{path}{os.sep}" in f"{word}{os.sep}" for path in paths)


def _size(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # gone meanwhile
            total += path.lstat().st_size if path.is_file() and not path.is_symlink() else 0
    return total
