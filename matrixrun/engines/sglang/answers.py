"""What SGLang's HTTP answers say, as our types. Pure; every function raises Garbled on an answer
that is not what SGLang promises."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from matrixrun.evidence.requests import FloatArray, IntArray, Observation, Request

LOWEST_LOGPROB = -1e30  # SGLang cuts minus infinity to float32's most negative number

Row = dict[int, float]
"""Logprobs of one position by token id."""


class Garbled(ValueError):
    """An answer that cannot be what the engine meant to say."""


class Aborted(Exception):
    """The engine gave a request up and says why."""


@dataclass
class Emission:
    """A streamed answer in the making: one part for each step of the scheduler that added tokens to
    it, unless parts waited for one another and came as one. `counts` are the tokens of each."""

    token_ids: list[int] = field(default_factory=list)
    own: list[float] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    text: str = ""
    first_token: float = math.nan
    last: dict[str, Any] = field(default_factory=dict)

    def add(self, part: Any, seconds: float, *, logprobs: int) -> None:
        """Take the next part, which arrived `seconds` after the request was sent.

        A server that sends parts adds them up; one that was started without
        `--incremental-streaming-output` sends everything so far each time.
        """
        meta, ids = meta_info(part), output_ids(part)
        total = meta.get("completion_tokens")
        if not isinstance(total, int):
            raise Garbled(f"a part of an answer without a token count: {str(part)[:300]}")
        new = total - len(self.token_ids)
        whole = len(ids) == total
        if new < 0 or not (whole or len(ids) == new):
            raise Garbled(f"{len(ids)} tokens at {total} after {len(self.token_ids)}")
        if new and math.isnan(self.first_token):
            self.first_token = seconds
        fresh = ids[total - new :] if whole else ids
        self._valued(meta, fresh, logprobs)
        self.token_ids += fresh
        if new:
            self.counts.append(new)
        self.text = ("" if whole else self.text) + str(part.get("text") or "")
        if meta.get("finish_reason"):
            self.last = meta

    def _valued(self, meta: dict[str, Any], fresh: list[int], logprobs: int) -> None:
        if logprobs < 1:
            return
        own = _triples(meta.get("output_token_logprobs"))[-len(fresh) :] if fresh else []
        tops = _lists(meta.get("output_top_logprobs"))[-len(fresh) :] if fresh else []
        if [token for _, token in own] != fresh or len(tops) != len(fresh):
            raise Garbled(f"{len(fresh)} tokens but logprobs of {len(own)}")
        self.own += [value for value, _ in own]
        self.rows += [row(top) for top in tops]

    def observation(
        self, request: Request, *, logprobs: int, offered: int | None, seconds: float
    ) -> Observation:
        """The observation of a whole answer that ended after `seconds`. `offered` is how many
        draft positions a verification step has on this server, None where that is unknown."""
        if not self.last:
            raise Garbled("the answer broke off before its end")
        accepted, ordered = _steps(self.last, self.counts)
        if offered is None:
            accepted = []
        elif accepted and max(accepted) > offered:
            raise Garbled(f"{max(accepted)} tokens accepted of {offered} drafted")
        own = self.own if logprobs > 0 else [math.nan] * len(self.token_ids)
        top_ids, top_logprobs = _tops(self.rows, len(self.token_ids), logprobs)
        return Observation(
            request=request.id,
            prompt=request.prompt,
            category=request.category,
            token_ids=np.asarray(self.token_ids, np.int32),
            logprobs=np.asarray(own, np.float32),
            top_ids=top_ids,
            top_logprobs=top_logprobs,
            accepted=np.asarray(accepted, np.int32),
            drafted=np.full(len(accepted), offered or 0, np.int32),
            steps_ordered=ordered,
            prompt_tokens=int(self.last.get("prompt_tokens") or len(request.token_ids)),
            cached_tokens=cached_tokens(self.last),
            finish_reason=finish_reason(self.last),
            text=self.text,
            first_token=self.first_token,
            finished=seconds,
        )


def meta_info(answer: Any) -> dict[str, Any]:
    """The account that comes with an answer; Aborted where the engine gave the request up."""
    meta = answer.get("meta_info") if isinstance(answer, dict) else None
    if not isinstance(meta, dict):
        raise Garbled(f"no single answer: {str(answer)[:300]}")
    reason = meta.get("finish_reason")
    if isinstance(reason, dict) and reason.get("type") == "abort":
        raise Aborted(f"aborted: {reason.get('message')}")
    return meta


def output_ids(answer: dict[str, Any]) -> list[int]:
    """The ids of the tokens in an answer, or in this part of it."""
    ids = answer.get("output_ids")
    if not isinstance(ids, list) or not all(isinstance(token, int) for token in ids):
        raise Garbled("token ids were asked for and none came")
    return ids


def finish_reason(meta: dict[str, Any]) -> str | None:
    """Why an answer ended: `stop`, `length`, or None where it does not say."""
    reason = meta.get("finish_reason")
    return reason.get("type") if isinstance(reason, dict) else None


def cached_tokens(meta: dict[str, Any]) -> int | None:
    """Prompt tokens that the engine took from its prefix cache."""
    value = meta.get("cached_tokens")
    return None if value is None else int(value)


def row(triples: Any) -> Row:
    """Logprobs by token id from a list of (logprob, id, text)."""
    return {token: value for value, token in _triples(triples)}


def named_rows(meta: dict[str, Any], side: str) -> list[Row]:
    """For each position of `input` or `output`, the logprobs of its best tokens, of the token that
    stands there and of those that were asked for by id. An empty row where there are none: the
    first position has no text before it."""
    own = _triples(meta.get(f"{side}_token_logprobs"))
    rows: list[Row] = []
    tops = _lists(meta.get(f"{side}_top_logprobs"))
    asked = meta.get(f"{side}_token_ids_logprobs") or [None] * len(own)
    if not len(tops) == len(asked) == len(own):
        raise Garbled(f"logprobs of {len(own)}, {len(tops)} and {len(asked)} positions")
    for (value, token), top, named in zip(own, tops, asked, strict=True):
        known = row(top) if top else {}
        known |= row(named) if named else {}
        rows.append(known | ({token: value} if known else {}))
    return rows


@dataclass(frozen=True)
class Valuation:
    """One position: the token's logprob, the best id and its logprob."""

    token: float
    best: float
    best_id: int


