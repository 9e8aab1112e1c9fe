"""`sampling`: several samples of each prompt at temperature 1, with nothing cut off the law, and of
some prompts more, with a temperature and top-k, and with top-p.

Launch A values every sampled token given those before it, so that the tokens themselves are tested
against the target's own probabilities, cut and cooled as the request says. Two samples of a prompt
have seeds of their own and two have none, since engines draw random numbers in different ways for
the two; they are sent next to each other, to run side by side. One seed of each prompt is sent
again at the end. Every arm has other seeds: samples that must agree between arms would tell
nothing.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence

from matrixrun.evidence.cells import Cell
from matrixrun.evidence.launches import Launch
from matrixrun.evidence.requests import Pass, Request
from matrixrun.judge import Setting, drawn_with
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
from matrixrun.workloads import Prompt, Workload

KIND = "sampling"
# Samples of a prompt: with a seed each, and without.
SAMPLES = {Setting.WHOLE: (2, 2), Setting.COOLED: (1, 1), Setting.NUCLEUS: (1, 1)}
# Natural prompts leave the target a choice; 32 of them with 4 samples of 32 tokens show a wrong
# residual (docs/method.md).
MOST_PROMPTS = 32
# A law that the settings do not reach is another one at every token.
MOST_PROMPTS_CUT = 8
DECIDED = "decided"


class SamplingProbe:
    """The probe; stateless."""

    kind = KIND
    rides_on: str | None = None
    compared = False
    needs = frozenset({Data.TOKENS, Data.STEPS, Data.SCORES, Data.TOPS})

    def passes(
        self, launch: Launch, cells: Sequence[Cell], workload: Workload, matrix: Matrix
    ) -> Passes:
        """Yield one pass for each batch size; on A followed by its null within the launch."""
        within = is_control(launch, matrix)
        for size in sorted({batch_size(cell) for cell in cells}):
            yield _pass(launch, main_pass(KIND, size), workload, matrix, size)
            if within:
                yield _pass(launch, null_pass(KIND, size), workload, matrix, size)

    def sources(self, cell: Cell, pair: PlannedPair) -> dict[str, tuple[Source, ...]]:
        """Return the passes that hold the cell's `on`, `off` and `null` samples."""
        return one_pass_an_arm(KIND, batch_size(cell), pair)


def _pass(launch: Launch, pass_id: str, workload: Workload, matrix: Matrix, size: int) -> Pass:
    source = Source(launch.id, pass_id)
    return Pass(
        id=pass_id,
        requests=sampling_requests(workload, matrix, key=f"{launch.id}.{pass_id}"),
        concurrency=size,
        salt=salt(source),
        logprobs=0,
    )


def sampling_requests(workload: Workload, matrix: Matrix, *, key: str) -> tuple[Request, ...]:
    """Return the samples to ask for; `key` names the arm, whose seeds are its own."""
    chosen = [prompt for prompt in workload.prompts if prompt.category != DECIDED]
    chosen = (chosen or list(workload.prompts))[:MOST_PROMPTS]
    first = [
        _request(prompt, setting, number, matrix, key)
        for place, prompt in enumerate(chosen)
        for setting, counts in SAMPLES.items()
        if setting is Setting.WHOLE or place < MOST_PROMPTS_CUT
        for number in range(sum(counts))
    ]
    again = [_renamed(one) for one in first if one.id.endswith(f".{Setting.WHOLE}0")]
    return (*first, *again)


def _request(prompt: Prompt, setting: Setting, number: int, matrix: Matrix, key: str) -> Request:
    seeded = number < SAMPLES[setting][0]
    name = f"{prompt.id}.{setting}{number}"
    return Request(
        id=f"{KIND}.{name}",
        prompt=prompt.id,
        category=prompt.category,
        token_ids=prompt.token_ids,
        max_tokens=matrix.workload.max_tokens,
        sampling=drawn_with(setting, _seed(matrix.seed, key, name) if seeded else None),
    )


def _renamed(request: Request) -> Request:
    return Request(
        id=f"{request.id}.again",
        prompt=request.prompt,
        category=request.category,
        token_ids=request.token_ids,
        max_tokens=request.max_tokens,
        sampling=request.sampling,
    )


def _seed(*parts: object) -> int:
    return zlib.crc32(".".join(map(str, parts)).encode()) & 0x7FFFFFFF
