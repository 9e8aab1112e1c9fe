"""Paths in a matrix file are relative to the folder it lies in.

The folder comes as pydantic's validation context (a `Folder`); without one, as for a matrix made in
code, paths stay as they are.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import ValidationInfo

BUILTIN = "builtin:"


@dataclass(frozen=True)
class Folder:
    """The matrix file's folder; `written` collects resolved path -> path as written."""

    path: Path
    written: dict[str, str] = field(default_factory=dict)

    def resolve(self, text: str) -> str:
        """`text` as an absolute path without `..`; `~` is the user's home."""
        if "\0" in text:
            raise ValueError("a path cannot hold a zero byte")
        path = os.path.normpath(self.path / os.path.expanduser(text))  # noqa: PTH111 - never raises
        self.written[path] = text
        return path


def file_path(text: str, info: ValidationInfo) -> str:
    """Resolve a value that is a file or folder, unless it names one of ours (`builtin:name`)."""
    if not isinstance(info.context, Folder) or text.startswith(BUILTIN):
        return text
    return info.context.resolve(text)


def dotted_path(text: str, info: ValidationInfo) -> str:
    """Resolve a checkpoint when it is plainly a folder (`./x`, `../x`, `~/x`): `org/name` is a hub
    id, `builtin:name` one of ours."""
    relative = text in (".", "..") or text.startswith(("./", "../", "~/"))
    return file_path(text, info) if relative else text


def interpreter_path(text: str, info: ValidationInfo) -> str:
    """Resolve an interpreter unless it is a bare command (`python3.12`), found on PATH."""
    return file_path(text, info) if "/" in text else text
