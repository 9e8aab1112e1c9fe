"""What llama.cpp's HTTP answers say, as our types. Pure; every function raises Garbled on an answer
that is not what the server promises."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from matrixrun.evidence.requests import Observation, Request

FINISH_REASONS = {"eos": "stop", "word": "stop", "limit": "length"}


class Garbled(ValueError):
    """An answer that cannot be what the engine meant to say."""


@dataclass
class Emission:
    """An answer in the making. Chunks come one for each token whose text is whole; one that ends
    inside a character has no chunk, so `token_ids` holds None at its place until it is filled.

    `rows` are (id, logprob) best first for each place that has them. `steps` are (drafted,
    accepted) of each verification step, told apart by the running sums that each chunk carries;
    where chunks are missing two steps may lie in one difference, and that one is left out.
    """

    token_ids: list[int | None] = field(default_factory=list)
    logprobs: dict[int, float] = field(default_factory=dict)
    rows: dict[int, list[tuple[int, float]]] = field(default_factory=dict)
    steps: list[tuple[int, int]] = field(default_factory=list)
    sums: tuple[int, int] = (0, 0)
    text: str = ""
    first_token: float = math.nan
    last: dict[str, Any] = field(default_factory=dict)

    def add(self, chunk: Any, seconds: float) -> None:
        """Take the next chunk, which arrived `seconds` after the request was sent."""
        if not isinstance(chunk, dict) or not isinstance(chunk.get("tokens_predicted"), int):
            raise Garbled(f"a part of an answer without a token count: {str(chunk)[:300]}")
        if math.isnan(self.first_token):
            self.first_token = seconds
        count, ids = chunk["tokens_predicted"], _ids(chunk)
        if count < len(self.token_ids) or len(ids) > count - len(self.token_ids):
            raise Garbled(f"{len(ids)} tokens at {count} after {len(self.token_ids)}")
        whole = len(ids) == count - len(self.token_ids)
        self.token_ids += [None] * (count - len(self.token_ids))
        for place, token in enumerate(ids, start=count - len(ids)):
            self.token_ids[place] = token
        self.text += str(chunk.get("content") or "")
        self._valued(chunk, count - 1)
        self._drafted(chunk, whole)
        if chunk.get("stop"):
            self.last = chunk

    def _valued(self, chunk: dict[str, Any], place: int) -> None:
        """A token that was drafted and accepted has no logprob here: the server fills in 0 and an
        empty list, or nothing at all."""
        for entry in probabilities(chunk):
            row = top_row(entry)
            if row and entry["id"] == self.token_ids[place]:
                self.logprobs[place] = float(entry["logprob"])
                self.rows[place] = row

    def _drafted(self, chunk: dict[str, Any], whole: bool) -> None:
        timings = chunk.get("timings") or {}
        sums = (int(timings.get("draft_n") or 0), int(timings.get("draft_n_accepted") or 0))
        drafted, accepted = sums[0] - self.sums[0], sums[1] - self.sums[1]
        if drafted < 0 or not 0 <= accepted <= drafted:
            raise Garbled(f"{accepted} tokens accepted of {drafted} drafted")
        if drafted and whole:
            self.steps.append((drafted, accepted))
        self.sums = sums

    def missing(self) -> bool:
        """Whether tokens are known to be there whose ids are not."""
        return any(token is None for token in self.token_ids)

    def fill(self, token_ids: Sequence[int], text: str) -> None:
        """Take the missing ids from a second answer to the same request, which must be the same
        wherever the first one is known."""
        same = len(token_ids) == len(self.token_ids) and text == self.text
        pairs = list(zip(self.token_ids, token_ids, strict=False))
        if not same or any(known not in (None, token) for known, token in pairs):
            raise Garbled(
                "a streamed answer leaves out tokens that end inside a character, and the request "
                "sent again for them was answered otherwise"
            )
        self.token_ids = list(token_ids)

    def withhold_logprobs(self) -> None:
        """Forget the logprobs of a server that speculates: those of the tokens that were not
        drafted are right, but an answer that has them here and there looks damaged."""
        self.logprobs.clear()
        self.rows.clear()

    def observation(self, request: Request, *, logprobs: int, seconds: float) -> Observation:
        """The observation of a whole answer that ended after `seconds`."""
        if not self.last:
            raise Garbled("the answer broke off before its end")
        ids = [token for token in self.token_ids if token is not None]
        timings = self.last.get("timings") or {}
        return Observation(
            request=request.id,
            prompt=request.prompt,
            category=request.category,
            token_ids=np.asarray(ids, np.int32),
            logprobs=np.asarray(
                [self.logprobs.get(place, math.nan) for place in range(len(ids))], np.float32
            ),
            top_ids=self._tops(logprobs, 0, -1, np.int32),
            top_logprobs=self._tops(logprobs, 1, math.nan, np.float32),
            accepted=np.asarray([step[1] for step in self.steps], np.int32),
            drafted=np.asarray([step[0] for step in self.steps], np.int32),
            prompt_tokens=int(self.last.get("tokens_evaluated") or len(request.token_ids)),
            cached_tokens=_count(timings, "cache_n"),
            finish_reason=finish_reason(self.last),
            text=self.text,
            first_token=self.first_token,
            finished=seconds,
        )

    def _tops(self, count: int, part: int, nothing: float, kind: Any) -> Any:
        """Ids (part 0) or logprobs (part 1) [n, count], best first."""
        found = np.full((len(self.token_ids), count), nothing, kind)
        for place, row in self.rows.items():
            for rank, entry in enumerate(row[:count]):
                found[place, rank] = entry[part]
        return found


def finish_reason(last: dict[str, Any]) -> str | None:
    """Why an answer ended, in the words that the other engines use; None if it does not say."""
    return FINISH_REASONS.get(str(last.get("stop_type")))


def probabilities(answer: dict[str, Any]) -> list[dict[str, Any]]:
    """The entries of `completion_probabilities`, none where they were not asked for."""
    entries = answer.get("completion_probabilities")
    if entries is None:
        return []
    good = isinstance(entries, list) and all(
        isinstance(entry, dict) and isinstance(entry.get("id"), int) for entry in entries
    )
    if not good:
        raise Garbled(f"logprobs that are no list of tokens: {str(entries)[:300]}")
    return list(entries)


def top_row(entry: dict[str, Any]) -> list[tuple[int, float]]:
    """(id, logprob) of the best tokens at one place, best first, of equals the smaller id first."""
    try:
        row = [(int(top["id"]), _logprob(top["logprob"])) for top in entry["top_logprobs"]]
    except (KeyError, TypeError, ValueError) as error:
        raise Garbled(f"logprobs without ids or values: {str(entry)[:300]}") from error
    return sorted(row, key=lambda item: (math.isnan(item[1]), -item[1], item[0]))


@dataclass(frozen=True)
class Valuation:
    """One position: the token's logprob, the best id and its logprob; `rows` is how many rows the
    server computed for it. `bounded` when the token's logprob is only known not to be larger."""

    token: float
    best: float
    best_id: int
    rows: int
    bounded: bool = False


