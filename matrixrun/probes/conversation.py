"""`conversation`: turns that each build on the answers before them.

An answer may be right and still leave the next turn with the wrong cache: tokens that were drafted
and accepted past the end of a turn, or a state that cannot be taken back, cost a prefill of the
whole answer (llama.cpp#28049). So every launch holds the same conversations, each with the answers
that it gave itself. How much of a turn comes from the cache is compared whatever the answers were;
the answers only as long as the histories agree. After that a pass over written histories, the same
for every launch, asks the later turns of all conversations.

Conversations end their turns in four ways: as the model likes, at a stop token, at a stop string,
at a limit that differs from turn to turn. The first is held alone; then as many side by side as can
be in flight and as surely fit into the cache, so that a server with few slots keeps each in its
own, and none evicts another's turns. Where an end has not come by then, further prompts open short
conversations that are to end that way, until one does.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass

from matrixrun import engines
from matrixrun.evidence.cells import Cell
from matrixrun.evidence.launches import Launch
from matrixrun.evidence.requests import Observation, Pass, Request, Sampling
from matrixrun.judge.counters import CAPACITY, reading
from matrixrun.matrix.schema import Matrix
from matrixrun.plan import CONVERSATION_TURNS, PlannedPair, batch_size
from matrixrun.probes.protocol import Answered, Data, Passes, Source, is_control, salt
from matrixrun.probes.texts import stop_strings, stop_tokens
from matrixrun.workloads import Prompt, Workload

KIND = "conversation"
# Two for each way to end.
CONVERSATIONS = 8
NATURAL, STOP, STRING, LENGTH, WRITTEN = "natural", "stop", "string", "length", "written"
# Of a prompt that opens no conversation, so many tokens of another one are the user's next turn.
BORROWED_TOKENS = 16
WRITTEN_TOKENS = 12
# Where an end never came, so often it is asked for by further conversations of so many turns, whose
# answers have so many times the room to come to it.
MORE_ROUNDS = 3
MORE_TURNS = 2
MORE_ROOM = 2


@dataclass(frozen=True)
class Talk:
    """A conversation: its opening, the user's further turns, answers `written` for those before
    each of them, how its turns end, and how many times the workload's limit an answer may have
    where it fits."""

    id: str
    opening: tuple[int, ...]
    follow_ups: tuple[tuple[int, ...], ...]
    written: tuple[tuple[int, ...], ...]
    end: str
    room: int = 1


class Conversation:
    """The probe; stateless."""

    kind = KIND
    rides_on: str | None = None
    compared = True
    needs = frozenset({Data.TOKENS, Data.LOGPROBS, Data.SCORES})

    def passes(
        self, launch: Launch, cells: Sequence[Cell], workload: Workload, matrix: Matrix
    ) -> Passes:
        """Yield a pass a turn and group of conversations; nothing where nothing is cached."""
        if launch.config.prefix_caching is False:
            return
        strings = strings_of(launch, workload, matrix)
        ends = [] if matrix.workload.ignore_eos else [NATURAL]
        ends += [STOP] if engines.get(launch.config.kind).stops_at_token_ids else []
        ends += [STRING] if strings else []
        talks = talks_of(workload, (*ends, LENGTH))
        more = more_talks(workload, talks, ends)
        texts = [part for talk in talks for part in (talk.opening, *talk.follow_ups)]
        writer = _Writer(launch, matrix, stop_tokens(texts), strings)
        within = is_control(launch, matrix)
        for size in sorted({batch_size(cell) for cell in cells}):
            yield from writer.held(talks, more, size, stem(size))
            if within:
                yield from writer.held(talks[::-1], more, size, null_stem(size))

    def sources(self, cell: Cell, pair: PlannedPair) -> dict[str, tuple[Source, ...]]:
        """Return the passes of the cell's `on`, `off` and `null` conversations."""
        size = batch_size(cell)
        null, name = (pair.off, null_stem(size)) if pair.null is None else (pair.null, stem(size))
        return {
            "on": tuple(Source(pair.on, one) for one in pass_ids(stem(size))),
            "off": tuple(Source(pair.off, one) for one in pass_ids(stem(size))),
            "null": tuple(Source(null, one) for one in pass_ids(name)),
        }


