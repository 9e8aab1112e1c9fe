"""The language of answers with a grammar."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrixrun.judge.grammar import GRAMMAR, LONGEST_LINE, misfit

LINE = st.text(st.characters(exclude_characters="\n~"), min_size=1, max_size=LONGEST_LINE)
VALID = st.lists(LINE, max_size=5).map(lambda lines: "".join(f"{line}\n" for line in lines) + "~")
FULL = "x" * LONGEST_LINE


@given(VALID)
def test_a_valid_text_fits_and_matches_what_engines_are_sent(text):
    assert re.fullmatch(GRAMMAR.regex, text)
    assert misfit(text, ended=True) is None


@given(VALID, st.data())
def test_what_a_valid_text_begins_with_fits_while_it_has_not_ended(text, data):
    begun = text[: data.draw(st.integers(0, len(text) - 1))]
    assert misfit(begun, ended=False) is None
    assert misfit(begun, ended=True) == len(begun)


@given(st.text(st.sampled_from("ab\n~"), max_size=40))
def test_the_first_misfit_is_where_no_continuation_is_valid(text):
    place = misfit(text, ended=False)
    begun = text if place is None else text[:place]
    closed = begun if begun.endswith("~") else begun + ("~" if begun[-1:] in ("", "\n") else "\n~")
    assert re.fullmatch(GRAMMAR.regex, closed)
    if place is not None:
        wrong, rest = text[: place + 1], ("", "~", "\n~")
        assert not any(re.fullmatch(GRAMMAR.regex, wrong + one) for one in rest)


@pytest.mark.parametrize(
    ("text", "place"),
    [("\n", 0), ("a\n\n", 2), (FULL + "y", LONGEST_LINE), ("a~", 1), ("a\n~b", 3), ("~~", 1)],
)
def test_misfits_are_placed(text, place):
    assert misfit(text, ended=False) == place


def test_a_character_that_has_not_all_come_is_no_misfit():
    assert misfit(FULL + "\ufffd\ufffd", ended=False) is None
    assert misfit(FULL + "\ufffd\n", ended=False) == LONGEST_LINE
