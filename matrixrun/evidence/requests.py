"""Requests to send and what is observed for each: the only data that crosses to an engine."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from matrixrun.evidence.replies import Ask, Reply

IntArray = NDArray[np.int32]
FloatArray = NDArray[np.float32]


class Grammar(msgspec.Struct, frozen=True, kw_only=True):
    """The language that an answer's text must belong to, spelt for every engine: as a regular
    expression, and in llama.cpp's GBNF."""

    regex: str
    gbnf: str


class BadWord(msgspec.Struct, frozen=True, kw_only=True):
    """A text that must not stand in an answer, and the token ids that it is taken to have there:
    none of these sequences may come."""

    text: str
    sequences: tuple[tuple[int, ...], ...]


class Sampling(msgspec.Struct, frozen=True, kw_only=True):
    """Every sampling field, sent explicitly: an engine otherwise takes penalties and more from the
    checkpoint's generation config. `stop` are strings that end an answer, wherever in its text."""

    temperature: float = 0.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    min_tokens: int = 0
    seed: int | None = 0
    ignore_eos: bool = False
    stop_token_ids: tuple[int, ...] = ()
    stop: tuple[str, ...] = ()
    allowed_token_ids: tuple[int, ...] = ()
    grammar: Grammar | None = None
    bad_words: tuple[BadWord, ...] = ()


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One prompt as token ids. `id` is unique within its pass and equal in both arms; `prompt`
    names the prompt it belongs to (the unit of statistics); `category` is the workload's.
    `cancel_after` seconds its client drops it, if it is not answered by then."""

    id: str
    prompt: str
    category: str
    token_ids: tuple[int, ...]
    max_tokens: int
    sampling: Sampling = Sampling()
    cancel_after: float | None = None


def banned_by(sampling: Sampling) -> IntArray:
    """Return the token sequences that a request forbids, as an observation holds them."""
    sequences = [one for word in sampling.bad_words for one in word.sequences]
    return np.array([id_ for one in sequences for id_ in (len(one), *one)], np.int32)


CANCELLED = "cancelled"
"""The finish reason of a request that its client dropped: no answer, and no failure either."""


class Evaluation(StrEnum):
    """How the off arm computed a logprob: in one prefill of the whole text; by decoding one row;
    or by extending a cached prefix by several rows, as a verification step does."""

    PREFILL = "prefill"
    DECODE = "decode"
    EXTEND = "extend"


class ScoreRequest(msgspec.Struct, frozen=True, kw_only=True):
    """Given tokens to be scored: `token_ids[start:]` are scored, each after all before it.

    With DECODE and EXTEND only the last token is scored (`start == len(token_ids) - 1`). `rows` is
    the number of rows to extend by, where an engine lets us choose it; 0 leaves it to the engine.
    `top` is the number of best tokens wanted at each position of a prefill, where more than the
    best one is needed; an engine that cannot tell gives none.
    """

    id: str
    token_ids: tuple[int, ...]
    start: int
    evaluation: Evaluation = Evaluation.PREFILL
    rows: int = 0
    top: int = 1


class Task(msgspec.Struct, frozen=True, kw_only=True):
    """A task of lm-evaluation-harness with all that it needs, so that it travels as prompts do.

    `yaml` is the task file, its data files named as in `files`, which holds their content. The
    first `limit` documents are asked (all: None); a document is right where `metric` is 1 behind
    the chain of filters named `filter` (the first one: None).
    """

    name: str
    yaml: str
    files: dict[str, bytes]
    metric: str
    filter: str | None = None
    limit: int | None = None


class Pass(msgspec.Struct, frozen=True, kw_only=True):
    """A list of requests sent to one launch with `concurrency` in flight, in order of the list.

    Exactly one of `requests`, `scores`, `task` and `asks` is filled. `salt` is the pass's own cache
    namespace. `logprobs` is the number of top logprobs asked for at each emitted token.
    """

    id: str
    requests: tuple[Request, ...] = ()
    scores: tuple[ScoreRequest, ...] = ()
    task: Task | None = None
    asks: tuple[Ask, ...] = ()
    concurrency: int = 1
    salt: str = ""
    logprobs: int = 2


def _ints() -> IntArray:
    return np.zeros(0, np.int32)


def _floats() -> FloatArray:
    return np.zeros(0, np.float32)


@dataclass(frozen=True, kw_only=True, eq=False)
class Observation:
    """What one arm gave for one request. Arrays, n emitted tokens, k top logprobs, s steps:

    token_ids [n] int32; logprobs [n] float32 of the emitted tokens (natural log, NaN where the
    engine gave none); top_ids [n, k] int32 and top_logprobs [n, k] float32, best first, padded with
    -1 and NaN; accepted [s] and drafted [s] int32, draft tokens accepted and proposed in each
    verification step, in order unless `steps_ordered` is False (an engine that only counts how many
    steps accepted how many; none of them is cut by the output limit then); empty where the engine
    gives no per-step data. sent [m] int32 is the prompt as it was sent, where it is not the
    workload's prompt of that name; banned [b] int32 are the token sequences that the request
    forbids, each behind its length (see `banned_sequences`). Times are seconds since the pass
    began; `first_token` is NaN when unknown. `error` holds the engine's words when the request
    failed (then n may be 0). `right` says whether the answer to a document of a Task is right; None
    where nobody looked.
    `reply` is what else a client reads of the answer to an Ask.
    """

    request: str
    prompt: str
    category: str
    token_ids: IntArray = field(default_factory=_ints)
    logprobs: FloatArray = field(default_factory=_floats)
    top_ids: IntArray = field(default_factory=_ints)
    top_logprobs: FloatArray = field(default_factory=_floats)
    accepted: IntArray = field(default_factory=_ints)
    drafted: IntArray = field(default_factory=_ints)
    sent: IntArray = field(default_factory=_ints)
    banned: IntArray = field(default_factory=_ints)
    steps_ordered: bool = True
    prompt_tokens: int = 0
    cached_tokens: int | None = None
    finish_reason: str | None = None
    text: str | None = None
    started: float = 0.0
    first_token: float = float("nan")
    finished: float = 0.0
    error: str | None = None
    right: bool | None = None
    reply: Reply | None = None

    @property
    def banned_sequences(self) -> tuple[tuple[int, ...], ...]:
        """The token sequences that must not stand in the answer."""
        found, rest = [], self.banned.tolist()
        while rest:
            length = rest[0]
            found.append(tuple(rest[1 : length + 1]))
            rest = rest[length + 1 :]
        return tuple(found)


@dataclass(frozen=True, kw_only=True, eq=False)
class Score:
    """The off arm's valuation of given tokens. Arrays of n scored positions: token_logprobs [n]
    and best_logprobs [n] float32 (natural log), best_ids [n] int32. Regret is best - token.
    Where more than the best token was asked for and is known: top_ids [n, k] int32 and
    top_logprobs [n, k] float32, best first, padded with -1 and NaN.

    `bounded` marks a score whose token lay outside what the engine returned: its logprob is then
    an upper bound and the regret a lower bound."""

    request: str
    evaluation: Evaluation
    start: int
    token_logprobs: FloatArray
    best_logprobs: FloatArray
    best_ids: IntArray
    rows: int = 0
    bounded: bool = False
    error: str | None = None
    top_ids: IntArray = field(default_factory=_ints)
    top_logprobs: FloatArray = field(default_factory=_floats)

    @property
    def regret(self) -> FloatArray:
        """Nats [n] by which the target prefers its best token to the given one; 0 is greedy."""
        gap: FloatArray = np.maximum(self.best_logprobs - self.token_logprobs, np.float32(0))
        return gap


class PassRecord(msgspec.Struct, frozen=True, kw_only=True):
    """Where the observations of a pass lie: `path` relative to the sweep's folder, its sha256."""

    launch: str
    pass_id: str
    kind: str
    path: str
    sha256: str
    requests: int
    seconds: float
    counters_before: dict[str, float] = {}
    counters_after: dict[str, float] = {}
    notes: dict[str, Any] = {}


class ProbeRecords(msgspec.Struct, frozen=True, kw_only=True):
    """What a probe other than equality observed on one arm, by reference: its passes in the order
    in which they were sent, and the scores of what each emitted (none where it is not scored).
    `compared` says that its `on`, `off` and `null` answer the same requests greedily, so that they
    are compared as equality's are."""

    kind: str
    arm: str
    compared: bool
    passes: tuple[PassRecord, ...] = ()
    scores: tuple[PassRecord, ...] = ()
