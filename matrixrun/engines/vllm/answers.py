"""What vLLM's HTTP answers say, as our types. Pure; every function raises Garbled on an answer that
is not what vLLM promises."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from matrixrun.evidence.requests import FloatArray, IntArray, Observation, Request

LOWEST_LOGPROB = -9999.0  # vLLM's stand-in for minus infinity, which JSON lacks
TOKEN_ID_PREFIX = "token_id:"

Row = dict[int, float]
"""Logprobs of one position by token id, in the engine's order."""


class Garbled(ValueError):
    """An answer that cannot be what the engine meant to say."""


def observation(answer: Any, request: Request, *, logprobs: int, seconds: float) -> Observation:
    """The observation in an answer of /v1/completions that arrived `seconds` after sending."""
    choice = only_choice(answer)
    token_ids = _token_ids(choice)
    rows = output_rows(choice) if logprobs > 0 else [{} for _ in token_ids]
    if len(rows) != len(token_ids):
        raise Garbled(f"{len(token_ids)} tokens but logprobs of {len(rows)}")
    top_ids, top_logprobs = tops(rows, logprobs)
    accepted, drafted = _steps(answer)
    usage = answer.get("usage") or {}
    return Observation(
        request=request.id,
        prompt=request.prompt,
        category=request.category,
        token_ids=np.asarray(token_ids, np.int32),
        logprobs=_own_logprobs(rows, token_ids),
        top_ids=top_ids,
        top_logprobs=top_logprobs,
        accepted=accepted,
        drafted=drafted,
        prompt_tokens=int(usage.get("prompt_tokens") or len(request.token_ids)),
        cached_tokens=cached_tokens(answer),
        finish_reason=choice.get("finish_reason"),
        text=choice.get("text"),
        first_token=_first_token(answer),
        finished=seconds,
    )


def only_choice(answer: Any) -> dict[str, Any]:
    """The one choice of an answer."""
    choices = answer.get("choices") if isinstance(answer, dict) else None
    if not isinstance(choices, list) or len(choices) != 1 or not isinstance(choices[0], dict):
        raise Garbled(f"no single choice in the answer: {str(answer)[:300]}")
    return choices[0]


def output_rows(choice: dict[str, Any]) -> list[Row]:
    """Logprobs by token id for each emitted token; the emitted token itself is in each."""
    block = choice.get("logprobs")
    tops = block.get("top_logprobs") if isinstance(block, dict) else None
    if not isinstance(tops, list):
        raise Garbled("logprobs were asked for and none came")
    return [_row(top) for top in tops]


def prompt_rows(choice: dict[str, Any]) -> list[Row]:
    """Logprobs by token id for each prompt token; the first token has none: an empty row."""
    rows = choice.get("prompt_logprobs")
    if not isinstance(rows, list):
        raise Garbled("prompt logprobs were asked for and none came")
    return [_prompt_row(row) for row in rows]


def cached_tokens(answer: dict[str, Any]) -> int | None:
    """Prompt tokens that the engine took from its prefix cache."""
    usage = answer.get("usage")
    details = usage.get("prompt_tokens_details") if isinstance(usage, dict) else None
    value = details.get("cached_tokens") if isinstance(details, dict) else None
    return None if value is None else int(value)


@dataclass(frozen=True)
class Valuation:
    """One position: the token's logprob, the best id and its logprob. `bounded` when the token was
    not among those returned: its logprob is then that of the last one, an upper bound."""

    token: float
    best: float
    best_id: int
    bounded: bool = False


def valuation(row: Row, token: int) -> Valuation:
    """How a row values a token. NaN anywhere in the row makes both logprobs NaN."""
    if not row:
        raise Garbled("an empty row of logprobs")
    if any(math.isnan(value) for value in row.values()):
        return Valuation(math.nan, math.nan, next(iter(row)))
    best_id = max(row, key=lambda key: (row[key], -key))
    if token in row:
        return Valuation(row[token], row[best_id], best_id)
    return Valuation(min(row.values()), row[best_id], best_id, bounded=True)


def _row(top: Any) -> Row:
    if not isinstance(top, dict) or not top:
        raise Garbled("a position without logprobs")
    row: Row = {}
    for name, value in top.items():
        if not name.startswith(TOKEN_ID_PREFIX):
            raise Garbled(f"a token named {name!r} where an id was asked for")
        row[int(name.removeprefix(TOKEN_ID_PREFIX))] = _logprob(value)
    return row


def _prompt_row(row: Any) -> Row:
    if row is None:
        return {}
    if not isinstance(row, dict):
        raise Garbled(f"prompt logprobs that are no mapping: {str(row)[:100]}")
    return {int(key): _logprob(entry.get("logprob")) for key, entry in row.items()}


def _logprob(value: Any) -> float:
    if value is None:
        return math.nan
    return -math.inf if value <= LOWEST_LOGPROB else float(value)


def _token_ids(choice: dict[str, Any]) -> list[int]:
    ids = choice.get("token_ids") or _named_ids(choice)
    if not isinstance(ids, list) or not all(isinstance(i, int) for i in ids):
        raise Garbled("token ids were asked for and none came")
    return ids


def _named_ids(choice: dict[str, Any]) -> list[int] | None:
    """The ids by which logprobs name the emitted tokens: what a server gives that does not know
    `return_token_ids`."""
    block = choice.get("logprobs")
    names = block.get("tokens") if isinstance(block, dict) else None
    if not isinstance(names, list) or not all(
        isinstance(name, str) and name.startswith(TOKEN_ID_PREFIX) for name in names
    ):
        return None
    return [int(name.removeprefix(TOKEN_ID_PREFIX)) for name in names]


def _own_logprobs(rows: list[Row], token_ids: list[int]) -> FloatArray:
    values = [row.get(token, math.nan) for row, token in zip(rows, token_ids, strict=True)]
    return np.asarray(values, np.float32)


def tops(rows: list[Row], count: int) -> tuple[IntArray, FloatArray]:
    """Ids and logprobs [n, count], best first; of equals the smaller id first."""
    ids = np.full((len(rows), count), -1, np.int32)
    values = np.full((len(rows), count), np.nan, np.float32)
    for position, row in enumerate(rows):
        for rank, (token, value) in enumerate(_best_first(row, count)):
            ids[position, rank], values[position, rank] = token, value
    return ids, values


def _best_first(row: Row, count: int) -> Iterator[tuple[int, float]]:
    def order(item: tuple[int, float]) -> tuple[bool, float, int]:
        return (math.isnan(item[1]), -item[1], item[0])

    return iter(sorted(row.items(), key=order)[:count])


def _steps(answer: dict[str, Any]) -> tuple[IntArray, IntArray]:
    metrics = answer.get("metrics") or {}
    speculative = metrics.get("speculative_decoding") or {}
    accepted = speculative.get("per_step_accepted") or []
    drafted = speculative.get("per_step_drafted") or []
    if len(accepted) != len(drafted):
        raise Garbled(f"{len(accepted)} steps accepted but {len(drafted)} drafted")
    return np.asarray(accepted, np.int32), np.asarray(drafted, np.int32)


def _first_token(answer: dict[str, Any]) -> float:
    """Seconds from the engine's receipt to its first token; NaN unless the server reports both
    parts (--enable-per-request-metrics)."""
    metrics = answer.get("metrics") or {}
    queued, computed = metrics.get("queue_time_ms"), metrics.get("time_to_first_token_ms")
    if queued is None or computed is None:
        return math.nan
    return (float(queued) + float(computed)) / 1000.0
