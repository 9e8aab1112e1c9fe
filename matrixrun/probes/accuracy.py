"""`accuracy`: a task with known answers, put to every arm by lm-evaluation-harness.

The harness renders its prompts, sends them as texts and says which answers are right; matrixrun
neither sees token ids nor scores what was emitted. It comes last, when a launch has gone through
all that the other probes do to it. The control answers too: how many documents flip between two
launches without speculation is the measure of how many may flip with it.
"""

from __future__ import annotations

from collections.abc import Sequence

from matrixrun.evidence.cells import Cell
from matrixrun.evidence.launches import Launch
from matrixrun.evidence.requests import Pass
from matrixrun.matrix.schema import Matrix
from matrixrun.plan import PlannedPair, batch_size
from matrixrun.probes.protocol import (
    Data,
    Passes,
    Source,
    is_control,
    main_pass,
    null_pass,
    one_pass_an_arm,
    salt,
)
from matrixrun.workloads import Workload

KIND = "accuracy"


class Accuracy:
    """The probe; stateless."""

    kind = KIND
    rides_on: str | None = None
    compared = False
    needs: frozenset[Data] = frozenset()

    def passes(
        self,
        launch: Launch,
        cells: Sequence[Cell],
        workload: Workload,  # noqa: ARG002 - the protocol's
        matrix: Matrix,
    ) -> Passes:
        """Yield the task once for each batch size; on A twice where it is its own control."""
        task, within = matrix.source.task, is_control(launch, matrix)
        if task is None:
            return
        for size in sorted({batch_size(cell) for cell in cells}):
            names = [main_pass(KIND, size), *([null_pass(KIND, size)] if within else [])]
            for name in names:
                namespace = salt(Source(launch.id, name))
                yield Pass(id=name, task=task, concurrency=size, salt=namespace)

    def sources(self, cell: Cell, pair: PlannedPair) -> dict[str, tuple[Source, ...]]:
        """Return the passes that hold the cell's `on`, `off` and `null` answers."""
        return one_pass_an_arm(KIND, batch_size(cell), pair)
