"""The axes of a grid. A new axis is one line in AXES, and a field of the same name in ArmConfig.

The order of AXES is canonical: cells, ids and fingerprints follow it, never the matrix file.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from matrixrun.evidence.cells import AxisValue, Speculation
from matrixrun.matrix.axis_types import FLAG, OPTIONAL_TEXT, SIZE, SPECULATION, TEXT, AxisType


class Scope(StrEnum):
    """Who an axis belongs to: a `launch` axis changes how a server is started, a `client` axis is
    swept inside one running launch."""

    LAUNCH = "launch"
    CLIENT = "client"


class _Required:
    def __repr__(self) -> str:
        return "required"


REQUIRED = _Required()


@dataclass(frozen=True)
class Axis:
    """One dimension of the grid.

    `fragment` is its part of a cell's id, `{}` standing for the value; the part is left out where
    the value is the default, unless `always`. `label` is its short name in tables.
    """

    name: str
    type: AxisType
    default: AxisValue | _Required
    fragment: str
    label: str
    scope: Scope = Scope.LAUNCH
    always: bool = False

    @property
    def required(self) -> bool:
        """Whether the grid must name it."""
        return isinstance(self.default, _Required)

    def shown(self, value: AxisValue) -> bool:
        """Whether `value` appears in ids (and counts in fingerprints)."""
        return self.always or value != self.default


AXES: tuple[Axis, ...] = (
    Axis("engine", TEXT, REQUIRED, "{}", "engine", always=True),
    Axis("model", TEXT, REQUIRED, "{}", "model", always=True),
    Axis("quantization", TEXT, "none", "{}", "quant"),
    Axis("dtype", OPTIONAL_TEXT, None, "dtype-{}", "dtype"),
    Axis("kv_cache_dtype", OPTIONAL_TEXT, None, "kv-{}", "KV"),
    Axis("tensor_parallel_size", SIZE, 1, "tp{}", "TP"),
    Axis("pipeline_parallel_size", SIZE, 1, "pp{}", "PP"),
    Axis("data_parallel_size", SIZE, 1, "dp{}", "DP"),
    Axis("prefix_caching", FLAG, None, "pc-{}", "prefix cache"),
    Axis("speculation", SPECULATION, REQUIRED, "{}", "speculation", always=True),
    Axis("batch_size", SIZE, 1, "b{}", "batch", scope=Scope.CLIENT, always=True),
)

BY_NAME: dict[str, Axis] = {axis.name: axis for axis in AXES}
CLIENT_AXES: frozenset[str] = frozenset(a.name for a in AXES if a.scope is Scope.CLIENT)


def matches(rule: Mapping[str, Any], axes: Mapping[str, AxisValue]) -> bool:
    """Whether every axis that `rule` names has that value in `axes`.

    A speculation matches partially too: `{method: mtp}` matches every MTP entry.
    """
    return all(_agrees(wanted, axes[name]) for name, wanted in rule.items())


def _agrees(wanted: Any, value: AxisValue) -> bool:
    if isinstance(value, Speculation) and isinstance(wanted, Mapping):
        return all(_field(value, name) == part for name, part in wanted.items())
    return bool(wanted == value)


def _field(speculation: Speculation, name: str) -> Any:
    if name in ("method", "num_speculative_tokens", "draft"):
        return getattr(speculation, name)
    return speculation.options.get(name)
