"""Which checkpoint was it: a hash over what an engine reads from a folder."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from matrixrun.evidence.errors import UserError

PATTERNS = ("config*.json", "tokenizer*.json", "*.safetensors", "*.gguf")
CHUNK_BYTES = 1 << 22


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


def checkpoint_identity(folder: Path, cache_file: Path | None = None) -> Identity:
    """Return the identity of the checkpoint in `folder` (or of one `.gguf` file).

    Args:
        folder: a checkpoint folder, or a single weights file.
        cache_file: where hashes are remembered by path, size and time of change, so that large
            folders are read once; None hashes everything.

    Raises:
        UserError: nothing to identify is there.
    """
    paths = identified_files(folder)
    remembered = _load(cache_file)
    hashes = {path.name: _file_hash(path, remembered) for path in paths}
    _save(cache_file, remembered)
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


def _file_hash(path: Path, remembered: dict[str, str]) -> str:
    """Return the sha256 of `path`, remembered under its path, size and time of change."""
    state = path.stat()  # of what a link points to: caches of model hubs are full of links
    key = f"{path.resolve()}|{state.st_size}|{state.st_mtime_ns}"
    if key not in remembered:
        digest = hashlib.sha256()
        with path.open("rb") as file:
            while chunk := file.read(CHUNK_BYTES):
                digest.update(chunk)
        remembered[key] = digest.hexdigest()
    return remembered[key]


def _load(cache_file: Path | None) -> dict[str, str]:
    """Return what `cache_file` remembers; a missing or broken one remembers nothing."""
    if cache_file is None:
        return {}
    try:
        found = json.loads(cache_file.read_text())
    except (OSError, ValueError):
        return {}
    return {str(k): str(v) for k, v in found.items()} if isinstance(found, dict) else {}


def _save(cache_file: Path | None, remembered: dict[str, str]) -> None:
    """Replace `cache_file` whole; losing it costs time, so failing to write is no error."""
    if cache_file is None:
        return
    try:
        cache_file.parent.mkdir(parents=True, exist_ok=True)
        handle, temporary = tempfile.mkstemp(dir=cache_file.parent, prefix=f".{cache_file.name}-")
        with os.fdopen(handle, "w") as file:
            json.dump(remembered, file)
        Path(temporary).replace(cache_file)
    except OSError:
        return
