"""How cells are called where people read them: tables, MLflow, the summary."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from matrixrun.evidence.cells import AxisValue, Cell, Speculation
from matrixrun.evidence.verdicts import CellResult
from matrixrun.matrix import fingerprint

# The short dotted names of the axes, as columns of MLflow's tables.
SHORT = {
    "quantization": "quant",
    "tensor_parallel_size": "tp",
    "pipeline_parallel_size": "pp",
    "data_parallel_size": "dp",
    "prefix_caching": "prefix_cache",
    "batch_size": "batch",
    "kv_cache_dtype": "kv_dtype",
}

CLIENT_AXES = ("batch_size",)


def params(cell: Cell) -> dict[str, str]:
    """A cell's axes as short dotted names and words: `tp` "2", `spec.k` "4"."""
    named: dict[str, str] = {}
    for axis, value in cell.axes.items():
        if isinstance(value, Speculation):
            named |= _speculation_params(value)
        else:
            named[SHORT.get(axis, axis)] = _word(value)
    return named


def _speculation_params(speculation: Speculation) -> dict[str, str]:
    k = speculation.num_speculative_tokens
    named = {
        "spec.method": speculation.method,
        "spec.k": "default" if k is None else str(k),
        "spec.draft": speculation.draft or "none",
    }
    return named | {f"spec.{key}": str(value) for key, value in speculation.options.items()}


def _word(value: AxisValue) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    if value is None:
        return "default"
    return str(value)


def label(axis: str, value: AxisValue) -> str:
    """One axis of a cell in a word: `tp2`, `pc-off`, `b8`, `ngram-k4`; "" where there is nothing
    to say (a default)."""
    if isinstance(value, Speculation):
        # Two speculations may differ in their options alone: the same four digits as in the id.
        return f"{value.label}-{fingerprint(value.options)[:4]}" if value.options else value.label
    if axis in ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size"):
        return "" if value == 1 else f"{axis[0]}p{value}"
    if axis == "batch_size":
        return f"b{value}"
    if axis == "prefix_caching":
        return "" if value is None else f"pc-{_word(value)}"
    if value is None or (axis, value) == ("quantization", "none"):
        return ""
    return f"kv-{value}" if axis == "kv_cache_dtype" else str(value)


def plainly(results: Sequence[CellResult]) -> list[CellResult]:
    """The results with the options of a speculation left out of their axes, wherever its label
    alone tells it from the others."""
    options: dict[str, set[str]] = {}
    for result in results:
        speculation = result.cell.axes.get("speculation")
        if isinstance(speculation, Speculation):
            options.setdefault(speculation.label, set()).add(fingerprint(speculation.options))

    def plain(value: AxisValue) -> AxisValue:
        if isinstance(value, Speculation) and len(options[value.label]) == 1:
            return msgspec.structs.replace(value, options={})
        return value

    replace = msgspec.structs.replace
    return [
        replace(r, cell=replace(r.cell, axes={a: plain(v) for a, v in r.cell.axes.items()}))
        for r in results
    ]


def labels(axes: Mapping[str, AxisValue], only: Sequence[str] | None = None) -> str:
    """The axes of a cell in one line, defaults left out: `vllm tiny-dense tp2 ngram-k4 b8`."""
    words = [label(axis, value) for axis, value in axes.items() if only is None or axis in only]
    return " ".join(word for word in words if word)


def reading_order(axes: Mapping[str, AxisValue]) -> str:
    """As `labels`, but what tells cells apart comes first: MLflow's columns are narrow."""
    first = [axis for axis in ("speculation", "batch_size", "model") if axis in axes]
    rest = [axis for axis in axes if axis not in (*first, "engine")]
    words = [label(axis, axes[axis]) for axis in (*first, *rest, "engine") if axis in axes]
    return " ".join(word for word in words if word)


def varying(cells: Sequence[Cell]) -> tuple[str, ...]:
    """The axes that have more than one value among `cells`, in their canonical order."""
    values: dict[str, set[str]] = {}
    for cell in cells:
        for axis, value in cell.axes.items():
            values.setdefault(axis, set()).add(label(axis, value))
    return tuple(axis for axis, seen in values.items() if len(seen) > 1)
