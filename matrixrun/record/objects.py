"""Files below a URL, in whatever file system fsspec knows for it: whole or not there at all."""

from __future__ import annotations

import contextlib
import posixpath
import re
import secrets
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from matrixrun.evidence.errors import StoreError, UserError
from matrixrun.record.masking import mask

PUT_WHOLE = frozenset(
    {"s3", "s3a", "gs", "gcs", "abfs", "abfss", "az", "adl", "oss", "oci", "r2", "memory"}
)
"""Protocols under which an object is there whole or not at all. Elsewhere a file is written beside
its name and then renamed."""

EXCLUSIVE = frozenset({"s3", "s3a", "gs", "gcs", "memory", "file", "local"})
"""Protocols under which a file can be made on condition that there is none."""
CLAIM = "DRIVER"  # who writes there, while somebody does

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://.")


def is_url(text: str) -> bool:
    """Whether a user names a URL rather than a folder."""
    return _URL.match(text) is not None


class Objects:
    """The files below `url`, by relative path. Every method but the first raises StoreError where
    they cannot be reached.

    Args:
        url: of their folder; `shown` is it without credentials.
        kept: what is said of work that waits for the store, at the end of a remedy.

    Raises:
        UserError: no file system of that kind is known or installed.
    """

    def __init__(self, url: str, kept: str) -> None:
        from fsspec.core import url_to_fs

        self.shown = mask(url, url)
        self._url, self._kept = url, kept
        try:
            self._fs, path = url_to_fs(url)
        except ImportError as error:
            raise UserError(
                f"{self.shown}: {error}",
                remedy="install it where this runs; for a job, that is the head node",
            ) from error
        except Exception as error:  # an unknown protocol, or options that its file system refuses
            raise UserError(
                f"{self.shown}: {mask(str(error), url)}",
                remedy="name a folder, or a URL that fsspec knows, such as s3://BUCKET/SWEEP",
            ) from error
        self._path = str(path).rstrip("/")

    def is_empty(self) -> bool:
        """Whether nothing lies there, but for a driver's claim."""
        try:
            found = self._asked("read", lambda: self._fs.ls(self._path, detail=False))
        except FileNotFoundError:
            return True
        return all(posixpath.basename(str(name).rstrip("/")) == CLAIM for name in found)

    def read(self, path: str) -> bytes | None:
        """A file's content; None where there is none."""
        return self.read_all([path]).get(path)

    def read_all(self, paths: Iterable[str]) -> dict[str, bytes]:
        """The content of those of the files that are there."""
        places = {self._at(path): path for path in paths}
        found = self._asked("read", lambda: self._fs.cat([*places], on_error="return"))
        read: dict[str, bytes] = {}
        for place, data in found.items():
            if isinstance(data, bytes):
                read[places[place]] = data
            elif not isinstance(data, FileNotFoundError):
                raise self._trouble("read", data)
        return read

    def write_all(self, files: Mapping[str, bytes]) -> None:
        """Write files; each replaces what was there in one step."""
        self._asked("write", self._write, {self._at(path): data for path, data in files.items()})

    def create(self, path: str, data: bytes) -> bool:
        """Write a file unless there is one; whether it was written. Where a file system cannot do
        both in one step, two who write at once may each hear that they did."""
        if EXCLUSIVE.intersection(self._protocols):
            with contextlib.suppress(Exception):  # a store may know no conditions: see below
                return self._create(self._at(path), data)
        if self.read(path) is not None:
            return False
        self.write_all({path: data})
        return True

    def _create(self, place: str, data: bytes) -> bool:
        if not PUT_WHOLE.intersection(self._protocols):
            self._fs.makedirs(posixpath.dirname(place), exist_ok=True)
        try:
            self._fs.pipe_file(place, data, mode="create")
        except FileExistsError:
            return False
        return True

    @property
    def _protocols(self) -> frozenset[str]:
        named = self._fs.protocol
        return frozenset({named} if isinstance(named, str) else named)

    def remove(self, paths: Iterable[str]) -> None:
        """Remove files; one that is not there is no trouble."""
        for path in paths:
            self._asked("write", self._remove, self._at(path))

    def _remove(self, place: str) -> None:
        with contextlib.suppress(FileNotFoundError):
            self._fs.rm(place)

    def _write(self, files: dict[str, bytes]) -> None:
        if PUT_WHOLE.intersection(self._protocols):
            self._fs.pipe(files)
            return
        for place, data in files.items():
            above, name = posixpath.split(place)
            temporary = f"{above}/.{name}.{secrets.token_hex(4)}.tmp"
            self._fs.makedirs(above, exist_ok=True)
            self._fs.pipe_file(temporary, data)
            self._fs.mv(temporary, place)

    def _at(self, path: str) -> str:
        return f"{self._path}/{path}"

    def _asked(self, verb: str, ask: Callable[..., Any], *args: Any) -> Any:
        """What the file system answers. FileNotFoundError passes when reading."""
        try:
            return ask(*args)
        except Exception as error:  # each file system has errors of its own
            if verb == "read" and isinstance(error, FileNotFoundError):
                raise
            raise self._trouble(verb, error) from error

    def _trouble(self, verb: str, error: Exception) -> StoreError:
        words = next(iter(str(error).strip().splitlines()), "")
        return StoreError(
            f"cannot {verb} {self.shown}: {mask(words, self._url) or type(error).__name__}",
            remedy=f"{_remedy(error)}; {self._kept}",
        )


def _remedy(error: Exception) -> str:
    words = f"{type(error).__name__} {error}"
    if isinstance(error, PermissionError) or re.search("(?i)credential|denied|forbidden", words):
        return "give this process credentials that may read and write there"
    if isinstance(error, FileNotFoundError):
        return "make the bucket or container that the address names, or choose another --results"
    return "check the address, and that this machine reaches it"
