"""Whether an engine kept its own rules, step by step, as its state ledger tells it. Pure.

The rules, of which none is about what a token is, so that damage shows before any token differs:

- when a step closes, no more of a request is computed than is committed, and never its newest
  token, which nobody has computed yet: what a rejection should have taken back is taken back;
- what is published (findable by its hash) was committed;
- a block is written by one request only, by none once it is published, and only by its owner,
  until it is handed out again; it is not handed out while somebody owns it;
- blocks are given back once, and those in use are those that live requests own;
- a turn ends at its first stop token and at its limit, and nothing of it is kept or scheduled
  after that.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from functools import singledispatchmethod

from matrixrun.evidence import ledger

MOST_VIOLATIONS = 50  # of a rule, that are told one by one
ABORTED = "FINISHED_ABORTED"


class Rule(StrEnum):
    """What was broken."""

    ROLLBACK = "computed beyond committed"
    UNVERIFIED = "unverified tokens published"
    SHARED = "a block written by another than its owner"
    FREED = "blocks given back wrongly"
    LEAKED = "blocks in use that nobody owns"
    PAST_END = "past the end of a turn"
    LENGTHS = "lengths that do not add up"


@dataclass(frozen=True)
class Violation:
    """A rule broken in a step, with a sentence about it."""

    rule: Rule
    step: int
    text: str


@dataclass
class Turn:
    """A request as the ledger tells it. `steps` are those that added to its answer: the answer's
    length after each, and the step's number."""

    number: int
    arrived: ledger.Arrived | None = None
    kept: list[int] = field(default_factory=list)
    steps: list[tuple[int, int]] = field(default_factory=list)
    owned: set[int] = field(default_factory=set)
    preemptions: int = 0
    reused: bool = False
    scheduled: bool = False
    ended: ledger.Ended | None = None
    called_off_late: bool = False


@dataclass(frozen=True)
class Account:
    """What a ledger says: the first times that each rule was broken, in order, and how often it
    was, how often transitions happened, every request, and when each step closed (seconds of the
    engine's clock). `cut` says why it ends early, where it does; "" is for its size."""

    violations: tuple[Violation, ...]
    broken: dict[Rule, int]
    counts: dict[str, int]
    turns: tuple[Turn, ...]
    closed: dict[int, float]
    cut: str | None


def audit(events: Iterable[ledger.Event]) -> Account:
    """Return what a ledger says of the scheduler that kept it."""
    book = _Book()
    for event in events:
        book.take(event)
    return Account(
        violations=tuple(book.violations),
        broken=dict(book.broken),
        counts={name: book.counts[name] for name in COUNTED},
        turns=tuple(book.turns[number] for number in sorted(book.turns)),
        closed=book.closed,
        cut=book.cut,
    )


COUNTED = (
    "steps.verified",
    "steps.rejecting",
    "rejections.at_border",
    "rejections.after_preemption",
    "rejections.reused_prefix",
    "ended_inside_draft",
    "preemptions",
    "blocks_published",
    "ends.stop_token",
    "ends.length",
    "ends.aborted",
)
ENDS = {
    "FINISHED_STOPPED": "ends.stop_token",
    "FINISHED_LENGTH_CAPPED": "ends.length",
    ABORTED: "ends.aborted",
}


