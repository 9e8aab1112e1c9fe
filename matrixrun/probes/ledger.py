"""`ledger`: what an engine's scheduler does, written down by itself and checked step by step.

An extra launch of the on arm has a scheduler that keeps a ledger (`evidence.ledger`): proposed and
accepted tokens, lengths, blocks, hashes. Damage to what the engine keeps shows there before any
token differs. The probe makes it go through what a ledger is good for: turns that end at a stop
token, at a stop string, at a limit and as the model likes, the same again on cached prefixes,
requests that outgrow the cache together, requests that their client drops.

The launch changes the engine (another scheduler class), so it is sent nothing else, and what is
found is evidence besides the plain on arm's. Its answers are compared with nobody's.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from matrixrun import engines
from matrixrun.evidence.cells import Cell
from matrixrun.evidence.launches import Launch, Role
from matrixrun.evidence.requests import Pass, Request, Sampling
from matrixrun.judge.counters import CAPACITY, reading
from matrixrun.matrix.schema import Matrix
from matrixrun.plan import EXTRA_IN_FLIGHT, PlannedPair, batch_size
from matrixrun.probes.conversation import LENGTH, NATURAL, STOP, STRING, strings_of
from matrixrun.probes.pressure import ROUNDS, Sender, once_more
from matrixrun.probes.protocol import Data, Passes, Source, salt
from matrixrun.probes.texts import Texts, stop_tokens
from matrixrun.workloads import Workload

KIND = "ledger"
REQUESTS = 12
LONGEST_ENDS = 8
USUAL_BLOCK = 32


class Ledger:
    """The probe; stateless."""

    kind = KIND
    rides_on: str | None = None
    compared = False
    needs = frozenset({Data.TOKENS})

    def passes(
        self, launch: Launch, cells: Sequence[Cell], workload: Workload, matrix: Matrix
    ) -> Passes:
        """Yield the traced launch's passes; nothing for any other."""
        if launch.role is not Role.TRACED:
            return
        for size in sorted({batch_size(cell) for cell in cells}):
            name = f"{KIND}.b{size}"
            sender = Sender(launch, workload, matrix, size, name, kind=KIND)
            turns = _turns(launch, workload, matrix)
            namespace = salt(Source(launch.id, f"{name}.turns"))
            in_flight = max(size, EXTRA_IN_FLIGHT)
            seen = yield Pass(
                id=f"{name}.turns", requests=turns, concurrency=in_flight, salt=namespace
            )
            yield Pass(
                id=f"{name}.again",
                requests=once_more(turns, "again"),
                concurrency=in_flight,
                salt=namespace,
            )
            yield from sender.preemptions(reading(seen.counters_after, CAPACITY))
            yield from sender.drops(seen)

    def sources(self, cell: Cell, pair: PlannedPair) -> dict[str, tuple[Source, ...]]:
        """Return the traced launch's passes as `on`; nothing where there is no such launch."""
        if pair.traced is None:
            return {"on": ()}
        name = f"{KIND}.b{batch_size(cell)}"
        return {"on": tuple(Source(pair.traced, one) for one in pass_ids(name))}


def pass_ids(name: str) -> Iterator[str]:
    """Yield the ids of all passes that there may be under a stem, in the order they are sent."""
    yield from (f"{name}.turns", f"{name}.again")
    for part in ("preempt", "cancel"):
        yield from (f"{name}.{part}{number}" for number in range(ROUNDS))


def _turns(launch: Launch, workload: Workload, matrix: Matrix) -> tuple[Request, ...]:
    """Return requests that end in different ways. Their prompts' lengths differ by less than a
    block, so that answers cross its border at different places."""
    texts, most = Texts(workload), matrix.workload.max_tokens
    strings = strings_of(launch, workload, matrix)
    ends = [LENGTH, NATURAL]
    if engines.get(launch.config.kind).stops_at_token_ids:
        ends.append(STOP)
    ends += [STRING] if strings else []
    stops = stop_tokens(prompt.token_ids for prompt in workload.prompts)
    block = launch.config.limits.block_size or USUAL_BLOCK
    found = []
    for number in range(REQUESTS):
        end = ends[number % len(ends)]
        length = block + number * block // REQUESTS + 1
        room = (launch.config.limits.max_model_len or texts.size) - 1 - most
        found.append(
            Request(
                id=f"{KIND}.{number}.{end}",
                prompt=f"{KIND}.{number}",
                category=end,
                token_ids=texts.piece(f"{KIND}.{number}", max(1, min(length, room))),
                max_tokens=min(most, 2 + number % LONGEST_ENDS) if end == LENGTH else most,
                sampling=Sampling(
                    seed=matrix.seed,
                    ignore_eos=end in (STRING, LENGTH),
                    stop_token_ids=stops if end == STOP else (),
                    stop=strings if end == STRING else (),
                ),
            )
        )
    return tuple(found)
