"""Arms of vLLM for tests."""

from __future__ import annotations

from matrixrun.engines.vllm.command import CPU_RECIPE
from matrixrun.evidence.cells import Speculation
from matrixrun.evidence.launches import Arm, ArmConfig, Checkpoint

OFF = ArmConfig(
    engine="vllm",
    kind="vllm",
    arm=Arm.OFF,
    recipe=CPU_RECIPE,
    model="tiny-dense",
    target=Checkpoint(path="builtin:tiny-dense"),
)
NGRAM = Speculation(method="ngram", num_speculative_tokens=4, options={"prompt_lookup_max": 3})
