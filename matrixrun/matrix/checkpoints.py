"""Which checkpoints a cell uses: the target for its quantization, the draft for its speculation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from matrixrun.evidence.cells import AxisValue, Speculation
from matrixrun.matrix.schema import CheckpointSpec, ModelSpec


@dataclass(frozen=True)
class Target:
    """A target checkpoint; `quantized` says that its weights hold the cell's quantization already,
    so that the engine is not asked to quantize."""

    checkpoint: CheckpointSpec
    quantized: bool


def target_of(model: ModelSpec, quantization: str) -> Target | None:
    """The checkpoint of `model` for a quantization value, or None if it has none for it.

    A model with one `target` takes every value: the engine quantizes it while loading.
    """
    if model.target is not None:
        return Target(model.target, quantized=False)
    checkpoint = model.targets.get(quantization)
    if checkpoint is None:
        return None
    return Target(checkpoint, quantized=quantization != "none" and not checkpoint.online)


def unavailable(models: Mapping[str, ModelSpec], axes: Mapping[str, AxisValue]) -> str | None:
    """Why the cell's model has no checkpoint for it, or None if it has all."""
    name, quantization, speculation = axes["model"], axes["quantization"], axes["speculation"]
    assert isinstance(speculation, Speculation)
    model = models[str(name)]
    if target_of(model, str(quantization)) is None:
        return f"model `{name}` has no checkpoint for quantization `{quantization}`"
    if speculation.draft is not None and speculation.draft not in model.drafts:
        return f"model `{name}` has no draft `{speculation.draft}`"
    return None
