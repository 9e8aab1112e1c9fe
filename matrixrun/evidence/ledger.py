"""The state ledger: what an engine's scheduler did, event by event, as it did it.

One line of JSON an event, in order of time, tagged by `event`. Requests are numbers in order of
arrival; lengths are tokens of prompt and answer together; blocks are the engine's ids.
"""

from __future__ import annotations

import msgspec


class _Event(msgspec.Struct, frozen=True, tag_field="event", tag=str.lower):
    """What all have in common: each is a kind of line."""


class Start(_Event, frozen=True, kw_only=True):
    """The scheduler is made: `blocks` that can be owned, `block_size` in tokens, and the longest
    draft."""

    blocks: int
    block_size: int
    draft_tokens: int = 0
    scheduler: str = ""


class Arrived(_Event, frozen=True, kw_only=True):
    """A request, with all that ends its turn: `stop` ids and the end-of-sequence id, at most
    `limit` tokens of an answer, and whether it has stop strings, which the server's front end sees
    and the scheduler does not."""

    request: int
    prompt: int
    limit: int
    stop: tuple[int, ...] = ()
    stop_strings: bool = False


class Taken(_Event, frozen=True, kw_only=True):
    """Free blocks were handed out: what they held is gone."""

    step: int
    blocks: tuple[int, ...]


class Scheduled(_Event, frozen=True, kw_only=True):
    """A request's part in a step: `tokens` from `start` on, the last of them `proposed`. `more` are
    the blocks it owns since its last step (`whole`: all that it owns, where that is not an
    addition), `wrote` those that the step writes."""

    step: int
    request: int
    start: int
    tokens: int
    proposed: tuple[int, ...] = ()
    owned: int = 0
    more: tuple[int, ...] = ()
    whole: tuple[int, ...] | None = None
    wrote: tuple[int, ...] = ()


class Published(_Event, frozen=True, kw_only=True):
    """Blocks were made findable by the hash of all tokens up to `end`, while `committed` were the
    request's own. `hashes` are the beginnings of the blocks' hashes."""

    step: int
    request: int
    blocks: tuple[int, ...]
    end: int
    committed: int
    hashes: tuple[str, ...] = ()


class Verified(_Event, frozen=True, kw_only=True):
    """What came of a request's part in a step. Of `proposed` tokens `accepted` were the target's;
    `token` replaces the first that was not, or follows all of them (None where a part of the prompt
    was computed). `kept` was appended to the answer. `committed` and `computed` are the lengths
    when the step closes, tokens of steps in flight left out; `ended` how the request ended in it.
    """

    step: int
    request: int
    proposed: int
    accepted: int
    committed: int
    computed: int
    token: int | None = None
    kept: tuple[int, ...] = ()
    ended: str | None = None


class Preempted(_Event, frozen=True, kw_only=True):
    """A running request lost its place and its blocks."""

    step: int
    request: int


class Freed(_Event, frozen=True, kw_only=True):
    """Blocks were given back, by a request where one is known. `holders` says how many held each
    block before that."""

    step: int
    blocks: tuple[int, ...]
    holders: tuple[int, ...]
    request: int | None = None


class Ended(_Event, frozen=True, kw_only=True):
    """A request is over: `how` in the engine's words. `seconds` are of the engine's own clock."""

    step: int
    request: int
    how: str
    committed: int
    seconds: float


class CalledOff(_Event, frozen=True, kw_only=True):
    """Whoever sent a request calls it off though it is over: the word came after its end."""

    step: int
    request: int


class Closed(_Event, frozen=True, kw_only=True):
    """A step is over, or the last request is: blocks not free, and those of them that are given
    back later. `requests` are not over yet."""

    step: int
    in_use: int
    requests: int
    deferred: int = 0
    seconds: float = 0.0


class Reset(_Event, frozen=True, kw_only=True):
    """All hashes were forgotten."""

    step: int


class Full(_Event, frozen=True, kw_only=True):
    """The ledger ends here, and the engine goes on: it has reached its size, or, with `why`, could
    not be kept."""

    step: int
    why: str = ""


Event = (
    Start
    | Arrived
    | Taken
    | Scheduled
    | Published
    | Verified
    | Preempted
    | Freed
    | Ended
    | CalledOff
    | Closed
    | Reset
    | Full
)

_DECODER = msgspec.json.Decoder(Event)


def read_events(data: bytes) -> tuple[Event, ...]:
    """Return the events of a ledger. A last line that was not written whole is left out.

    Raises:
        msgspec.DecodeError: another line is no event.
    """
    whole = data[: data.rfind(b"\n") + 1]
    return tuple(_DECODER.decode_lines(whole))
