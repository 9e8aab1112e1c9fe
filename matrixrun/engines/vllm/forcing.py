"""An on arm whose drafts are planned: vLLM's own seam for drafters, and ours behind it. Pure."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from matrixrun.evidence.cells import Speculation
from matrixrun.evidence.launches import ArmConfig

FOLDER = Path(__file__).with_name("forced_drafts")
DRAFTER = "matrixrun_forced_drafts.Drafter"
METHOD = "custom_class"


def forced(config: ArmConfig) -> ArmConfig | None:
    """The same arm with the planned drafts in its method's place, see Engine.forced. The method
    itself does not enter: arms that differ in it alone have the same."""
    speculation = config.speculation
    if speculation is None or speculation.num_speculative_tokens is None:
        return None
    path = os.pathsep.join(part for part in (str(FOLDER), config.env.get("PYTHONPATH")) if part)
    return msgspec.structs.replace(
        config,
        draft=None,
        speculation=Speculation(
            method=METHOD,
            num_speculative_tokens=speculation.num_speculative_tokens,
            options={"model": DRAFTER},
        ),
        env={**config.env, "PYTHONPATH": path},
    )
