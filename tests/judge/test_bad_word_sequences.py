"""Which tokens complete a sequence that must not come."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from matrixrun.judge.bad_words import barred, completing, first_completed

TOKENS = st.integers(0, 3)
SEQUENCES = st.lists(st.lists(TOKENS, min_size=1, max_size=3).map(tuple), max_size=4).map(tuple)
ANSWERS = st.lists(TOKENS, max_size=12)


def ends_with_one(tokens, banned):
    return any(tuple(tokens[-len(one) :]) == one for one in banned)


@given(ANSWERS, SEQUENCES)
def test_a_token_completes_a_sequence_just_where_the_text_would_end_with_it(history, banned):
    expected = {token for token in range(4) if ends_with_one([*history, token], banned)}
    assert completing(history, banned) == expected


@given(ANSWERS, SEQUENCES)
def test_the_first_complete_sequence_is_the_first_end_of_one(answer, banned):
    ends = [p for p in range(len(answer)) if ends_with_one(answer[: p + 1], banned)]
    found = first_completed(np.array(answer, np.int64), banned)
    assert (found is None) == (not ends)
    if found is not None:
        place, sequence = found
        assert place == ends[0]
        assert tuple(answer[place + 1 - len(sequence) : place + 1]) == sequence


def test_the_prompt_may_hold_the_beginning_or_not():
    ids = np.array([[8, 9]], np.int64)
    tokens = np.array([9], np.int64)
    assert barred(ids, (7,), tokens, ((7, 9),)).tolist() == [[False, True]]
    assert barred(ids, (), tokens, ((7, 9),)).tolist() == [[False, False]]


def test_what_was_emitted_counts_for_the_places_behind_it():
    ids = np.array([[5, 6], [5, 6], [5, 6]], np.int64)
    tokens = np.array([5, 6, 5], np.int64)
    assert barred(ids, (), tokens, ((5, 6), (6, 5))).tolist() == [
        [False, False],
        [False, True],
        [True, False],
    ]
