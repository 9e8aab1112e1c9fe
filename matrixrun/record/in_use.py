"""Which folders of the cache somebody works with, told to `gc` by a launch for as long as it lives.

Each user has two files of its own in the cache: the paths, and a lock that the kernel takes back
however its process ends. A lock that is free makes its paths void.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator
from pathlib import Path

import filelock

from matrixrun.evidence.errors import StoreError
from matrixrun.record.files import write_bytes

FOLDER = "in-use"  # in the cache


class InUse:
    """What one launch works with, from `claim` to `release`.

    A cache that may only be read is nobody's to clean from here: there is nothing to claim then.
    """

    def __init__(self, cache: Path) -> None:
        self._paths = cache / FOLDER / f"{secrets.token_hex(8)}.paths"
        self._lock = filelock.FileLock(self._paths.with_suffix(".lock"), thread_local=False)
        self._claimed: set[str] = set()

    def claim(self, *paths: str | Path | None) -> None:
        """Keep `gc` from what these paths lie in, until `release` or this process's end."""
        new = {str(Path(path).absolute()) for path in paths if path is not None}
        if new <= self._claimed:
            return
        with contextlib.suppress(OSError, StoreError, NotImplementedError):  # no locks there
            self._paths.parent.mkdir(parents=True, exist_ok=True)
            if not self._lock.is_locked:
                self._lock.acquire()
            self._claimed |= new
            write_bytes(self._paths, "\n".join(sorted(self._claimed)).encode())

    def release(self) -> None:
        """Let go of all of it; a second call does nothing."""
        self._claimed.clear()
        with contextlib.suppress(OSError):
            self._paths.unlink(missing_ok=True)
            self._lock.release()
            Path(self._lock.lock_file).unlink(missing_ok=True)


def claimed(cache: Path) -> set[str]:
    """The paths that users who live have claimed."""
    found: set[str] = set()
    for paths in _all(cache):
        if _is_held(paths):
            with contextlib.suppress(OSError):  # released just now
                found.update(paths.read_text(encoding="utf-8").splitlines())
    return found


def forget_the_dead(cache: Path) -> None:
    """Delete what users that were killed have left."""
    for paths in _all(cache):
        if not _is_held(paths):
            with contextlib.suppress(OSError):
                paths.unlink()
                paths.with_suffix(".lock").unlink()


def _all(cache: Path) -> Iterator[Path]:
    return iter(sorted((cache / FOLDER).glob("*.paths")))


def _is_held(paths: Path) -> bool:
    """Whether the user of these paths lives. It takes its lock before it writes them, once."""
    lock = paths.with_suffix(".lock")
    try:
        with filelock.FileLock(lock, blocking=False):
            if not paths.exists():  # released just now: the look has made the lock anew
                lock.unlink(missing_ok=True)
            return False
    except (OSError, filelock.Timeout):  # what cannot be told counts as held
        return True