def strings_of(launch: Launch, workload: Workload, matrix: Matrix) -> tuple[str, ...]:
    """Return the strings at which answers are to stop: none where the engine takes none, or where
    a resumed sweep would not know the texts that they come from."""
    engine = engines.get(launch.config.kind)
    if not engine.stops_at_strings or not matrix.store_text:
        return ()
    return stop_strings(workload.prompts)


def stem(size: int) -> str:
    """Return what the ids of the passes with `size` requests in flight begin with."""
    return f"{KIND}.b{size}"


def null_stem(size: int) -> str:
    """Return the same for their repetition within the launch."""
    return f"{KIND}.b{size}.null"


def pass_ids(name: str) -> Iterator[str]:
    """Yield the ids of all passes that there may be under a stem."""
    for group in range(CONVERSATIONS + MORE_ROUNDS):
        for turn in range(1, CONVERSATION_TURNS + 1):
            yield f"{name}.g{group}.t{turn}"
    yield f"{name}.{WRITTEN}"


def talks_of(workload: Workload, ends: Sequence[str]) -> tuple[Talk, ...]:
    """Return the conversations of a workload: prompts that open one, or any where none does."""
    return tuple(
        _talk(prompt, workload, ends[number % len(ends)])
        for number, prompt in enumerate(_ordered(workload)[:CONVERSATIONS])
    )


def more_talks(workload: Workload, talks: Sequence[Talk], ends: Sequence[str]) -> tuple[Talk, ...]:
    """Return further conversations, of prompts that open none of `talks`. How each is to end does
    not depend on what came before: a request is the same in every launch that sends it."""
    taken = {talk.id for talk in talks}
    prompts = [prompt for prompt in _ordered(workload) if prompt.id not in taken]
    return tuple(
        _talk(prompt, workload, ends[number % len(ends)], MORE_TURNS, MORE_ROOM)
        for number, prompt in enumerate(prompts)
        if ends
    )


def _ordered(workload: Workload) -> list[Prompt]:
    """Return the prompts, those that are written to open a conversation first."""
    return sorted(workload.prompts, key=lambda prompt: not prompt.follow_ups)


def _talk(
    prompt: Prompt, workload: Workload, end: str, turns: int = CONVERSATION_TURNS, room: int = 1
) -> Talk:
    return Talk(
        id=prompt.id,
        opening=prompt.token_ids,
        follow_ups=_follow_ups(prompt, workload)[: turns - 1],
        written=_pieces(prompt, workload, WRITTEN_TOKENS),
        end=end,
        room=room,
    )


def _follow_ups(prompt: Prompt, workload: Workload) -> tuple[tuple[int, ...], ...]:
    if prompt.follow_ups:
        return prompt.follow_ups[: CONVERSATION_TURNS - 1]
    return _pieces(prompt, workload, BORROWED_TOKENS)


def _pieces(prompt: Prompt, workload: Workload, length: int) -> tuple[tuple[int, ...], ...]:
    """Return the ends of other prompts of the workload, one for each further turn."""
    place = workload.prompts.index(prompt)
    others = [
        workload.prompts[(place + 1 + turn * CONVERSATIONS) % len(workload.prompts)]
        for turn in range(CONVERSATION_TURNS - 1)
    ]
    return tuple(other.token_ids[-length:] for other in others)


@dataclass(frozen=True)
class _Held:
    """What is known after conversations: the tokens that the engine's cache holds, as far as it
    says, and the ends that came."""

    capacity: float | None
    ends: frozenset[str]


def ended_as_asked(answer: Observation) -> bool:
    """Whether an answer ended in the way that its category names."""
    reason = "length" if answer.category == LENGTH else "stop"
    return answer.error is None and answer.finish_reason == reason


