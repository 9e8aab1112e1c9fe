"""Arms of SGLang for tests."""

from __future__ import annotations

from pathlib import Path

from matrixrun.evidence.cells import Speculation
from matrixrun.evidence.launches import Arm, ArmConfig, Checkpoint
from matrixrun.matrix import load
from matrixrun.plan.arms import recipe_of

MATRIX = Path(__file__).parents[2] / "matrices" / "sglang-cpu.yaml"
STAND_IN = recipe_of(load(MATRIX).engines["sglang"])
"""SGLang itself with the stand-in kernels of `sglang_cpu`, as the ready matrix installs it."""

OFF = ArmConfig(
    engine="sglang",
    kind="sglang",
    arm=Arm.OFF,
    recipe=STAND_IN,
    model="tiny-dense",
    target=Checkpoint(path="builtin:tiny-dense"),
)
NGRAM = Speculation(
    method="ngram", num_speculative_tokens=3, options={"speculative_ngram_max_bfs_breadth": 1}
)
DRAFT = Speculation(method="draft_model", num_speculative_tokens=3, draft="draft")
