"""The checkpoints of a launch: brought into the node's memory and identified while it starts."""

from __future__ import annotations

import contextlib
import hashlib
import os
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path

import filelock
import psutil

from matrixrun.models.identity import checkpoint_identity, identified_files

STEP_BYTES = 128 * 2**10  # Linux reads no more of a request than a disk reads ahead: 128 KiB
IDENTITIES = "identities"  # in the cache: hashes, and the locks of those who make them


class Weights:
    """Reads checkpoints in the background, from the moment it is made.

    What lies on a disk or a shared folder is asked for ahead, so that it is in the page cache when
    the engine, which imports for half a minute first, comes to it; the next launch finds it there.
    A checkpoint's content is hashed once a node, and its hash remembered by path, size and time.

    Args:
        checkpoints: what an engine is told, by role: a folder, a file or a hub id.
        cache: where hashes are remembered.
        identify: whether `identities` will be asked for; without, nothing is hashed.

    Raises:
        UserError: a folder holds no checkpoint.
    """

    def __init__(
        self, checkpoints: Mapping[str, str], cache: Path, *, identify: bool = True
    ) -> None:
        self._remembered = cache / IDENTITIES
        self._identify = identify
        local = {role: Path(path) for role, path in checkpoints.items() if Path(path).exists()}
        self._files = {role: identified_files(path) for role, path in local.items()}
        self._folders = local
        self._found: dict[str, str] = {}
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def identities(self) -> dict[str, str]:
        """The sha256 of each local checkpoint, by role; waits until they are known."""
        self._thread.join()
        return dict(self._found)

    def _read(self) -> None:
        read_ahead({file for files in self._files.values() for file in files})
        for role, folder in self._folders.items() if self._identify else ():
            with contextlib.suppress(OSError), self._alone(folder):
                self._found[role] = checkpoint_identity(folder, self._remembered).sha256

    def _alone(self, folder: Path) -> contextlib.AbstractContextManager[object]:
        """Of several launches that begin at once on a node, one hashes; the others wait."""
        name = hashlib.sha256(str(folder.resolve()).encode()).hexdigest()[:16]
        try:
            self._remembered.mkdir(parents=True, exist_ok=True)
            return filelock.FileLock(self._remembered / f"{name}.lock").acquire()
        except OSError:  # a cache that may only be read
            return contextlib.nullcontext()


def read_ahead(files: Iterable[Path]) -> int:
    """Ask the kernel to have these files in its page cache; returns the bytes asked for, 0 where
    memory would not hold them all or the system cannot be asked. It reads on by itself."""
    wanted = list(files)
    with contextlib.suppress(OSError, AttributeError):
        total = sum(file.stat().st_size for file in wanted)
        if total > psutil.virtual_memory().available:
            return 0
        for file in wanted:
            _ask_for(file)
        return total
    return 0


def _ask_for(file: Path) -> None:
    handle = os.open(file, os.O_RDONLY)
    try:
        for start in range(0, file.stat().st_size, STEP_BYTES):
            os.posix_fadvise(handle, start, STEP_BYTES, os.POSIX_FADV_WILLNEED)
    finally:
        os.close(handle)