class _Book:
    """The state that the events add up to."""

    def __init__(self) -> None:
        self.violations: list[Violation] = []
        self.broken: Counter[Rule] = Counter()
        self.counts: Counter[str] = Counter()
        self.turns: dict[int, Turn] = {}
        self.closed: dict[int, float] = {}
        self.cut: str | None = None
        self._block_size = 0
        self._owners: dict[int, set[int]] = {}
        self._writers: dict[int, int] = {}
        self._published: dict[int, int] = {}
        self._fresh: set[int] = set()
        self._leaked = 0

    def _broken(self, rule: Rule, step: int, text: str) -> None:
        self.broken[rule] += 1
        if self.broken[rule] <= MOST_VIOLATIONS:
            self.violations.append(Violation(rule, step, text))

    def _turn(self, number: int) -> Turn:
        return self.turns.setdefault(number, Turn(number))

    @singledispatchmethod
    def take(self, event: ledger.Event) -> None:
        """Take an event."""
        raise TypeError(f"no event of a ledger: {event!r}")

    @take.register
    def _(self, event: ledger.Start) -> None:
        self._block_size = event.block_size

    @take.register
    def _(self, event: ledger.Arrived) -> None:
        self._turn(event.request).arrived = event

    @take.register
    def _(self, event: ledger.Full) -> None:
        self.cut = event.why

    @take.register
    def _(self, event: ledger.Reset) -> None:  # noqa: ARG002 - there is nothing in it
        self._published.clear()

    # -- blocks ------------------------------------------------------------------------------------

    @take.register
    def _(self, event: ledger.Taken) -> None:
        for block in event.blocks:
            owners = self._owners.get(block)
            if owners:
                who = min(owners)
                text = f"block {block} is handed out while request {who} owns it"
                self._broken(Rule.SHARED, event.step, text)
            self._writers.pop(block, None)
            self._published.pop(block, None)
            self._fresh.add(block)

    @take.register
    def _(self, event: ledger.Published) -> None:
        self.counts["blocks_published"] += len(event.blocks)
        if event.end > event.committed:
            text = (
                f"request {event.request} publishes its first {event.end} tokens, of which "
                f"{event.committed} are committed"
            )
            self._broken(Rule.UNVERIFIED, event.step, text)
        self._published.update(dict.fromkeys(event.blocks, event.step))

    @take.register
    def _(self, event: ledger.Freed) -> None:
        owner = None if event.request is None else self._turn(event.request)
        for block, holders in zip(event.blocks, event.holders, strict=True):
            known = owner is None or block in owner.owned or block in self._fresh
            if holders < 1 or not known:
                who = "nobody" if owner is None else f"request {owner.number}"
                text = f"block {block} is given back by {who} while {holders} hold it"
                self._broken(Rule.FREED, event.step, text)
            self._fresh.discard(block)
            if owner is not None:
                self._disown(owner, block)

    def _own(self, turn: Turn, blocks: Iterable[int]) -> None:
        for block in blocks:
            turn.owned.add(block)
            self._owners.setdefault(block, set()).add(turn.number)
            self._fresh.discard(block)

    def _disown(self, turn: Turn, block: int) -> None:
        turn.owned.discard(block)
        owners = self._owners.get(block, set())
        owners.discard(turn.number)
        if not owners:
            self._owners.pop(block, None)

    @take.register
    def _(self, event: ledger.Closed) -> None:
        self.closed[event.step] = event.seconds
        left = event.in_use - event.deferred - len(self._owners)
        if left > self._leaked:
            text = f"{event.in_use} blocks are in use, of which {len(self._owners)} are owned"
            self._broken(Rule.LEAKED, event.step, text)
        elif left < 0:
            text = f"{len(self._owners)} blocks are owned, of which {event.in_use} are in use"
            self._broken(Rule.FREED, event.step, text)
        self._leaked = max(self._leaked, left)

    # -- requests ----------------------------------------------------------------------------------

    @take.register
    def _(self, event: ledger.Scheduled) -> None:
        turn = self._turn(event.request)
        if turn.ended is not None:
            text = f"request {turn.number} is scheduled after its end in step {turn.ended.step}"
            self._broken(Rule.PAST_END, event.step, text)
        turn.reused |= not turn.scheduled and event.start > 0
        turn.scheduled = True
        if event.whole is not None:
            for block in turn.owned - set(event.whole):
                self._disown(turn, block)
        self._own(turn, event.more if event.whole is None else event.whole)
        for block in event.wrote:
            self._write(event, turn, block)

    def _write(self, event: ledger.Scheduled, turn: Turn, block: int) -> None:
        writer = self._writers.setdefault(block, turn.number)
        published = self._published.get(block, event.step)
        if writer != turn.number:
            text = f"request {turn.number} writes block {block}, which request {writer} wrote"
        elif published < event.step:
            text = f"request {turn.number} writes block {block}, published in step {published}"
        elif block not in turn.owned:
            text = f"request {turn.number} writes block {block}, which it does not own"
        else:
            return
        self._broken(Rule.SHARED, event.step, text)

    @take.register
    def _(self, event: ledger.Preempted) -> None:
        self.counts["preemptions"] += 1
        self._turn(event.request).preemptions += 1

    @take.register
    def _(self, event: ledger.Verified) -> None:
        turn = self._turn(event.request)
        newest = 1 if event.kept else 0
        if event.ended is None and event.computed > event.committed - newest:
            text = (
                f"request {turn.number} has {event.computed} tokens computed and "
                f"{event.committed} committed, the newest of them in this step, "
                f"after {event.accepted} of {event.proposed} draft tokens were accepted"
            )
            self._broken(Rule.ROLLBACK, event.step, text)
        self._check_end(turn, event)
        turn.kept.extend(event.kept)
        if event.kept:
            turn.steps.append((len(turn.kept), event.step))
        prompt = None if turn.arrived is None else turn.arrived.prompt
        added = prompt is None or prompt + len(turn.kept) == event.committed
        if not added or len(event.kept) > event.accepted + 1:
            text = (
                f"request {turn.number} has {event.committed} tokens with {prompt} of the prompt "
                f"and {len(turn.kept)} kept; {len(event.kept)} of this step's"
            )
            self._broken(Rule.LENGTHS, event.step, text)
        self._count(turn, event)

    def _check_end(self, turn: Turn, event: ledger.Verified) -> None:
        """Check that nothing follows what ends the turn."""
        if turn.arrived is None:
            return
        ends = set(turn.arrived.stop)
        place = next((i for i, token in enumerate(event.kept) if token in ends), None)
        past = 0 if place is None else len(event.kept) - 1 - place
        past = max(past, len(turn.kept) + len(event.kept) - turn.arrived.limit)
        if past > 0:
            text = f"request {turn.number} keeps {past} tokens past what ends its turn"
            self._broken(Rule.PAST_END, event.step, text)
        elif place is not None and event.ended is None:
            text = f"request {turn.number} goes on past stop token {event.kept[place]}"
            self._broken(Rule.PAST_END, event.step, text)

    def _count(self, turn: Turn, event: ledger.Verified) -> None:
        if event.ended is not None and len(event.kept) <= event.accepted:
            self.counts["ended_inside_draft"] += 1
        if not event.proposed:
            return
        self.counts["steps.verified"] += 1
        if event.accepted < event.proposed and event.ended is None:
            size = self._block_size
            self.counts["steps.rejecting"] += 1
            self.counts["rejections.at_border"] += bool(
                size > 1 and event.committed % size in (0, 1, size - 1)
            )
            self.counts["rejections.after_preemption"] += turn.preemptions > 0
            self.counts["rejections.reused_prefix"] += turn.reused

    @take.register
    def _(self, event: ledger.Ended) -> None:
        turn = self._turn(event.request)
        if turn.ended is not None:
            text = f"request {turn.number} ends a second time"
            self._broken(Rule.FREED, event.step, text)
        turn.ended = event
        self.counts[ENDS.get(event.how, "ends.other")] += 1

    @take.register
    def _(self, event: ledger.CalledOff) -> None:
        self._turn(event.request).called_off_late = True
