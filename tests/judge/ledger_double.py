"""A double of a scheduler that keeps a ledger: blocks, prefixes, drafts, preemptions. It follows
the rules, or breaks the one that it is told to break."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from random import Random

from matrixrun.evidence import ledger

STOP = 7
VOCABULARY = 9


@dataclass
class Live:
    """A request in the double."""

    number: int
    tokens: list[int]
    prompt: int
    limit: int
    computed: int = 0
    hashed: int = 0
    blocks: list[int] = field(default_factory=list)
    known: list[int] = field(default_factory=list)


class Double:
    """Runs requests to their ends; `events` is its ledger. `fault` is the rule that it breaks, once
    it can."""

    def __init__(self, seed: int, *, blocks: int, size: int, draft: int, fault: str = "") -> None:
        self.random = Random(seed)
        self.size, self.draft, self.fault = size, draft, fault
        self.free = deque(range(1, blocks + 1))
        self.holders = dict.fromkeys(range(1, blocks + 1), 0)
        self.cache: dict[tuple[int, ...], int] = {}
        self.running: list[Live] = []
        self.waiting: deque[Live] = deque()
        self.events: list[ledger.Event] = [
            ledger.Start(blocks=blocks, block_size=size, draft_tokens=draft)
        ]
        self.total, self.step, self.struck = blocks, 0, False

    def add(self, number: int, prompt: list[int], limit: int) -> None:
        self.events.append(
            ledger.Arrived(request=number, prompt=len(prompt), limit=limit, stop=(STOP,))
        )
        self.waiting.append(Live(number, list(prompt), len(prompt), limit))

    def run(self) -> list[ledger.Event]:
        while self.running or self.waiting:
            self._one_step()
        return self.events

    def abort(self) -> None:
        """Call the first running request off, as a client that closes its connection."""
        if self.running:
            one = self.running.pop(0)
            self._ended(one, "FINISHED_ABORTED")
            self._give_back(one)

    # -- a step ------------------------------------------------------------------------------------

    def _one_step(self) -> None:
        self.step += 1
        parts: list[tuple[Live, int, int, list[int]]] = []
        for one in list(self.running):
            if one in self.running:  # it may have been preempted for another
                part = self._schedule(one)
                if part is not None:
                    parts.append((one, *part))
        if not parts or self.random.random() < 0.7:
            self._admit(parts)
        for one, start, tokens, drafts in parts:
            self._note(one, start, tokens, drafts)
        for one, _, tokens, drafts in parts:
            self._close(one, tokens, drafts)
        self._usage()

    def _schedule(self, one: Live) -> tuple[int, int, list[int]] | None:
        left = len(one.tokens) - one.computed
        drafts: list[int] = []
        if left == 1 and self.random.random() < 0.8:
            drafts = [self.random.randrange(VOCABULARY) for _ in range(self.draft)]
        tokens = min(left, 2 * self.size) + len(drafts)
        while not self._grow(one, one.computed + tokens):
            victim = self.running[-1]
            self._preempt(victim)
            if victim is one:
                return None
        start = one.computed
        self._publish(one, min(start + tokens, len(one.tokens)))
        one.computed += tokens
        return start, tokens, drafts

    def _admit(self, parts: list[tuple[Live, int, int, list[int]]]) -> None:
        if not self.waiting:
            return
        one = self.waiting[0]
        hit: list[int] = []
        for end in range(self.size, len(one.tokens), self.size):
            block = self.cache.get(tuple(one.tokens[:end]))
            if block is None:
                break
            hit.append(block)
        need = -(-min(len(one.tokens), len(hit) * self.size + 2 * self.size) // self.size)
        new = sum(self.holders[block] == 0 for block in hit) + need - len(hit)
        if new > len(self.free):
            return
        self.waiting.popleft()
        for block in hit:
            if self.holders[block] == 0:
                self.free.remove(block)
            self.holders[block] += 1
        one.blocks, one.hashed = list(hit), len(hit)
        one.computed = len(hit) * self.size
        self.running.append(one)
        part = self._schedule(one)
        if part is not None:
            parts.append((one, *part))

    def _grow(self, one: Live, tokens: int) -> bool:
        need = -(-tokens // self.size) - len(one.blocks)
        if need > len(self.free):
            return False
        taken = [self.free.popleft() for _ in range(max(0, need))]
        for block in taken:
            self.holders[block] += 1
            self.cache = {key: value for key, value in self.cache.items() if value != block}
        if taken:
            self.events.append(ledger.Taken(step=self.step, blocks=tuple(taken)))
        one.blocks += taken
        return True

    def _publish(self, one: Live, tokens: int) -> None:
        if self._strikes("unverified", tokens < len(one.blocks) * self.size):
            tokens = len(one.blocks) * self.size
        full = tokens // self.size
        if full <= one.hashed:
            return
        blocks = one.blocks[one.hashed : full]
        for place in range(one.hashed, full):
            self.cache.setdefault(tuple(one.tokens[: (place + 1) * self.size]), one.blocks[place])
        self.events.append(
            ledger.Published(
                step=self.step,
                request=one.number,
                blocks=tuple(blocks),
                end=full * self.size,
                committed=len(one.tokens),
            )
        )
        one.hashed = full

    def _note(self, one: Live, start: int, tokens: int, drafts: list[int]) -> None:
        blocks = list(one.blocks)
        if self._strikes("shared", len(self.running) > 1 and len(blocks) > 0):
            other = next(some for some in self.running if some is not one)
            blocks[start // self.size] = other.blocks[-1]
        before, one.known = one.known, list(one.blocks)
        self.events.append(
            ledger.Scheduled(
                step=self.step,
                request=one.number,
                start=start,
                tokens=tokens,
                proposed=tuple(drafts),
                owned=len(one.blocks),
                more=tuple(one.blocks[len(before) :]),
                wrote=tuple(blocks[start // self.size : -(-(start + tokens) // self.size)]),
            )
        )

    def _close(self, one: Live, tokens: int, drafts: list[int]) -> None:
        emits = one.computed - len(drafts) == len(one.tokens)
        accepted = self.random.randint(0, len(drafts)) if emits else 0
        one.computed -= len(drafts) - accepted
        rejecting = accepted < len(drafts)
        emitted = [*drafts[:accepted], self.random.randrange(VOCABULARY)] if emits else []
        kept, ended = self._kept(one, emitted)
        if self._strikes("rollback", rejecting and ended is None):
            one.computed += 1
        one.tokens += kept
        if ended is not None:
            self.running.remove(one)
            self._ended(one, ended)
            self._give_back(one)
        self.events.append(
            ledger.Verified(
                step=self.step,
                request=one.number,
                proposed=len(drafts),
                accepted=accepted,
                token=emitted[-1] if emitted else None,
                kept=tuple(kept),
                committed=len(one.tokens),
                computed=one.computed,
                ended=ended,
            )
        )
        if rejecting and self._strikes("leaked", bool(self.free)):
            block = self.free.popleft()
            self.holders[block] += 1
            self.events.append(ledger.Taken(step=self.step, blocks=(block,)))

    def _kept(self, one: Live, emitted: list[int]) -> tuple[list[int], str | None]:
        kept: list[int] = []
        for place, token in enumerate(emitted):
            kept.append(token)
            answered = len(one.tokens) + len(kept) - one.prompt
            if token == STOP or answered >= one.limit:
                if self._strikes("past the end", place + 1 < len(emitted)):
                    kept = emitted
                return kept, "FINISHED_STOPPED" if token == STOP else "FINISHED_LENGTH_CAPPED"
        return kept, None

    # -- blocks and ends ---------------------------------------------------------------------------

    def _preempt(self, one: Live) -> None:
        self.events.append(ledger.Preempted(step=self.step, request=one.number))
        self.running.remove(one)
        self._give_back(one)
        one.computed = one.hashed = 0
        one.blocks, one.known = [], []
        self.waiting.appendleft(one)

    def _give_back(self, one: Live) -> None:
        blocks = one.blocks[::-1]
        for _ in range(2 if self._strikes("freed", bool(blocks)) else 1):
            self.events.append(
                ledger.Freed(
                    step=self.step,
                    request=one.number,
                    blocks=tuple(blocks),
                    holders=tuple(self.holders[block] for block in blocks),
                )
            )
        for block in blocks:
            self.holders[block] -= 1
            if self.holders[block] == 0:
                self.free.append(block)

    def _ended(self, one: Live, how: str) -> None:
        self.events.append(
            ledger.Ended(
                step=self.step,
                request=one.number,
                how=how,
                committed=len(one.tokens),
                seconds=float(self.step),
            )
        )

    def _usage(self) -> None:
        self.events.append(
            ledger.Closed(
                step=self.step,
                in_use=self.total - len(self.free),
                requests=len(self.running) + len(self.waiting),
                seconds=float(self.step),
            )
        )

    def _strikes(self, fault: str, can: bool) -> bool:
        if self.fault != fault or self.struck or not can:
            return False
        self.struck = True
        return True
