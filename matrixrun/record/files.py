"""Files that are either whole or absent: atomic writes, JSON for people, names that are safe."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import math
import os
import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import filelock
import msgspec
import numpy as np

from matrixrun.evidence.errors import StoreError, UserError

T = TypeVar("T")

# Sections that hold free figures: their keys are sorted, and a figure that JSON cannot write
# (NaN, the infinities) stands there as a word.
FIGURES = frozenset({"metrics", "numbers", "counters_before", "counters_after", "facts", "notes"})
WORDS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}

# What helps against a damaged file, by its name: only what a command writes again may be removed.
ELSEWHERE = "restore the file from a copy, or choose another --results"
RUN_AGAIN = (
    "restore the file from a copy, or run the matrix again with "
    "`matrixrun run FILE --results FOLDER`: damaged cells are set aside in damaged/ and run again"
)
_REMAKE = (
    "restore the file from a copy, or remove it and run the matrix again with "
    "`matrixrun run FILE --results FOLDER`, which writes it anew"
)
DAMAGED = {
    "evidence.json": RUN_AGAIN,
    "result.json": "`matrixrun judge SWEEP` writes it anew from the evidence",
    "plan.json": _REMAKE,
    "judging.json": _REMAKE,
    "mlflow.json": "restore the file from a copy, or remove it and use `matrixrun sync SWEEP`",
    "localisation.json": "restore the file from a copy, or remove it: `--localize` writes it anew",
}

LOCK = ".lock"
LONGEST_NAME = 160  # file systems take 255 bytes; suffixes and temporary names need room
_UNSAFE = re.compile(r"[^A-Za-z0-9._+-]")


def file_name(name: str) -> str:
    """A file name for an id: the id itself where it is safe, otherwise made safe with a hash."""
    safe = _UNSAFE.sub("-", name).lstrip(".")[:LONGEST_NAME]
    if safe == name:
        return name
    return f"{safe}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"


@contextlib.contextmanager
def locked(folder: Path) -> Iterator[bool]:
    """Hold a folder as its only writer, until the process ends in any way; False where another
    holds it."""
    lock = filelock.FileLock(folder / LOCK, blocking=False)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock.acquire()
    except filelock.Timeout:
        yield False
        return
    except OSError as error:
        raise _cannot("write", folder / LOCK, error) from error
    try:
        yield True
    finally:
        lock.release()


def being_written(where: str) -> UserError:
    """What a user is told of a folder that another process holds."""
    return UserError(
        f"another process is writing to {where}",
        remedy="wait until it has ended, or choose another --results",
    )


def sha256(data: bytes) -> str:
    """The hex sha256 of `data`."""
    return hashlib.sha256(data).hexdigest()


def write_bytes(path: Path, data: bytes) -> None:
    """Write `data` to `path` so that a reader sees the old content or the new, never a part.

    Folders are made as needed; modes follow the umask.

    Raises:
        StoreError: the disk is full, the folder not writable ...; `path` is untouched then.
    """
    if path.exists() and not path.is_file():
        raise StoreError(
            f"cannot write {path}: it is no regular file", remedy="name a file, new or old"
        )
    temporary = path.parent / f".{path.name}.{secrets.token_hex(4)}.tmp"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        _write_through(temporary, data)
        os.replace(temporary, path)  # noqa: PTH105 (the tests make exactly this call fail)
        _sync_folder(path.parent)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise _cannot("write", path, error) from error


def _write_through(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    # Some network file systems cannot open or sync a folder; the rename itself is still atomic.
    with contextlib.suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def read_bytes(path: Path) -> bytes:
    """The content of `path`; StoreError when it is missing or unreadable."""
    try:
        return path.read_bytes()
    except OSError as error:
        raise _cannot("read", path, error) from error


def _cannot(verb: str, path: Path, error: OSError) -> StoreError:
    remedy = _remedy(error)
    if verb == "write" and error.errno == errno.ENOENT:
        remedy = "name a place where folders can be made"
    return StoreError(f"cannot {verb} {path}: {error.strerror or error}", remedy=remedy)


def _remedy(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return (
            "free some space there and run the same command again: "
            "what was written before is kept and used"
        )
    if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return "make the folder accessible to this user, or choose another one with --results"
    if error.errno == errno.ENOENT:
        return "the results folder is incomplete; copy it again as a whole, or run the cell again"
    if error.errno in (errno.ENOTDIR, errno.EISDIR, errno.EEXIST):
        return "something else lies where this file belongs; move it away"
    return "check the file system, then run the same command again: it resumes"


def to_plain(value: Any) -> Any:
    """`value` as lists, dicts and scalars that JSON can hold, figures sorted by name."""
    return _plain(msgspec.to_builtins(value, enc_hook=_from_numpy, str_keys=True), within=False)


def _plain(value: Any, *, within: bool) -> Any:
    if isinstance(value, dict):
        items = sorted(value.items()) if within else value.items()
        return {k: _plain(v, within=within or k in FIGURES) for k, v in items}
    if isinstance(value, list | tuple):
        return [_plain(item, within=within) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else ("Infinity" if value > 0 else "-Infinity")
    return value


def _from_plain(value: Any, *, within: bool) -> Any:
    if isinstance(value, dict):
        return {k: _from_plain(v, within=within or k in FIGURES) for k, v in value.items()}
    if isinstance(value, list):
        return [_from_plain(item, within=within) for item in value]
    if within and isinstance(value, str) and value in WORDS:
        return WORDS[value]
    return value


def _from_numpy(value: Any) -> Any:
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, Path):
        return str(value)
    raise NotImplementedError(f"cannot write a {type(value).__name__} as JSON")


def write_json(path: Path, value: Any) -> None:
    """Write any typed value as indented JSON; keys keep the order of the type's fields."""
    text = msgspec.json.format(msgspec.json.encode(to_plain(value)), indent=2)
    write_bytes(path, text + b"\n")