def valuation(answer: Any, token: int) -> Valuation:
    """What an answer of one forced output token says about `token`."""
    if not isinstance(answer, dict):
        raise Garbled(f"no answer to one prompt: {str(answer)[:300]}")
    entries = probabilities(answer)
    if len(entries) != 1:
        raise Garbled(f"logprobs of {len(entries)} tokens where one was due")
    row = top_row(entries[0])
    if not row:
        raise Garbled("a position without logprobs")
    best_id, best = row[0]
    rows = _count(answer.get("timings") or {}, "prompt_n") or 0
    own = dict(row).get(token)
    if own is None and entries[0]["id"] == token:
        own = _logprob(entries[0]["logprob"])
    if own is not None:
        return Valuation(own, best, best_id, rows)
    return Valuation(row[-1][1], best, best_id, rows, bounded=True)


def _logprob(value: Any) -> float:
    return math.nan if value is None else float(value)


def _ids(chunk: dict[str, Any]) -> list[int]:
    ids = chunk.get("tokens")
    if not isinstance(ids, list) or not all(isinstance(token, int) for token in ids):
        raise Garbled("token ids were asked for and none came")
    return ids


def _count(timings: dict[str, Any], name: str) -> int | None:
    value = timings.get(name)
    return None if value is None else int(value)