def valuation(row: Row, token: int) -> Valuation:
    """How a row values a token. NaN anywhere in the row makes both logprobs NaN."""
    if token not in row:
        raise Garbled(f"no logprob of token {token}, which was asked for")
    if any(math.isnan(value) for value in row.values()):
        return Valuation(math.nan, math.nan, next(iter(row)))
    best = max(row, key=lambda key: (row[key], -key))
    return Valuation(row[token], row[best], best)


def without_bias(biased: Row, forced: int, bias: float) -> Row:
    """The row as it was before `bias` was added to the logit of `forced`, which is in it.

    With q the forced token's probability under the bias, all others together have 1 - q, and
    taking the bias away leaves q e^-bias + (1 - q) of the whole to divide by.
    """
    shifted = biased[forced] - bias
    others = -math.expm1(min(biased[forced], 0.0))
    whole = float(np.logaddexp(shifted, math.log(others) if others > 0 else -math.inf))
    return {
        token: (shifted if token == forced else value) - whole for token, value in biased.items()
    }


def _steps(meta: dict[str, Any], counts: list[int]) -> tuple[list[int], bool]:
    """Draft tokens accepted in each verification step, and whether they are in order.

    SGLang counts how many steps accepted how many. Each part of a stream but the first (which is
    the prefill's token) holds what one step emitted: what it accepted and one more, less what the
    output limit cut from the last. Where the parts fit the counts, the order is theirs; where they
    do not, since parts came together, it is unknown.
    """
    histogram = meta.get("spec_correct_drafts_histogram") or []
    if not isinstance(histogram, list) or not all(isinstance(n, int) for n in histogram):
        raise Garbled(f"acceptance counts that are no numbers: {str(histogram)[:100]}")
    counted = Counter({accepted: n for accepted, n in enumerate(histogram) if n})
    unordered = sorted(counted.elements())
    early = [count - 1 for count in counts[1:-1]]
    if not unordered or counts[:1] != [1] or len(counts) - 1 != len(unordered):
        return unordered, not unordered
    left = counted - Counter(early)
    (last,) = left.elements() if left.total() == 1 else (-1,)
    if last < counts[-1] - 1:
        return unordered, False
    return [*early, last], True


def _lists(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise Garbled("logprobs were asked for and none came")
    return value


def _triples(value: Any) -> list[tuple[float, int]]:
    """(logprob, id) of each (logprob, id, text); a logprob that is None is NaN."""
    try:
        return [(_logprob(entry[0]), int(entry[1])) for entry in _lists(value)]
    except (TypeError, IndexError, KeyError, ValueError) as error:
        if isinstance(error, Garbled):
            raise
        raise Garbled(f"logprobs without ids or values: {str(value)[:300]}") from error


def _logprob(value: Any) -> float:
    if value is None:
        return math.nan
    return -math.inf if value <= LOWEST_LOGPROB else float(value)


def _tops(rows: list[Row], length: int, count: int) -> tuple[IntArray, FloatArray]:
    """Ids and logprobs [n, count], best first; of equals the smaller id first."""
    ids = np.full((length, count), -1, np.int32)
    values = np.full((length, count), np.nan, np.float32)
    for position, found in enumerate(rows):
        for rank, (token, value) in enumerate(sorted(found.items(), key=_best_first)[:count]):
            ids[position, rank], values[position, rank] = token, value
    return ids, values


def _best_first(item: tuple[int, float]) -> tuple[bool, float, int]:
    return (math.isnan(item[1]), -item[1], item[0])