def read_json(path: Path, type_: type[T]) -> T:
    """Read what `write_json` wrote.

    Raises:
        StoreError: the file is missing, cut short, or not what this version writes.
    """
    data = read_bytes(path)
    try:
        return msgspec.convert(_from_plain(msgspec.json.decode(data), within=False), type_)
    except msgspec.MsgspecError as error:
        raise StoreError(
            f"{path} is damaged or was written by another version of matrixrun: {error}",
            remedy=DAMAGED.get(path.name, ELSEWHERE),
        ) from error


def checked(path: Path, data: bytes, expected: str, remedy: str) -> bytes:
    """The data of `path`, whose sha256 must be the `expected` one; StoreError where it is not."""
    found = sha256(data)
    if found != expected:
        raise StoreError(
            f"{path} is damaged or was changed: its sha256 is {found[:16]}, not {expected[:16]}",
            remedy=remedy,
        )
    return data


def require_place(path: Path, named: str, *, folder: bool = False) -> None:
    """Refuse a file, or `folder`, that is to be written where the other stands, or where more than
    the last folder on the way is missing, or one directly below the root: that is a slip of the
    pen, and no place to make. Said before any work is done for it.

    Raises:
        UserError: naming what stands there, or the first folder that is not there.
    """
    if path.exists() and path.is_dir() is not folder:
        raise UserError(
            f"{named} {path}: that is {'no folder' if folder else 'a folder'}",
            remedy=f"name a {'folder' if folder else 'file'}, new or old",
        )
    parent = path.absolute().parent
    above = parent.parent
    if parent.is_dir() or (above.is_dir() and above != above.parent):
        return
    missing = [folder for folder in (parent, *parent.parents) if not folder.exists()]
    raise UserError(
        f"{named} {path}: there is no folder {(missing or [parent])[-1]}",
        remedy="make it first, or correct the path",
    )
