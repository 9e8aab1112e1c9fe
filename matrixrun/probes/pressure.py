"""`pressure`: the transitions at which engines break, brought about on purpose.

- lengths: prompts of exactly k, k + 1 and k + 2 tokens (a prefill of 1 + k looks like a
  verification, vllm#53051), around the cache's blocks and the prefill's chunks, and close to the
  longest context;
- the identical request three times, alone on the engine;
- shared prefixes, cold and warm; where the KV cache is small, other prompts that evict them, and
  the same requests again;
- where it is small, requests that outgrow it together, until the engine preempts;
- requests that their client drops in flight, beside others that share their prefix and go on, and
  the dropped ones once more (sglang#23392);
- at the end, after everything is drained, the first requests again.

Every launch gets the same requests, and all answers are compared as equality's are. Whether
something happened is read from the engine's counters and from what came back; where it did not, the
probe asks for more, three times at most. It looks at coverage only, never at an answer.
"""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import msgspec

from matrixrun.evidence.cells import Cell, Speculation
from matrixrun.evidence.launches import Launch
from matrixrun.evidence.requests import CANCELLED, Observation, Pass, Request, Sampling
from matrixrun.judge.counters import CAPACITY, PREEMPTIONS, growth, reading
from matrixrun.matrix.schema import Matrix
from matrixrun.plan import PlannedPair, batch_size
from matrixrun.probes.protocol import Answered, Data, Passes, Source, is_control, salt
from matrixrun.probes.texts import Texts
from matrixrun.workloads import Workload

KIND = "pressure"
ROUNDS = 3
# Blocks of these many tokens are usual; all are tried where the matrix pins none.
USUAL_BLOCKS = (16, 32, 64, 128)
COPIES = 3
IDENTICAL = 3
SHARED = 8
TAIL_TOKENS = 9
SHORT_ANSWER = 12
REPEATED_AT_END = 4
LEAST_DELAY = 0.01
# Of the time that a short answer takes alone, a request is dropped after this share.
DROP_SHARES = (0.5, 0.25, 0.1)
# Of the longest context, requests that are to outgrow the cache together fill this share.
FILLS = (0.5, 0.75, 1.0)
LONGEST_ANSWERS = (1, 2, 8)


class Pressure:
    """The probe; stateless."""

    kind = KIND
    rides_on: str | None = None
    compared = True
    needs = frozenset({Data.TOKENS, Data.LOGPROBS, Data.SCORES})

    def passes(
        self, launch: Launch, cells: Sequence[Cell], workload: Workload, matrix: Matrix
    ) -> Passes:
        """Yield every pass at each batch size; on A followed by the null within the launch."""
        within = is_control(launch, matrix)
        for size in sorted({batch_size(cell) for cell in cells}):
            lengths = draft_lengths(cell for cell in cells if batch_size(cell) == size)
            for name in (stem(size), null_stem(size)) if within else (stem(size),):
                yield from Sender(launch, workload, matrix, size, name).all(lengths)

    def sources(self, cell: Cell, pair: PlannedPair) -> dict[str, tuple[Source, ...]]:
        """Return the passes of the cell's arms; lengths about k are those of its own k."""
        size, lengths = batch_size(cell), draft_lengths([cell])
        null, name = (pair.off, null_stem(size)) if pair.null is None else (pair.null, stem(size))
        return {
            "on": tuple(Source(pair.on, one) for one in pass_ids(stem(size), lengths)),
            "off": tuple(Source(pair.off, one) for one in pass_ids(stem(size), lengths)),
            "null": tuple(Source(null, one) for one in pass_ids(name, lengths)),
        }


def stem(size: int) -> str:
    """Return what the ids of the passes with `size` requests in flight begin with."""
    return f"{KIND}.b{size}"


def null_stem(size: int) -> str:
    """Return the same for their repetition within the launch."""
    return f"{KIND}.b{size}.null"


def draft_lengths(cells: Iterable[Cell]) -> tuple[int, ...]:
    """Return the draft lengths of cells, each once, in order."""
    found = {
        value.num_speculative_tokens
        for cell in cells
        if isinstance(value := cell.axes.get("speculation"), Speculation)
    }
    return tuple(sorted(length for length in found if length is not None))


def pass_ids(name: str, lengths: Sequence[int]) -> Iterator[str]:
    """Yield the ids of all passes that there may be under a stem, in the order they are sent."""
    yield from (f"{name}.k{length}" for length in lengths)
    yield from (f"{name}.{part}" for part in ("borders", "identical", "shared", "warm"))
    for number in range(ROUNDS):
        yield from (f"{name}.evict{number}", f"{name}.again{number}")
    yield from (f"{name}.preempt{number}" for number in range(ROUNDS))
    yield from (f"{name}.cancel{number}" for number in range(ROUNDS))
    yield f"{name}.end"


