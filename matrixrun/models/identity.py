"""Which checkpoint was it: a hash over what an engine reads from a folder."""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path

from matrixrun.evidence.errors import UserError

PATTERNS = ("config*.json", "tokenizer*.json", "*.safetensors", "*.gguf")
_SHA256 = re.compile("[0-9a-f]{64}")


@dataclass(frozen=True)
class Identity:
    """What a checkpoint folder holds.

    Attributes:
        sha256: over the names and contents of all `files`.
        files: (name, sha256 of the content), sorted by name.
        size_bytes: of all `files` together.
    """

    sha256: str
    files: tuple[tuple[str, str], ...]
    size_bytes: int

    @property
    def short(self) -> str:
        """The first 12 hex digits, for tables."""
        return self.sha256[:12]


def checkpoint_identity(folder: Path, remembered: Path | None = None) -> Identity:
    """Return the identity of the checkpoint in `folder` (or of one `.gguf` file).

    Args:
        folder: a checkpoint folder, or a single weights file.
        remembered: a folder where hashes are remembered by path, size and time of change, so that
            large files are read once; None hashes everything.

    Raises:
        UserError: nothing to identify is there.
    """
    paths = identified_files(folder)
    hashes = {path.name: _file_hash(path, remembered) for path in paths}
    total = hashlib.sha256()
    for name, value in sorted(hashes.items()):
        total.update(f"{name}\0{value}\n".encode())
    size = sum(path.stat().st_size for path in paths)
    return Identity(total.hexdigest(), tuple(sorted(hashes.items())), size)


def identified_files(folder: Path) -> list[Path]:
    """Return the files that an engine reads of a checkpoint, as in `checkpoint_identity`."""
    if folder.is_file():
        return [folder]
    found = sorted({p for pattern in PATTERNS for p in folder.glob(pattern) if p.is_file()})
    if not found:
        raise UserError(
            f"{folder} holds no checkpoint",
            remedy=f"name a folder that holds {', '.join(PATTERNS)}",
        )
    return found


def _file_hash(path: Path, remembered: Path | None) -> str:
    """Return the sha256 of `path`, remembered under its path, size and time of change.

    Each hash is a file of its own, written whole: processes that hash at once lose nothing of one
    another's.
    """
    if remembered is None:
        return _hashed(path)
    state = path.stat()  # of what a link points to: caches of model hubs are full of links
    key = f"{path.resolve()}|{state.st_size}|{state.st_mtime_ns}"
    entry = remembered / f"{hashlib.sha256(key.encode()).hexdigest()[:32]}.sha256"
    with contextlib.suppress(OSError, ValueError):
        found = entry.read_text(encoding="ascii")
        if _SHA256.fullmatch(found):
            return found
    found = _hashed(path)
    _write_whole(entry, found)
    return found


def _hashed(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _write_whole(path: Path, text: str) -> None:
    """Write and rename; what is not remembered costs time, so failing to write is no error."""
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(text)
        Path(temporary).replace(path)
