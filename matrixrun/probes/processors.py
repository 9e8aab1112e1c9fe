"""`processors`: greedy answers with one logits processor on, on against off.

Penalties look at what was generated so far, the tokens of a draft included that are not committed
yet, and so do bad words of several tokens; masks must hold at draft positions as elsewhere. What is
looked for seldom falls within one draft, so that these are sent with more prompts than the others,
and penalties, since a token hardly ever comes back there, with three starts of each.
"""

from __future__ import annotations

from collections.abc import Sequence

from matrixrun.evidence.cells import Cell
from matrixrun.evidence.launches import Launch
from matrixrun.evidence.requests import Pass, Request
from matrixrun.judge import Processor, sampling_of
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

KIND = "processors"
MOST_PROMPTS = 12
MOST_PROMPTS_WITHIN = 32
# What depends on the draft's own tokens is sent with more prompts.
WITHIN_A_DRAFT = (Processor.PENALTIES, Processor.BAD_WORDS)
# Parts of three of a prompt that penalties begin from. From another start the text is another one,
# and many short starts show more than few long answers.
STARTS = (3, 2, 1)
# An answer must be longer than the least length that one of the processors asks for.
LEAST_TOKENS = 16


class ProcessorsProbe:
    """The probe; stateless."""

    kind = KIND
    rides_on: str | None = None
    compared = False
    needs = frozenset({Data.TOKENS, Data.SCORES, Data.TOPS})

    def passes(
        self, launch: Launch, cells: Sequence[Cell], workload: Workload, matrix: Matrix
    ) -> Passes:
        """Yield one pass for each batch size; on A followed by its null within the launch."""
        within = is_control(launch, matrix)
        requests = processor_requests(workload, matrix)
        for size in sorted({batch_size(cell) for cell in cells}):
            yield _pass(launch, main_pass(KIND, size), requests, size)
            if within:
                yield _pass(launch, null_pass(KIND, size), requests[::-1], size)

    def sources(self, cell: Cell, pair: PlannedPair) -> dict[str, tuple[Source, ...]]:
        """Return the passes that hold the cell's `on`, `off` and `null` answers."""
        return one_pass_an_arm(KIND, batch_size(cell), pair)


def _pass(launch: Launch, pass_id: str, requests: tuple[Request, ...], size: int) -> Pass:
    namespace = salt(Source(launch.id, pass_id))
    return Pass(id=pass_id, requests=requests, concurrency=size, salt=namespace)


def processor_requests(workload: Workload, matrix: Matrix) -> tuple[Request, ...]:
    """Return the first prompts with each processor; a request's id names the processor:
    `processors.<processor>.<prompt>`, and behind that the start, where it is not the whole."""
    return tuple(
        Request(
            id=f"{KIND}.{processor}.{prompt.id}{name}",
            prompt=prompt.id,
            category=prompt.category,
            token_ids=start,
            max_tokens=max(matrix.workload.max_tokens, LEAST_TOKENS),
            sampling=sampling_of(processor, start, matrix.seed, prompt.bad_words),
        )
        for place, prompt in enumerate(workload.prompts[:MOST_PROMPTS_WITHIN])
        for processor in Processor
        if place < MOST_PROMPTS or processor in WITHIN_A_DRAFT
        # These are texts, or are judged by texts, which a resumed sweep would not know.
        if matrix.store_text or processor not in (Processor.GRAMMAR, Processor.BAD_WORDS)
        if prompt.bad_words or processor is not Processor.BAD_WORDS
        for name, start in _starts(processor, prompt.token_ids)
    )


def _starts(processor: Processor, prompt: tuple[int, ...]) -> list[tuple[str, tuple[int, ...]]]:
    """Return what a processor is sent of a prompt: all of it, and with penalties shorter starts."""
    parts = STARTS if processor is Processor.PENALTIES else STARTS[:1]
    lengths = {max(1, len(prompt) * part // STARTS[0]): part for part in reversed(parts)}
    return [
        ("" if part == STARTS[0] else f".{part}", prompt[:length])
        for length, part in lengths.items()
    ]
