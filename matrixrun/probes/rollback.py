"""`rollback`: drafts that are right up to a place and wrong there, at every place in turn.

A run in which everything is accepted says nothing about what is taken back. So an extra launch of
the on arm drafts what was planned: the target's own continuation, taken from a pass without drafts
of the same launch, with one token replaced, at every place of the draft again and again. It answers
prompts whose answers cross the borders of the cache's blocks at different places, with more than
two requests in flight, cold, then with a cached prefix, and with limits and stop tokens that end an
answer inside an accepted draft; where the cache is small, also requests that outgrow it together,
so that drafts are rejected after a preemption: the same ones again where none was preempted, three
times at most, and the last answers count. The off launch answers the same requests; tokens and
regrets are compared as equality's are, and so are the logprobs of the tokens right after each
rejection.

The launch changes the engine (it has another drafter, and on accelerators another runner), so what
is found here is evidence besides the plain on arm's and never stands in for it. Engines without a
place for a drafter of one's own have no such launch: there the workloads `edits` and `code` make
rejections come about naturally.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec

from matrixrun import engines
from matrixrun.evidence.cells import Cell, Speculation
from matrixrun.evidence.launches import Arm, Launch, Role
from matrixrun.evidence.requests import Pass, Request, Sampling
from matrixrun.judge.counters import CAPACITY, reading
from matrixrun.matrix.schema import Matrix
from matrixrun.plan import EXTRA_IN_FLIGHT, PlannedPair, batch_size
from matrixrun.probes.pressure import ROUNDS, halves, preempted
from matrixrun.probes.protocol import Data, Passes, Source, is_control, salt
from matrixrun.probes.texts import Texts, stop_tokens
from matrixrun.workloads import Workload

KIND = "rollback"
REQUESTS = 12
USUAL_BLOCK = 32
# Requests that need so many times what the cache holds outgrow it though some end before others.
OUTGROWN = 1.2
LONGEST_ENDS = 8
LEARN, COLD, WARM, ENDS, PREEMPT = "learn", "cold", "warm", "ends", "preempt"
PARTS = (COLD, WARM, ENDS)


class Rollback:
    """The probe; stateless."""

    kind = KIND
    rides_on: str | None = None
    compared = True
    needs = frozenset({Data.TOKENS, Data.LOGPROBS, Data.SCORES, Data.STEPS})

    def passes(
        self, launch: Launch, cells: Sequence[Cell], workload: Workload, matrix: Matrix
    ) -> Passes:
        """Yield the forced launch's passes, the one without drafts first, and the same requests for
        the off launches; nothing for the plain on arm."""
        cells = [cell for cell in cells if can_force(launch, cell)]
        if launch.role is Role.ON:
            return
        within = is_control(launch, matrix)
        for size in sorted({batch_size(cell) for cell in cells}):
            if launch.role is Role.FORCED:
                name = f"{stem(size)}.{LEARN}"
                yield from _passes(launch, workload, matrix, size, name, parts=(COLD,))
            rounds = ROUNDS if launch.role is Role.FORCED else 1
            for name in (stem(size), null_stem(size)) if within else (stem(size),):
                yield from _passes(launch, workload, matrix, size, name, rounds=rounds)

    def sources(self, cell: Cell, pair: PlannedPair) -> dict[str, tuple[Source, ...]]:
        """Return the forced launch's passes as `on`; nothing where there is no such launch."""
        if pair.forced is None:
            return {"on": (), "off": (), "null": ()}
        size = batch_size(cell)
        null, name = (pair.off, null_stem(size)) if pair.null is None else (pair.null, stem(size))
        return {
            "on": tuple(Source(pair.forced, one) for one in pass_ids(stem(size))),
            "off": tuple(Source(pair.off, one) for one in pass_ids(stem(size))),
            "null": tuple(Source(null, one) for one in pass_ids(name)),
        }


def can_force(launch: Launch, cell: Cell) -> bool:
    """Return whether the on arm of `cell`, which `launch` serves, can have planned drafts."""
    value = cell.axes.get("speculation")
    # A server that runs already cannot be given a drafter.
    if not isinstance(value, Speculation) or launch.config.endpoint is not None:
        return False
    config = msgspec.structs.replace(launch.config, arm=Arm.ON, speculation=value)
    return engines.get(config.kind).forced(config) is not None


def stem(size: int) -> str:
    """Return what the ids of the passes of cells with that batch size begin with."""
    return f"{KIND}.b{size}"


