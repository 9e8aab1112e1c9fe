"""Observations and scores as Parquet: list columns, one row a request, read by any tool.

Arrays go through flattened buffers and offsets, so that time does not depend on the number of
tokens in Python. float32 and int32 stay what they are, NaN stays NaN.
"""

from __future__ import annotations

import io
import itertools
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from matrixrun.evidence.replies import Reply
from matrixrun.evidence.requests import Evaluation, Observation, Score

FORMAT = "1"

_INT_LISTS = ("token_ids", "accepted", "drafted", "sent", "banned")
_LATER = frozenset({"sent", "banned"})  # columns that sweeps of earlier versions do not have
_STRINGS = ("request", "prompt", "category", "finish_reason", "text", "error")
_COUNTS = ("prompt_tokens", "cached_tokens")
_TIMES = ("started", "first_token", "finished")


def encode_observations(observations: Sequence[Observation], *, text: bool = True) -> bytes:
    """A Parquet file of one pass. With `text` false the texts are left out, and
    replies, which are texts (ids remain)."""
    columns: dict[str, pa.Array] = {}
    for name in _STRINGS:
        keep = text or name != "text"
        columns[name] = _strings([getattr(o, name) if keep else None for o in observations])
    for name in _COUNTS:
        columns[name] = pa.array([getattr(o, name) for o in observations], pa.int64())
    for name in _TIMES:
        columns[name] = pa.array(np.array([getattr(o, name) for o in observations], np.float64))
    for name in _INT_LISTS:
        columns[name] = _lists([getattr(o, name) for o in observations], np.int32)
    columns["steps_ordered"] = pa.array([o.steps_ordered for o in observations], pa.bool_())
    if any(o.right is not None for o in observations):
        columns["right"] = pa.array([o.right for o in observations], pa.bool_())
    if text and any(o.reply is not None for o in observations):
        columns["reply"] = _strings([_written(o.reply) for o in observations])
    columns["logprobs"] = _lists([o.logprobs for o in observations], np.float32)
    columns["top_k"] = pa.array([_width(o.top_ids) for o in observations], pa.int32())
    columns["top_ids"] = _tables([o.top_ids for o in observations], np.int32)
    columns["top_logprobs"] = _tables([o.top_logprobs for o in observations], np.float32)
    return _to_bytes(columns, "observations")


def decode_observations(data: bytes) -> list[Observation]:
    """The observations of a pass, in the order in which they were written.

    Raises:
        ValueError: `data` is no such file (pyarrow's own errors are ValueErrors too).
    """
    table = _from_bytes(data, "observations")
    widths = table["top_k"].to_pylist()
    scalars = {n: table[n].to_pylist() for n in _STRINGS + _COUNTS + _TIMES}
    known = [n for n in _INT_LISTS if n not in _LATER or n in table.column_names]
    lists = {n: _rows(table[n]) for n in (*known, "logprobs")}
    tables = {n: _row_tables(table[n], widths) for n in ("top_ids", "top_logprobs")}
    columns: dict[str, Sequence[Any]] = {**scalars, **lists, **tables}
    for name in ("steps_ordered", "right"):  # sweeps of earlier versions lack the first
        if name in table.column_names:
            columns[name] = table[name].to_pylist()
    if "reply" in table.column_names:
        columns["reply"] = [_read(one) for one in table["reply"].to_pylist()]
    names = list(columns)
    return [
        Observation(**dict(zip(names, row, strict=True)))
        for row in zip(*columns.values(), strict=True)
    ]


def encode_scores(scores: Sequence[Score]) -> bytes:
    """A Parquet file of one scoring pass."""
    columns: dict[str, pa.Array] = {
        "request": _strings([s.request for s in scores]),
        "evaluation": _strings([s.evaluation.value for s in scores]),
        "start": pa.array([s.start for s in scores], pa.int64()),
        "rows": pa.array([s.rows for s in scores], pa.int64()),
        "bounded": pa.array([s.bounded for s in scores], pa.bool_()),
        "error": _strings([s.error for s in scores]),
        "token_logprobs": _lists([s.token_logprobs for s in scores], np.float32),
        "best_logprobs": _lists([s.best_logprobs for s in scores], np.float32),
        "best_ids": _lists([s.best_ids for s in scores], np.int32),
    }
    if any(s.top_ids.ndim == 2 for s in scores):
        columns["top_k"] = pa.array([_width(s.top_ids) for s in scores], pa.int32())
        columns["top_ids"] = _tables([s.top_ids for s in scores], np.int32)
        columns["top_logprobs"] = _tables([s.top_logprobs for s in scores], np.float32)
    return _to_bytes(columns, "scores")


