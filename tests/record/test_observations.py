"""Parquet files give back exactly what was observed."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from small_sweeps import make_observation

from matrixrun.evidence.replies import Form, Reply, Stream, ToolCall
from matrixrun.evidence.requests import Evaluation, Observation, Score
from matrixrun.record import (
    decode_observations,
    decode_scores,
    encode_observations,
    encode_scores,
)

ints = st.integers(-(2**31), 2**31 - 1)
float32s = st.floats(width=32)
words = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
seconds = st.floats(allow_nan=True)


calls = st.builds(ToolCall, name=words, arguments=words)
counts = st.none() | st.integers(0, 10**6)
replies = st.builds(
    Reply,
    form=st.sampled_from(Form),
    text=words,
    reasoning=words,
    tool_calls=st.lists(calls, max_size=2).map(tuple),
    completion_tokens=counts,
    prompt_tokens=counts,
    decoded=st.none() | words,
    stream=st.none() | st.builds(Stream, tokens=st.lists(st.integers(0, 9)).map(tuple)),
)


@st.composite
def observations(draw: st.DrawFn) -> Observation:
    tokens, steps, k = (draw(st.integers(0, 5)) for _ in range(3))
    tables = draw(st.booleans())
    shape = (tokens, k) if tables else (0,)
    return Observation(
        request=draw(words),
        prompt=draw(words),
        category=draw(words),
        token_ids=draw(hnp.arrays(np.int32, tokens, elements=ints)),
        logprobs=draw(hnp.arrays(np.float32, tokens, elements=float32s)),
        top_ids=draw(hnp.arrays(np.int32, shape, elements=ints)),
        top_logprobs=draw(hnp.arrays(np.float32, shape, elements=float32s)),
        accepted=draw(hnp.arrays(np.int32, steps, elements=ints)),
        drafted=draw(hnp.arrays(np.int32, steps, elements=ints)),
        banned=draw(hnp.arrays(np.int32, steps, elements=ints)),
        steps_ordered=draw(st.booleans()),
        prompt_tokens=draw(st.integers(0, 10**6)),
        cached_tokens=draw(st.none() | st.integers(0, 10**6)),
        finish_reason=draw(st.none() | words),
        text=draw(st.none() | words),
        started=draw(seconds),
        first_token=draw(seconds),
        finished=draw(seconds),
        error=draw(st.none() | words),
        reply=draw(st.none() | replies),
    )


@st.composite
def scores(draw: st.DrawFn) -> Score:
    positions = draw(st.integers(0, 5))
    top = draw(st.none() | st.integers(0, 3))
    shape = (0,) if top is None else (positions, top)
    return Score(
        request=draw(words),
        top_ids=draw(hnp.arrays(np.int32, shape, elements=ints)),
        top_logprobs=draw(hnp.arrays(np.float32, shape, elements=float32s)),
        evaluation=draw(st.sampled_from(Evaluation)),
        start=draw(st.integers(0, 10**6)),
        token_logprobs=draw(hnp.arrays(np.float32, positions, elements=float32s)),
        best_logprobs=draw(hnp.arrays(np.float32, positions, elements=float32s)),
        best_ids=draw(hnp.arrays(np.int32, positions, elements=ints)),
        rows=draw(st.integers(0, 64)),
        bounded=draw(st.booleans()),
        error=draw(st.none() | words),
    )


def assert_same(left: Any, right: Any) -> None:
    for field in dataclasses.fields(left):
        one, two = getattr(left, field.name), getattr(right, field.name)
        if isinstance(one, np.ndarray):
            assert one.dtype == two.dtype, field.name
        np.testing.assert_array_equal(one, two, err_msg=field.name, strict=True)


@settings(deadline=None)  # the first example pays for imports
@given(st.lists(observations(), max_size=6))
def test_observations_come_back_exactly(written: list[Observation]) -> None:
    read = decode_observations(encode_observations(written))
    for one, two in zip(written, read, strict=True):
        assert_same(one, two)


@settings(deadline=None)  # the first example pays for imports
@given(st.lists(scores(), max_size=6))
def test_scores_come_back_exactly(written: list[Score]) -> None:
    read = decode_scores(encode_scores(written))
    for one, two in zip(written, read, strict=True):
        assert_same(one, two)


def test_private_prompts_leave_no_text_but_keep_their_tokens() -> None:
    data = encode_observations([make_observation(text="my secret")], text=False)
    (read,) = decode_observations(data)
    assert read.text is None
    assert read.token_ids.tolist() == [0, 1, 2]
    assert b"my secret" not in data


def test_half_a_surrogate_pair_from_an_engine_is_kept_readable() -> None:
    (read,) = decode_observations(encode_observations([make_observation(text="a\ud83d")]))
    assert read.text == "a\\ud83d"


def test_a_flat_top_list_is_refused_instead_of_guessed() -> None:
    with pytest.raises(ValueError, match=r"\[tokens, k\]"):
        encode_observations([make_observation(top_ids=np.zeros(3, np.int32))])


def test_a_sweep_from_before_steps_could_be_unordered_is_still_read() -> None:
    table = pq.read_table(pa.BufferReader(encode_observations([make_observation()])))
    older = pa.BufferOutputStream()
    pq.write_table(table.drop_columns(["steps_ordered"]), older)
    (read,) = decode_observations(older.getvalue().to_pybytes())
    assert read.steps_ordered


def test_scores_are_not_read_as_observations() -> None:
    with pytest.raises(ValueError, match="observations"):
        decode_observations(encode_scores([]))


def test_any_parquet_reader_sees_nested_lists() -> None:
    import io

    table = pq.read_table(io.BytesIO(encode_observations([make_observation(tokens=2)])))
    assert table["top_ids"].to_pylist() == [[[0, 0], [0, 0]]]
    assert table["token_ids"].to_pylist() == [[0, 1]]


def test_a_thousand_long_answers_are_read_in_well_under_a_second() -> None:
    written = [make_observation(str(i), tokens=256) for i in range(1000)]
    data = encode_observations(written)
    began = time.process_time()
    read = decode_observations(data)
    assert time.process_time() - began < 1.0
    assert len(read) == 1000


def test_replies_are_texts_and_left_out_with_them() -> None:
    reply = Reply(form=Form.CHAT, text="secret")
    one = Observation(request="r", prompt="p", category="c", reply=reply)
    (kept,) = decode_observations(encode_observations([one]))
    assert kept.reply == reply
    (bare,) = decode_observations(encode_observations([one], text=False))
    assert bare.reply is None
    assert b"reply" not in encode_observations([Observation(request="", prompt="", category="")])


def test_whether_an_answer_is_right_is_kept_where_somebody_looked() -> None:
    kept = [Observation(request=str(i), prompt="p", category="c", right=i == 1) for i in range(2)]
    unknown = Observation(request="2", prompt="p", category="c")
    read = decode_observations(encode_observations([*kept, unknown]))
    assert [one.right for one in read] == [False, True, None]
    # Files of other probes stay as they were.
    assert b"right" not in encode_observations([unknown])