@dataclass(frozen=True)
class _Writer:
    """Writes the passes of one launch."""

    launch: Launch
    matrix: Matrix
    stops: tuple[int, ...]
    strings: tuple[str, ...]

    def held(self, talks: Sequence[Talk], more: Sequence[Talk], size: int, name: str) -> Passes:
        """Yield the passes of all conversations with `size` requests in flight; of `more` those
        that it takes for every end to come."""
        left, number, together = list(talks), 0, 1
        absent = {talk.end for talk in talks}
        while left:
            group, left = left[:together], left[together:]
            held = yield from self._group(group, size, f"{name}.g{number}")
            together, number = self._together(size, held.capacity), number + 1
            absent -= held.ends
        left = list(more)
        for place in range(MORE_ROUNDS):
            left = [talk for talk in left if talk.end in absent]
            group, left = left[:together], left[together:]
            if not group:
                break
            held = yield from self._group(group, size, f"{name}.g{CONVERSATIONS + place}")
            absent -= held.ends
        written = self._written(talks)
        if written:
            yield self._pass(f"{name}.{WRITTEN}", written, size, f"{name}.{WRITTEN}")

    def _together(self, size: int, capacity: float | None) -> int:
        """Return how many conversations are held side by side."""
        longest = self.launch.config.limits.max_model_len
        if capacity is None or longest is None:
            return size
        return max(1, min(size, int(capacity // longest)))

    def _group(
        self, talks: Sequence[Talk], size: int, name: str
    ) -> Generator[Pass, Answered, _Held]:
        """Yield a pass a turn; a conversation that failed or grew too long is not gone on with."""
        histories = {talk.id: talk.opening for talk in talks}
        capacity, ends = None, set[str]()
        for turn in range(1, CONVERSATION_TURNS + 1):
            requests = tuple(
                request
                for talk in talks
                if talk.id in histories
                and (request := self._request(talk, turn, histories[talk.id])) is not None
            )
            if not requests:
                break
            answered = yield self._pass(f"{name}.t{turn}", requests, size, name)
            histories = _continued(talks, turn, requests, answered)
            capacity = reading(answered.counters_after, CAPACITY)
            ends |= {one.category for one in answered.observations if ended_as_asked(one)}
        return _Held(capacity, frozenset(ends))

    def _written(self, talks: Sequence[Talk]) -> tuple[Request, ...]:
        """Return the later turns of every conversation, after answers that nobody gave."""
        found = []
        for talk in talks:
            history = talk.opening
            for turn, (answer, further) in enumerate(
                zip(talk.written, talk.follow_ups, strict=False), start=2
            ):
                history = (*history, *answer, *further)
                request = self._request(talk, turn, history, written=True)
                found += [] if request is None else [request]
        return tuple(found)

    def _request(
        self, talk: Talk, turn: int, history: tuple[int, ...], *, written: bool = False
    ) -> Request | None:
        """Return a turn's request; None where it does not fit into the context."""
        limit = self.matrix.workload.max_tokens
        if talk.end == LENGTH:
            limit = max(1, limit // 2 + turn)
        longest = self.launch.config.limits.max_model_len
        if longest is None or len(history) + talk.room * limit < longest:
            limit *= talk.room
        elif len(history) + limit >= longest:
            return None
        ignore_eos = talk.end in (STRING, LENGTH) or self.matrix.workload.ignore_eos
        return Request(
            id=f"{KIND}.{talk.id}.{'w' if written else 't'}{turn}",
            prompt=f"{KIND}.{talk.id}",
            category=talk.end,
            token_ids=history,
            max_tokens=limit,
            sampling=Sampling(
                seed=self.matrix.seed,
                ignore_eos=ignore_eos,
                stop_token_ids=self.stops if talk.end == STOP else (),
                stop=self.strings if talk.end == STRING else (),
            ),
        )

    def _pass(self, pass_id: str, requests: tuple[Request, ...], size: int, space: str) -> Pass:
        namespace = salt(Source(self.launch.id, space))
        return Pass(id=pass_id, requests=requests, concurrency=size, salt=namespace)


def _continued(
    talks: Sequence[Talk], turn: int, requests: Sequence[Request], answered: Answered
) -> dict[str, tuple[int, ...]]:
    """Return the histories of the conversations that have a turn after this one."""
    answers = {one.request: one for one in answered.observations}
    sent = {request.prompt: request for request in requests}
    histories = {}
    for talk in talks:
        request = sent.get(f"{KIND}.{talk.id}")
        answer = None if request is None else answers.get(request.id)
        if request is not None and answer is not None and _goes_on(talk, turn, answer):
            history = request.token_ids + tuple(answer.token_ids.tolist())
            histories[talk.id] = joined(history, talk.follow_ups[turn - 1])
    return histories


def _goes_on(talk: Talk, turn: int, answer: Observation) -> bool:
    return answer.error is None and answer.token_ids.size > 0 and turn <= len(talk.follow_ups)


def joined(history: tuple[int, ...], further: tuple[int, ...]) -> tuple[int, ...]:
    """Return a history and the next turn. The token that ended an answer is not sent twice where
    the next turn begins with it, as chat templates have it."""
    return history + (further[1:] if further[:1] == history[-1:] else further)
