"""The seam behind which every probe stands. A probe knows neither Ray nor HTTP."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from enum import StrEnum
from typing import NamedTuple, Protocol

from matrixrun.evidence.cells import Cell
from matrixrun.evidence.launches import Launch, Role
from matrixrun.evidence.requests import Observation, Pass
from matrixrun.matrix import fingerprint
from matrixrun.matrix.schema import Matrix
from matrixrun.plan import PlannedPair
from matrixrun.workloads import Workload


class Data(StrEnum):
    """What a probe reads of an observation; an engine that lacks it cannot answer the probe. TOPS
    are scores that hold the best tokens of every position, not the best one alone."""

    TOKENS = "tokens"
    LOGPROBS = "logprobs"
    SCORES = "scores"
    TOPS = "tops"
    STEPS = "steps"


class Source(NamedTuple):
    """Where observations come from: a pass of a launch."""

    launch: str
    pass_id: str


class Answered(NamedTuple):
    """What came of a pass: its observations, and the engine's counters before and after."""

    observations: tuple[Observation, ...]
    counters_before: dict[str, float]
    counters_after: dict[str, float]


Passes = Generator[Pass, Answered, None]


def salt(source: Source) -> str:
    """Return the cache namespace of a pass: its own, and short and plain for every engine."""
    return fingerprint([source.launch, source.pass_id])


def is_control(launch: Launch, matrix: Matrix) -> bool:
    """Return whether a launch answers twice: A, where there is no B to be the control."""
    within = matrix.control_of(launch.config.engine) == "within-launch"
    return launch.role is Role.A and within


def main_pass(kind: str, size: int) -> str:
    """Return the id of a probe's pass with `size` requests in flight."""
    return f"{kind}.b{size}"


def null_pass(kind: str, size: int) -> str:
    """Return the id of its repetition within the launch."""
    return f"{main_pass(kind, size)}.null"


def one_pass_an_arm(kind: str, size: int, pair: PlannedPair) -> dict[str, tuple[Source, ...]]:
    """Return the sources of a probe that sends each arm one pass; its null is launch B's, or A's
    repetition where there is no B."""
    main = main_pass(kind, size)
    null = (pair.off, null_pass(kind, size)) if pair.null is None else (pair.null, main)
    found = {"on": (pair.on, main), "off": (pair.off, main), "null": null}
    return {arm: (Source(*one),) for arm, one in found.items()}


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
    def compared(self) -> bool:
        """Whether `on`, `off` and `null` answer the same requests greedily, to be compared token
        by token."""
        ...

    @property
    def needs(self) -> frozenset[Data]:
        """What it reads of each observation; what is emitted is scored only where it reads
        scores."""
        ...

    def passes(
        self, launch: Launch, cells: Sequence[Cell], workload: Workload, matrix: Matrix
    ) -> Passes:
        """Yield what to send to `launch`, which serves `cells`, in order.

        Each `yield` gives back what came of that pass, so that the next may be built on it. A
        pass's id begins with the probe's kind, and so do the ids of its requests where they are
        not the workload's.
        """
        ...

    def sources(self, cell: Cell, pair: PlannedPair) -> dict[str, tuple[Source, ...]]:
        """Return by arm (`on`, `off`, `null`, and others that it knows) the passes whose
        observations, one after the other, are the cell's. A pass that was not needed is absent
        from what was observed."""
        ...
