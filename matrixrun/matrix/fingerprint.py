"""Fingerprints: a short hash of what determines a result, and of nothing else."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import msgspec
from pydantic import BaseModel

LENGTH = 16


def fingerprint(value: Any) -> str:
    """16 hex digits of the sha256 over `canonical(value)`."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:LENGTH]


def canonical(value: Any) -> str:
    """A value as JSON text that is equal exactly when the values are: sorted keys, no white space,
    ASCII. Structs and models become mappings, tuples lists.

    Raises:
        TypeError, ValueError: for a value with no such form (a function, NaN).
    """
    plain = msgspec.to_builtins(value, enc_hook=_plain)
    return json.dumps(
        plain, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False
    )


def _plain(value: Any) -> Any:
    if isinstance(value, BaseModel):
        return value.model_dump(mode="python")
    raise TypeError(f"no canonical form for {type(value).__name__}")
