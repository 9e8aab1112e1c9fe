"""On arms that are looked into: vLLM's own seams for a drafter and a scheduler of one's own, and
ours behind them. Pure."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec

from matrixrun.engines import flags
from matrixrun.evidence.cells import Speculation
from matrixrun.evidence.launches import ArmConfig

FOLDER = Path(__file__).with_name("inside")
DRAFTER = "matrixrun_forced_drafts.Drafter"
SCHEDULER = "matrixrun_ledger.scheduler"
SCHEDULER_FLAG = "--scheduler-cls"
METHOD = "custom_class"


def forced(config: ArmConfig) -> ArmConfig | None:
    """The same arm with the planned drafts in its method's place, and traced, see Engine.forced.
    The method itself does not enter: arms that differ in it alone have the same."""
    speculation = config.speculation
    if speculation is None or speculation.num_speculative_tokens is None:
        return None
    path = _path(config)
    return msgspec.structs.replace(
        traced(config) or msgspec.structs.replace(config, env={**config.env, "PYTHONPATH": path}),
        draft=None,
        speculation=Speculation(
            method=METHOD,
            num_speculative_tokens=speculation.num_speculative_tokens,
            options={"model": DRAFTER},
        ),
    )


def traced(config: ArmConfig) -> ArmConfig | None:
    """The same arm with a scheduler that keeps a ledger, see Engine.traced; None where the user
    has a scheduler of their own, or replicas have one each and a launch keeps one ledger."""
    if SCHEDULER_FLAG in flags.flags_of(config.args, {}) or config.data_parallel_size > 1:
        return None
    return msgspec.structs.replace(
        config,
        args=(*config.args, SCHEDULER_FLAG, SCHEDULER),
        env={**config.env, "PYTHONPATH": _path(config), "MATRIXRUN_LEDGER": "$LEDGER"},
    )


def _path(config: ArmConfig) -> str:
    return os.pathsep.join(part for part in (str(FOLDER), config.env.get("PYTHONPATH")) if part)
