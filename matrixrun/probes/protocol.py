"""The seam behind which every probe stands. A probe knows neither Ray nor HTTP."""

from __future__ import annotations

from collections.abc import Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from matrixrun.evidence.cells import Cell
from matrixrun.evidence.launches import Launch
from matrixrun.evidence.requests import Pass
from matrixrun.matrix import fingerprint
from matrixrun.matrix.schema import Matrix
from matrixrun.plan import PlannedPair
from matrixrun.workloads import Workload


class Data(StrEnum):
    """What a probe reads of an observation; an engine that lacks it cannot answer the probe."""

    TOKENS = "tokens"
    LOGPROBS = "logprobs"
    SCORES = "scores"
    STEPS = "steps"


class Source(NamedTuple):
    """Where observations come from: a pass of a launch."""

    launch: str
    pass_id: str


def salt(source: Source) -> str:
    """Return the cache namespace of a pass: its own, and short and plain for every engine."""
    return fingerprint([source.launch, source.pass_id])


class Probe(Protocol):
    """A workload's passes and what is measured under them."""

    @property
    def kind(self) -> str:
        """The word in a matrix file's `probes:`."""
        ...

    @property
    def rides_on(self) -> str | None:
        """The probe whose passes this one reads; None when it has passes of its own."""
        ...

    @property
    def needs(self) -> frozenset[Data]:
        """What it reads of each observation."""
        ...

    def passes(
        self, launch: Launch, cells: Sequence[Cell], workload: Workload, matrix: Matrix
    ) -> tuple[Pass, ...]:
        """Return what to send to `launch`, which serves `cells`, in order."""
        ...

    def sources(self, cell: Cell, pair: PlannedPair) -> dict[str, Source]:
        """Return where the cell's `on`, `off` and `null` observations come from."""
        ...
