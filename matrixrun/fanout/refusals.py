"""Cells that the engine's pure half refuses are evidence too, without any launch."""

from __future__ import annotations

import matrixrun
from matrixrun.evidence.launches import LaunchEnd, LaunchOutcome, Role
from matrixrun.evidence.verdicts import CellEvidence
from matrixrun.judge import JudgeSettings
from matrixrun.matrix import fingerprint
from matrixrun.plan import Plan


def refused_evidence(plan: Plan, settings: JudgeSettings) -> list[CellEvidence]:
    """Return the evidence of the plan's refused cells: an on launch that ended before it began."""
    return [
        CellEvidence(
            cell=cell,
            outcomes={
                Role.ON.value: LaunchOutcome(
                    launch="",
                    fingerprint="",
                    end=LaunchEnd.REFUSED,
                    message=plan.refused[cell.id],
                    attempts=0,
                )
            },
            records={},
            workload_sha256="",
            settings_sha256=fingerprint(settings),
            program=matrixrun.__version__,
        )
        for cell in plan.cells
        if cell.id in plan.refused
    ]
