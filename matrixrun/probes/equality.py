"""`equality`: every launch answers the same requests, at each batch size of its cells.

Where prefixes are cached, every third prompt is sent a second time at the end of the pass: its
cached prefix is reused then, and the answer to a warm request is compared with a warm one.

The null is what differs with no speculation at all. Between launches it is the same pass on B;
within a launch it is the same requests on A once more, in reversed order, so that each is batched
with others than before.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from matrixrun.evidence.cells import Cell
from matrixrun.evidence.launches import Launch
from matrixrun.evidence.requests import Pass, Request, Sampling
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

REPEAT_EVERY = 3


class Equality:
    """The probe; stateless."""

    kind = "equality"
    rides_on: str | None = None
    compared = True
    needs = frozenset({Data.TOKENS, Data.LOGPROBS, Data.SCORES})

    def passes(
        self, launch: Launch, cells: Sequence[Cell], workload: Workload, matrix: Matrix
    ) -> Passes:
        """Yield one pass for each batch size; on A followed by its null within the launch."""
        cold = _requests(workload, matrix)
        warm = _again(cold) if launch.config.prefix_caching else ()
        within = is_control(launch, matrix)
        for size in sorted({batch_size(cell) for cell in cells}):
            yield _pass(launch, main_pass(self.kind, size), cold + warm, size)
            if within:
                yield _pass(launch, null_pass(self.kind, size), cold[::-1] + warm[::-1], size)

    def sources(self, cell: Cell, pair: PlannedPair) -> dict[str, tuple[Source, ...]]:
        """Return the passes that hold the cell's `on`, `off` and `null` observations."""
        return one_pass_an_arm(self.kind, batch_size(cell), pair)


def _requests(workload: Workload, matrix: Matrix) -> tuple[Request, ...]:
    sampling = Sampling(seed=matrix.seed, ignore_eos=matrix.workload.ignore_eos)
    return tuple(
        Request(
            id=prompt.id,
            prompt=prompt.id,
            category=prompt.category,
            token_ids=prompt.token_ids,
            max_tokens=matrix.workload.max_tokens,
            sampling=sampling,
        )
        for prompt in workload.prompts
    )


def _again(requests: tuple[Request, ...]) -> tuple[Request, ...]:
    """Return every third request under another id; the prompt, the unit of statistics, stays."""
    return tuple(
        msgspec.structs.replace(request, id=f"{request.id}.again")
        for request in requests[::REPEAT_EVERY]
    )


def _pass(launch: Launch, pass_id: str, requests: tuple[Request, ...], size: int) -> Pass:
    namespace = salt(Source(launch.id, pass_id))
    return Pass(id=pass_id, requests=requests, concurrency=size, salt=namespace)