@dataclass
class Sender:
    """Writes the passes of one launch at one batch size, for the probe `kind`."""

    launch: Launch
    workload: Workload
    matrix: Matrix
    size: int
    name: str
    kind: str = KIND

    def __post_init__(self) -> None:
        self._texts = Texts(self.workload)
        limits = self.launch.config.limits
        self._longest = limits.max_model_len or self._texts.size
        self._blocks = (limits.block_size,) if limits.block_size else USUAL_BLOCKS
        self._chunk = limits.max_num_batched_tokens

    def all(self, draft_lengths: Sequence[int]) -> Passes:
        """Yield every pass, one kind of pressure after the other."""
        for length in draft_lengths:
            yield self._pass(f"k{length}", self._about(f"k{length}", length + 1))
        borders = self._borders()
        yield self._pass("borders", borders)
        alone = yield self._pass("identical", self._identical(), size=1)
        capacity = reading(alone.counters_after, CAPACITY)
        if self.launch.config.prefix_caching is not False:
            yield from self._prefixes(capacity)
        yield from self.preemptions(capacity)
        yield from self.drops(alone)
        yield self._pass("end", once_more(borders[:REPEATED_AT_END], "end"))

    # -- kinds of pressure -------------------------------------------------------------------------

    def _about(self, name: str, length: int) -> tuple[Request, ...]:
        """Return prompts of one token less than `length`, of as many, and of one more."""
        return tuple(
            self._request(
                f"{name}.{tokens}", self._texts.piece(f"{name}.{tokens}", tokens), SHORT_ANSWER
            )
            for tokens in (length - 1, length, length + 1)
            if 1 <= tokens < self._longest - SHORT_ANSWER
        )

    def _borders(self) -> tuple[Request, ...]:
        found = [
            request
            for block in self._blocks
            for border in (block, 2 * block)
            for request in self._about(f"block{block}", border)
        ]
        if self._chunk is not None and self._chunk not in self._blocks:
            found += self._about("chunk", self._chunk)
        # One token is left over, for a scoring request to generate.
        found += [
            self._request(
                name := f"longest.{answer}",
                self._texts.piece(name, self._longest - 1 - answer),
                answer,
                whole=True,
            )
            for answer in LONGEST_ANSWERS
        ]
        return tuple({request.id: request for request in found}.values())

    def _identical(self) -> tuple[Request, ...]:
        length = min(2 * max(self._blocks) + 3, self._longest - SHORT_ANSWER - 1)
        texts = [self._texts.piece(f"identical.{number}", length) for number in range(IDENTICAL)]
        return tuple(
            self._request(f"identical.{number}.{copy}", text, SHORT_ANSWER)
            for number, text in enumerate(texts)
            for copy in range(COPIES)
        )

    def _prefixes(self, capacity: float | None) -> Passes:
        """Yield requests that share a prefix, twice; then evict it, where that takes no more
        requests than are sent anyway, and ask again."""
        shared = self._sharing("shared", SHARED)
        yield self._pass("shared", shared, space="shared")
        warm = yield self._pass("warm", once_more(shared, "warm"), space="shared")
        if not capacity or ROUNDS * max(self.size, SHARED) * self._longest < capacity:
            return
        for number in range(ROUNDS):
            yield self._pass(f"evict{number}", self._filling(f"evict{number}"), space="evict")
            again = once_more(shared, f"again{number}")
            answered = yield self._pass(f"again{number}", again, space="shared")
            if evicted(warm.observations, answered.observations):
                return

    def _filling(self, name: str) -> tuple[Request, ...]:
        """Return prompts that fill the cache, each almost as long as the context."""
        length = self._longest - SHORT_ANSWER - 1
        return tuple(
            self._request(one, self._texts.piece(one, length), SHORT_ANSWER)
            for one in (f"{name}.{number}" for number in range(max(self.size, SHARED)))
        )

    def preemptions(self, capacity: float | None) -> Passes:
        """Yield requests that grow together beyond a cache of `capacity` tokens, until one of them
        is preempted; nothing where they do not outgrow it. Alone each of them fits."""
        if not capacity or self.size * FILLS[-1] * self._longest <= capacity:
            return
        for number, share in enumerate(FILLS):
            length, answer = halves(share * self._longest)
            requests = tuple(
                self._request(name, self._texts.piece(name, length), answer, whole=True)
                for name in (f"preempt{number}.{one}" for one in range(self.size))
            )
            answered = yield self._pass(f"preempt{number}", requests)
            if preempted(answered):
                return

    def drops(self, alone: Answered) -> Passes:
        """Yield requests of which every other one is dropped in flight, until one was."""
        times = [one.finished - one.started for one in alone.observations if one.error is None]
        usual = statistics.median(times) if times else 1.0
        for number, share in enumerate(DROP_SHARES):
            requests = self._some_dropped(number, max(LEAST_DELAY, share * usual))
            answered = yield self._pass(f"cancel{number}", requests)
            if dropped(answered.observations):
                return

    def _some_dropped(self, number: int, delay: float) -> tuple[Request, ...]:
        """Return bystanders and, between them, requests that are dropped after `delay` seconds; the
        dropped ones come once more at the end."""
        name = f"cancel{number}"
        pairs = self._sharing(name, 2 * SHARED)
        longest = self._longest - 1
        victims = [
            self._request(
                f"{name}.victim{place}", one.token_ids, longest - len(one.token_ids),
                whole=True, cancel_after=delay,
            )
            for place, one in enumerate(pairs[1::2])
        ]  # fmt: skip
        bystanders = self._lengthened(pairs[0::2])
        between = [one for pair in zip(bystanders, victims, strict=True) for one in pair]
        return (*between, *once_more(pairs[1::2], "retry"))

    def _lengthened(self, requests: Iterable[Request]) -> list[Request]:
        """Return the requests with answers as long as the workload's."""
        return [
            self._request(
                one.id.removeprefix(f"{self.kind}."),
                one.token_ids,
                min(self.matrix.workload.max_tokens, self._longest - 1 - len(one.token_ids)),
            )
            for one in requests
        ]

    # -- requests ----------------------------------------------------------------------------------

    def _sharing(self, name: str, count: int) -> tuple[Request, ...]:
        """Return requests with the same prefix, of some blocks, and tails of their own."""
        room = self._longest - 1 - SHORT_ANSWER - TAIL_TOKENS
        prefix = self._texts.piece(name, min(3 * max(self._blocks), room // 2))
        return tuple(
            self._request(one, prefix + self._texts.piece(one, TAIL_TOKENS), SHORT_ANSWER)
            for one in (f"{name}.{number}" for number in range(count))
        )

    def _request(
        self,
        name: str,
        token_ids: tuple[int, ...],
        max_tokens: int,
        *,
        whole: bool = False,
        cancel_after: float | None = None,
    ) -> Request:
        """Return a request; a `whole` one goes on to its limit."""
        ignore_eos = whole or self.matrix.workload.ignore_eos
        return Request(
            id=f"{self.kind}.{name}",
            prompt=f"{self.kind}.{name}",
            category=self.kind,
            token_ids=token_ids,
            max_tokens=max_tokens,
            sampling=Sampling(seed=self.matrix.seed, ignore_eos=ignore_eos),
            cancel_after=cancel_after,
        )

    def _pass(
        self,
        name: str,
        requests: tuple[Request, ...],
        *,
        size: int | None = None,
        space: str | None = None,
    ) -> Pass:
        """Return a pass; the null's requests come in reversed order, where order is free."""
        if ".null" in self.name and not name.startswith("cancel"):
            requests = requests[::-1]
        namespace = salt(Source(self.launch.id, f"{self.name}.{space or name}"))
        return Pass(
            id=f"{self.name}.{name}",
            requests=requests,
            concurrency=size or self.size,
            salt=namespace,
        )


def halves(tokens: float) -> tuple[int, int]:
    """Return the lengths of a prompt and an answer that are to fill so many tokens together. The
    prompt is as long as the answer, so that requests outgrow a cache though a client that is short
    of time sends them one after the other and some have grown before others come."""
    length = int(tokens) // 2
    return length, int(tokens) - length - 1


def preempted(answered: Answered) -> bool:
    """Return whether requests were preempted in a pass; True where the engine does not count it,
    as no more can be asked for."""
    seen = growth(answered.counters_before, answered.counters_after, PREEMPTIONS)
    return seen is None or seen > 0


def once_more(requests: Iterable[Request], name: str) -> tuple[Request, ...]:
    """Return the requests once more, under ids of their own; their prompts, the units of
    statistics, stay."""
    return tuple(msgspec.structs.replace(one, id=f"{one.id}.{name}") for one in requests)


def evicted(warm: Iterable[Observation], again: Iterable[Observation]) -> int:
    """Return how many requests take less from the cache than when they were warm."""
    before = {one.prompt: one.cached_tokens for one in warm}
    return sum(
        one.cached_tokens is not None
        and (known := before.get(one.prompt)) is not None
        and one.cached_tokens < known
        for one in again
    )


def dropped(observations: Iterable[Observation]) -> int:
    """Return how many requests were dropped by their client."""
    return sum(one.finish_reason == CANCELLED for one in observations)
