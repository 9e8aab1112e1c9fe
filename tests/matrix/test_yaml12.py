"""YAML as the 1.2 core schema reads it, not as PyYAML's default does."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrixrun.evidence.errors import MatrixError
from matrixrun.matrix.yaml12 import parse


def value(text: str) -> Any:
    return parse(f"key: {text}\n", "file").data["key"]


@pytest.mark.parametrize("word", ["on", "off", "yes", "no", "On", "OFF", "Yes", "NO", "y", "n"])
def test_only_true_and_false_are_booleans(word: str) -> None:
    assert value(word) == word
    assert parse(f"{word}: 1\n", "file").data == {word: 1}


@pytest.mark.parametrize("word", ["true", "True", "TRUE"])
def test_true_in_any_usual_case(word: str) -> None:
    assert value(word) is True


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1:30", "1:30"),
        ("1_000", "1_000"),
        ("2024-01-01", "2024-01-01"),
        ("0b11", "0b11"),
        ("=", "="),
        ("0o17", 15),
        ("0xff", 255),
        ("+12", 12),
        ("0", 0),
        ("1e-3", 0.001),
        ("1E3", 1000.0),
        (".5", 0.5),
        ("-1.", -1.0),
        ("~", None),
        ("null", None),
        ("", None),
        ("'1'", "1"),
        ("!!str 1", "1"),
        ("!!int 1", 1),
        ("1.2.3", "1.2.3"),
        ("12e", "12e"),
    ],
)
def test_plain_values(text: str, expected: object) -> None:
    found = value(text)
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize("text", ["017", "-08", "00", "9223372036854775808", "1e999"])
def test_numbers_that_readers_disagree_about_are_refused(text: str) -> None:
    with pytest.raises(MatrixError, match="quotes"):
        value(text)


@pytest.mark.parametrize("tag", ["!!python/name:os.system", "!!set", "!!binary", "!own", "!!int x"])
def test_no_tag_makes_an_object(tag: str) -> None:
    with pytest.raises(MatrixError, match="tag"):
        value(f"{tag} {{a: 1}}" if "set" in tag else tag)


def test_merge_keys_give_way_to_own_keys_wherever_they_stand() -> None:
    text = """
    base: &base {a: 1, b: 2}
    more: &more {b: 3, c: 4}
    first: {<<: *base, a: 9}
    last: {a: 9, <<: *base}
    both: {<<: [*base, *more]}
    """
    data = parse(text, "file").data
    assert data["first"] == data["last"] == {"a": 9, "b": 2}
    assert data["both"] == {"a": 1, "b": 2, "c": 4}


def test_every_key_and_item_has_its_line() -> None:
    text = "a:\n  b: [1,\n    2]\n  c:\n    - x\n    - d: {e: 1}\n"
    lines = parse(text, "file").positions
    expected = {("a",): 1, ("a", "b"): 2, ("a", "b", 0): 2, ("a", "b", 1): 3, ("a", "c"): 4}
    expected |= {("a", "c", 1): 6, ("a", "c", 1, "d"): 6, ("a", "c", 1, "d", "e"): 6}
    assert {key: lines.line(key) for key in expected} == expected
    assert lines.line(("a", "c", 7)) == 4, "the nearest thing around it"


@given(st.text(max_size=80))
def test_any_text_is_read_or_refused_with_a_message(text: str) -> None:
    message = None
    try:
        parse(text, "file")
    except MatrixError as error:
        message = str(error)
    assert message is None or message.startswith("file")
