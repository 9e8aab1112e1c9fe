"""A cell's id and fingerprint: both follow from the cell and its entries in the file, never from
the order or size of the grid."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from functools import cache
from typing import Any

from matrixrun.evidence.cells import AxisValue, Cell, Speculation
from matrixrun.matrix.axes import AXES, BY_NAME
from matrixrun.matrix.checkpoints import target_of
from matrixrun.matrix.fingerprint import canonical, fingerprint
from matrixrun.matrix.schema import CheckpointSpec, Matrix

MAX_ID = 150
"""Ids are file names, with room left for a launch's prefix and a suffix under the usual 255."""
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")

Assignment = Mapping[str, AxisValue]


def identify(assignments: list[dict[str, AxisValue]], matrix: Matrix) -> tuple[Cell, ...]:
    """The assignments as cells, in the same order."""
    ids = [cell_id(axes) for axes in assignments]
    seen = Counter(name.casefold() for name in ids)
    parts = _Parts(matrix)
    return tuple(
        Cell(
            id=name if seen[name.casefold()] == 1 else _suffixed(name, axes),
            axes=axes,
            fingerprint=parts.fingerprint(axes),
        )
        for name, axes in zip(ids, assignments, strict=True)
    )


def cell_id(axes: Assignment) -> str:
    """What a person types for a cell: `vllm.tiny-dense.tp2.pc-off.ngram-k4.b8`.

    Characters that no file name should have become `-`, and the id then ends in 4 hex digits of
    the cell's own axes, as it does beyond 150 characters.
    """
    shown = [axis for axis in AXES if axis.shown(axes[axis.name])]
    text = ".".join(axis.fragment.format(axis.type.word(axes[axis.name])) for axis in shown)
    safe = _UNSAFE.sub("-", text).lstrip(".-")
    if safe == text and len(text) <= MAX_ID:
        return text
    return _suffixed(safe[:MAX_ID], axes)


def _suffixed(name: str, axes: Assignment) -> str:
    return f"{name}-{fingerprint(axes)[:4]}"


class _Parts:
    """Fingerprints of a matrix's entries, each made once and shared by the cells that use it."""

    def __init__(self, matrix: Matrix) -> None:
        self._matrix = matrix
        self._settings = fingerprint(_settings(matrix))
        self._engine = cache(self._engine_part)
        self._checkpoints = cache(self._checkpoints_part)

    def fingerprint(self, axes: Assignment) -> str:
        """Of all that determines the cell's result: its axes, the engine's entry, the checkpoints
        concerned, workload and settings."""
        speculation = axes["speculation"]
        assert isinstance(speculation, Speculation)
        shown = {axis.name: axes[axis.name] for axis in AXES if axis.shown(axes[axis.name])}
        model = (str(axes["model"]), str(axes["quantization"]), speculation.draft)
        parts = [self._engine(str(axes["engine"])), self._checkpoints(*model), self._settings]
        return fingerprint([shown, *parts])

    def _engine_part(self, name: str) -> str:
        return fingerprint(self._portable(self._matrix.engines[name].model_dump()))

    def _checkpoints_part(self, name: str, quantization: str, draft: str | None) -> str:
        model = self._matrix.models[name]
        target = target_of(model, quantization)
        assert target is not None
        drafts = [model.drafts[draft]] if draft is not None else []
        return fingerprint(
            [self._checkpoint(target.checkpoint), target.quantized, *map(self._checkpoint, drafts)]
        )

    def _checkpoint(self, checkpoint: CheckpointSpec) -> dict[str, Any]:
        kept: dict[str, Any] = self._portable(checkpoint.model_dump(exclude={"online"}))
        return kept

    def _portable(self, value: Any) -> Any:
        return portable(value, self._matrix)


def _settings(matrix: Matrix) -> Any:
    """What else determines results. The accelerator does; on CPU the cores of a rank do, since the
    number of threads decides how sums are split. Time limits, `detect` and `expect` do not."""
    resources = matrix.resources
    hardware = [resources.accelerator] if resources.accelerator else resources.cpus_per_rank
    spread = {} if resources.ranks_per_node is None else {"ranks": resources.ranks_per_node}
    accuracy = matrix.accuracy
    task = {} if accuracy is None else {"accuracy": portable(accuracy.model_dump(), matrix)}
    return {
        **spread,
        **task,
        "workload": portable(matrix.workload.model_dump(), matrix),
        "probes": sorted(set(matrix.probes)),
        "control": matrix.control,
        "equality": matrix.equality,
        "seed": matrix.seed,
        "hardware": hardware,
    }


def portable(value: Any, matrix: Matrix) -> Any:
    """A dumped section without its empty parts (so that a key added to the schema later changes no
    fingerprint), with paths as the file writes them and the digests of what lies there."""
    source = matrix.source
    if isinstance(value, dict):
        parts = {name: portable(part, matrix) for name, part in value.items()}
        return {name: part for name, part in parts.items() if part not in (None, [], {})}
    if isinstance(value, list | tuple):
        return [portable(part, matrix) for part in value]
    if isinstance(value, str) and value in source.written:
        return [source.written[value], source.digests.get(value)]
    return value


def sort_key(axes: Assignment) -> tuple[tuple[int, str | int, str], ...]:
    """A total order over cells: axis by axis, numbers by size, text by letter."""
    return tuple(value_key(axes[name]) for name in BY_NAME)


def value_key(value: AxisValue) -> tuple[int, str | int, str]:
    """A value's place in that order."""
    if value is None:
        return (0, 0, "")
    if isinstance(value, bool | int | float):
        return (1, int(value), "")
    if isinstance(value, str):
        return (2, value, "")
    return (3, value.method, f"{value.num_speculative_tokens or 0:09d}{canonical(value)}")