def decode_scores(data: bytes) -> list[Score]:
    """The scores of a pass, in the order in which they were written; ValueError as above."""
    table = _from_bytes(data, "scores")
    columns: dict[str, Sequence[Any]] = {
        n: table[n].to_pylist() for n in ("request", "start", "rows", "bounded", "error")
    }
    columns["evaluation"] = [Evaluation(e) for e in table["evaluation"].to_pylist()]
    columns |= {n: _rows(table[n]) for n in ("token_logprobs", "best_logprobs", "best_ids")}
    if "top_k" in table.column_names:
        widths = table["top_k"].to_pylist()
        columns |= {n: _row_tables(table[n], widths) for n in ("top_ids", "top_logprobs")}
    names = list(columns)
    return [
        Score(**dict(zip(names, row, strict=True))) for row in zip(*columns.values(), strict=True)
    ]


def _written(reply: Reply | None) -> str | None:
    return None if reply is None else msgspec.json.encode(reply).decode()


def _read(reply: str | None) -> Reply | None:
    return None if reply is None else msgspec.json.decode(reply, type=Reply)


def _to_bytes(columns: dict[str, pa.Array], kind: str) -> bytes:
    table = pa.table(columns).replace_schema_metadata({"matrixrun": kind, "format": FORMAT})
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd")
    return sink.getvalue()


def _from_bytes(data: bytes, kind: str) -> pa.Table:
    table = pq.read_table(pa.BufferReader(data))
    metadata = table.schema.metadata or {}
    found = metadata.get(b"matrixrun", b"").decode(), metadata.get(b"format", b"").decode()
    if found != (kind, FORMAT):
        raise ValueError(f"a file of {kind} (format {FORMAT}) was expected, this is {found}")
    return table


def _strings(values: Sequence[str | None]) -> pa.Array:
    # An engine's JSON can hold half of a surrogate pair, which UTF-8 cannot: kept as \\udXXX.
    return pa.array(
        [None if v is None else v.encode("utf-8", "backslashreplace").decode() for v in values],
        pa.string(),
    )


def _offsets(lengths: Sequence[int] | NDArray[Any]) -> pa.Array:
    return pa.array(np.concatenate([[0], np.cumsum(lengths, dtype=np.int64)]).astype(np.int32))


def _flat(arrays: Sequence[NDArray[Any]], dtype: type) -> pa.Array:
    parts: list[NDArray[Any]] = [np.asarray(a, dtype).reshape(-1) for a in arrays]
    return pa.array(np.concatenate(parts) if parts else np.zeros(0, dtype))


def _lists(arrays: Sequence[NDArray[Any]], dtype: type) -> pa.Array:
    return pa.ListArray.from_arrays(_offsets([len(a) for a in arrays]), _flat(arrays, dtype))


def _width(array: NDArray[Any]) -> int | None:
    """k of an [n, k] array; None for the empty array that stands for 'nothing asked for'."""
    if array.ndim == 1 and array.size:
        raise ValueError(f"top_ids and top_logprobs are [tokens, k] arrays, not {array.shape}")
    return int(array.shape[1]) if array.ndim == 2 else None


def _tables(arrays: Sequence[NDArray[Any]], dtype: type) -> pa.Array:
    inner = np.repeat([_width(a) or 0 for a in arrays], [len(a) for a in arrays])
    rows = pa.ListArray.from_arrays(_offsets(inner), _flat(arrays, dtype))
    return pa.ListArray.from_arrays(_offsets([len(a) for a in arrays]), rows)


def _combined(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _rows(column: pa.ChunkedArray) -> list[NDArray[Any]]:
    array = _combined(column)
    values = array.values.to_numpy(zero_copy_only=False)
    bounds = array.offsets.to_numpy()
    return [values[a:b] for a, b in itertools.pairwise(bounds)]


def _row_tables(column: pa.ChunkedArray, widths: Sequence[int | None]) -> list[NDArray[Any]]:
    array = _combined(column)
    inner = array.values
    values = inner.values.to_numpy(zero_copy_only=False)
    counts = array.offsets.to_numpy()
    bounds = inner.offsets.to_numpy()[counts] if len(inner) else np.zeros_like(counts)
    tables = []
    for i, width in enumerate(widths):
        flat = values[bounds[i] : bounds[i + 1]]
        rows = int(counts[i + 1] - counts[i])
        tables.append(flat if width is None else flat.reshape(rows, width))
    return tables
