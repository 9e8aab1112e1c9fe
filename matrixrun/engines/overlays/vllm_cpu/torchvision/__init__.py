"""A text-only stand-in for torchvision, by matrixrun.

Some text models (Qwen3.5) share a module with their vision siblings, whose import asks for names of
torchvision although no image is ever read. Every submodule and name exists here; using one says
that it is not the real thing.
"""

from __future__ import annotations

import enum
import importlib.abc
import importlib.machinery
import sys
import types
from collections.abc import Sequence
from typing import Any, NoReturn

__version__ = "0.28.0"


class InterpolationMode(enum.Enum):
    """Compared and used as keys at import, so it has its real members."""

    NEAREST = "nearest"
    NEAREST_EXACT = "nearest-exact"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


class _Absent:
    def __init__(self, *_args: Any, **_kwargs: Any) -> NoReturn:
        raise RuntimeError(
            f"torchvision.{type(self).__name__}: this environment has matrixrun's text-only "
            "stand-in; install torchvision to serve images"
        )


class _Module(types.ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if name == "InterpolationMode":
            return InterpolationMode
        return type(name, (_Absent,), {})


class _Finder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(
        self, name: str, _path: Sequence[str] | None, _target: types.ModuleType | None = None, /
    ) -> importlib.machinery.ModuleSpec | None:
        if name.startswith(f"{__name__}."):
            return importlib.machinery.ModuleSpec(name, self, is_package=True)
        return None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> types.ModuleType:
        return _Module(spec.name)

    def exec_module(self, _module: types.ModuleType, /) -> None:
        """Nothing to run: names appear when asked for."""


sys.meta_path.append(_Finder())
