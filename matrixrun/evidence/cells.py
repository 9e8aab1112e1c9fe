"""Cells: one assignment of every axis, which names exactly one pair."""

from __future__ import annotations

from typing import Any

import msgspec


class Speculation(msgspec.Struct, frozen=True, kw_only=True):
    """A speculation method and its parameters, in the engines' own words.

    `draft` names an entry of the model's `drafts:` (or is None for methods without one);
    `options` holds every further field as written, passed to the engine untouched.
    """

    method: str
    num_speculative_tokens: int | None = None
    draft: str | None = None
    options: dict[str, Any] = {}

    @property
    def label(self) -> str:
        """Short name a person can read and type: `ngram-k4`, `draft_model-k3`."""
        name = self.method
        if self.draft is not None and self.draft not in (self.method, "draft"):
            name += f"-{self.draft}"
        k = self.num_speculative_tokens
        return name if k is None else f"{name}-k{k}"


Scalar = str | int | float | bool | None
AxisValue = str | int | float | bool | None | Speculation


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One pair of the matrix.

    `id` is what a person types (`vllm.tiny-dense.tp2.ngram-k4.b8`): it depends on this cell's own
    axes only, never on the order or size of the grid. `axes` is in canonical axis order.
    `fingerprint` hashes all that determines the cell's result.
    """

    id: str
    axes: dict[str, AxisValue]
    fingerprint: str


class Excluded(msgspec.Struct, frozen=True, kw_only=True):
    """An assignment that the matrix file takes out, and the rule that did it."""

    axes: dict[str, AxisValue]
    reason: str
