"""Stand-in for torchvision: SGLang imports its names, text models never use them.

Every submodule and every name exists; calling one says that it is not the real thing.
"""

from __future__ import annotations

import enum
import importlib
import importlib.abc
import importlib.machinery
import sys
import types
from typing import Any, NoReturn

__version__ = "0.0.0"


class InterpolationMode(enum.Enum):
    """Looked up by member at import, so it has real ones."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


class _Absent:
    def __init__(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        raise RuntimeError(f"torchvision.{type(self).__name__} is a stand-in for tests")


class _Names(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return InterpolationMode if name == "InterpolationMode" else type(name, (_Absent,), {})


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(
        self, name: str, _path: Any, _target: Any = None, /
    ) -> importlib.machinery.ModuleSpec | None:
        if not name.startswith("torchvision."):
            return None
        return importlib.machinery.ModuleSpec(name, self, is_package=True)

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Names(spec.name)

    def exec_module(self, _module: types.ModuleType, /) -> None:
        """Nothing to run: names appear when asked for."""


sys.meta_path.append(_Finder())

transforms = importlib.import_module("torchvision.transforms")
