"""`acceptance`: how many draft tokens each verification step accepted.

It sends nothing of its own: equality's passes carry the per-step data that it reads.
"""

from __future__ import annotations

from collections.abc import Sequence

from matrixrun.evidence.cells import Cell
from matrixrun.evidence.launches import Launch
from matrixrun.matrix.schema import Matrix
from matrixrun.plan import PlannedPair
from matrixrun.probes import equality
from matrixrun.probes.protocol import Data, Passes, Source
from matrixrun.workloads import Workload


class Acceptance:
    """The probe; stateless."""

    kind = "acceptance"
    rides_on: str | None = equality.Equality.kind
    compared = False
    needs = frozenset({Data.STEPS})

    def passes(
        self,
        launch: Launch,  # noqa: ARG002 - the protocol's
        cells: Sequence[Cell],  # noqa: ARG002
        workload: Workload,  # noqa: ARG002
        matrix: Matrix,  # noqa: ARG002
    ) -> Passes:
        """Yield nothing: it rides on equality's passes."""
        yield from ()

    def sources(self, cell: Cell, pair: PlannedPair) -> dict[str, tuple[Source, ...]]:
        """Return the pass whose steps are read: the on arm's."""
        return {"on": equality.Equality().sources(cell, pair)["on"]}