def null_stem(size: int) -> str:
    """Return the same for their repetition within the launch."""
    return f"{KIND}.b{size}.null"


def pass_ids(name: str) -> Iterator[str]:
    """Yield the ids of the passes under a stem, in the order they are sent."""
    yield from (f"{name}.{part}" for part in PARTS)
    yield from (f"{name}.{PREEMPT}{number}" for number in range(ROUNDS))


def _passes(
    launch: Launch,
    workload: Workload,
    matrix: Matrix,
    size: int,
    name: str,
    *,
    parts: Sequence[str] = PARTS,
    rounds: int = 1,
) -> Passes:
    """Yield the passes under a stem; the cold and the warm one share their cache. Those at the end
    are for caches that they outgrow, at most `rounds` until a request is preempted."""
    requests = _requests(launch, workload, matrix)
    most = launch.config.limits.max_num_seqs
    in_flight = max(size, EXTRA_IN_FLIGHT if most is None else min(EXTRA_IN_FLIGHT, most))
    for part in parts:
        some = requests[part][::-1] if ".null" in name else requests[part]
        space = ENDS if part == ENDS else COLD
        seen = yield Pass(
            id=f"{name}.{part}",
            requests=some,
            concurrency=in_flight,
            salt=salt(Source(launch.id, f"{name}.{space}")),
        )
    capacity = reading(seen.counters_after, CAPACITY)
    growing = _growing(launch, workload, matrix, in_flight, capacity)
    for number in range(rounds if growing else 0):
        answered = yield Pass(
            id=f"{name}.{PREEMPT}{number}",
            requests=growing[::-1] if ".null" in name else growing,
            concurrency=in_flight,
            salt=salt(Source(launch.id, f"{name}.{PREEMPT}{number}")),
        )
        if preempted(answered):
            return


def _growing(
    launch: Launch, workload: Workload, matrix: Matrix, count: int, capacity: float | None
) -> tuple[Request, ...]:
    """Return `count` requests as long as the longest context, if together they outgrow a cache of
    `capacity` tokens; else none."""
    texts = Texts(workload)
    longest = launch.config.limits.max_model_len or texts.size
    if not capacity or count * longest <= OUTGROWN * capacity:
        return ()
    length, answer = halves(longest)
    return tuple(
        _request(
            f"{PREEMPT}.{number}",
            number,
            texts.piece(f"{KIND}.{PREEMPT}.{number}", length),
            answer,
            Sampling(seed=matrix.seed, ignore_eos=True),
            prompt=f"{KIND}.{PREEMPT}.{number}",
        )
        for number in range(count)
    )


def _requests(launch: Launch, workload: Workload, matrix: Matrix) -> dict[str, tuple[Request, ...]]:
    """Return the requests of each part. Their prompts' lengths differ by less than a block, so that
    answers cross its border at different places."""
    limits, texts = launch.config.limits, Texts(workload)
    block, most = limits.block_size or USUAL_BLOCK, matrix.workload.max_tokens
    room = (limits.max_model_len or texts.size) - 1 - most
    found: dict[str, list[Request]] = {part: [] for part in PARTS}
    stops = stop_tokens(prompt.token_ids for prompt in workload.prompts)
    for number in range(REQUESTS):
        length = max(1, min(block + number * block // REQUESTS + 1, room))
        text = texts.piece(f"{KIND}.{number}", length)
        whole = Sampling(seed=matrix.seed, ignore_eos=True)
        stopping = Sampling(seed=matrix.seed, stop_token_ids=stops)
        short = min(most, 2 + number % LONGEST_ENDS)
        found[COLD].append(_request(f"{number}.{COLD}", number, text, most, whole))
        found[WARM].append(_request(f"{number}.{WARM}", number, text, most, whole))
        found[ENDS].append(_request(f"{number}.limit", number, text, short, whole))
        found[ENDS].append(_request(f"{number}.stop", number, text, most, stopping))
    return {part: tuple(some) for part, some in found.items()}


def _request(
    name: str,
    number: int,
    text: tuple[int, ...],
    max_tokens: int,
    sampling: Sampling,
    *,
    prompt: str | None = None,
) -> Request:
    return Request(
        id=f"{KIND}.{name}",
        prompt=prompt or f"{KIND}.{number}",
        category=KIND,
        token_ids=text,
        max_tokens=max_tokens,
        sampling=sampling,
    )
