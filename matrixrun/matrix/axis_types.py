"""What values an axis takes: reading one value, its text in ids, its JSON Schema."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from matrixrun.evidence.cells import AxisValue, Speculation
from matrixrun.matrix.fingerprint import canonical, fingerprint
from matrixrun.matrix.problems import Invalid, Key, Problem, closest, described, did_you_mean

SPECULATION_FIELDS = ("method", "num_speculative_tokens", "draft")
TYPO_CUTOFF = 0.85
"""How like a field an option must look to be taken for its misspelling: options are the engine's
own words and passed on untouched, so only near-identical ones are stopped."""
MOST_SIZE = 2**16
MOST_DRAFTED = 2**10
"""Far beyond what engines take: a number above is a slip of the pen."""
BOOLEAN_WORDS = {"on": "true", "yes": "true", "off": "false", "no": "false"}


@dataclass(frozen=True)
class AxisType:
    """A kind of axis value. `read(value, key)` returns the typed value or raises `Invalid`;
    `word` is the value in an id; `schema` describes it to editors."""

    read: Callable[[Any, Key], AxisValue]
    word: Callable[[Any], str]
    schema: dict[str, Any]


def _read_text(value: Any, key: Key) -> str:
    if not isinstance(value, str):
        remedy = "write `none` if none is meant" if value is None else "put it in quotes"
        raise Invalid(Problem(key, f"must be text, but is {described(value)}", remedy))
    if not value.strip():
        raise Invalid(Problem(key, "must not be empty text", "write a name"))
    return value


def _read_optional_text(value: Any, key: Key) -> str | None:
    return None if value is None else _read_text(value, key)


def _read_size(value: Any, key: Key, most: int = MOST_SIZE) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        message = f"must be a whole number, but is {described(value)}"
        quoted = isinstance(value, str) and value.isdigit()
        remedy = "remove the quotes" if quoted else "write a whole number of at least 1"
        raise Invalid(Problem(key, message, remedy))
    if value < 1:
        remedy = "write a whole number of at least 1"
        raise Invalid(Problem(key, f"must be at least 1, but is {value}", remedy))
    if value > most:
        remedy = f"write a whole number of at most {most}"
        raise Invalid(Problem(key, f"must be at most {most}, but is {value}", remedy))
    return value


def _read_flag(value: Any, key: Key) -> bool | None:
    if value is None or isinstance(value, bool):
        return value
    word = BOOLEAN_WORDS.get(str(value).lower())
    remedy = "write true or false" if word is None else f"write {word}"
    raise Invalid(Problem(key, f"must be true or false, but is {described(value)}", remedy))


def _read_speculation(value: Any, key: Key) -> Speculation:
    fields = read_speculation_fields(value, key)
    for name, example in (("method", "method: ngram"), ("num_speculative_tokens", "4")):
        if name not in fields:
            remedy = f"add `{example if ':' in example else f'{name}: {example}'}`"
            raise Invalid(Problem(key, f"`{name}` is missing", remedy))
    options = {name: v for name, v in fields.items() if name not in SPECULATION_FIELDS}
    _refuse_not_finite(options, key)
    return Speculation(
        method=fields["method"],
        num_speculative_tokens=fields["num_speculative_tokens"],
        draft=fields.get("draft"),
        options=options,
    )


def _refuse_not_finite(options: dict[str, Any], key: Key) -> None:
    for name, value in options.items():
        try:
            canonical(value)
        except ValueError:
            message = "holds a number that is not finite"
            raise Invalid(Problem((*key, name), message, "write a finite number")) from None


def read_speculation_fields(value: Any, key: Key) -> dict[str, Any]:
    """A speculation's fields, each checked where given; all may be missing (as in `exclude`)."""
    if isinstance(value, Speculation):
        written = {name: getattr(value, name) for name in SPECULATION_FIELDS}
        return {**{n: v for n, v in written.items() if v is not None}, **value.options}
    if not isinstance(value, dict):
        remedy = "write {method: ngram, num_speculative_tokens: 4}; the off arm is made by itself"
        raise Invalid(Problem(key, f"must be a mapping, but is {described(value)}", remedy))
    for name in value:
        likely = closest(name, SPECULATION_FIELDS, cutoff=TYPO_CUTOFF)
        if likely is not None and name not in SPECULATION_FIELDS:
            remedy = did_you_mean(name, SPECULATION_FIELDS)
            raise Invalid(Problem((*key, name), f"unknown key `{name}`", remedy))
    if "method" in value:
        _read_text(value["method"], (*key, "method"))
    if "num_speculative_tokens" in value:
        _read_size(value["num_speculative_tokens"], (*key, "num_speculative_tokens"), MOST_DRAFTED)
    if "draft" in value:
        _read_optional_text(value["draft"], (*key, "draft"))
    return dict(value)


def _speculation_word(value: Speculation) -> str:
    return f"{value.label}-{fingerprint(value.options)[:4]}" if value.options else value.label


_SPECULATION_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "method": {"type": "string", "minLength": 1},
        "num_speculative_tokens": {"type": "integer", "minimum": 1, "maximum": MOST_DRAFTED},
        "draft": {"type": ["string", "null"], "description": "an entry of the model's drafts"},
    },
    "description": "further keys are passed to the engine untouched",
}

TEXT = AxisType(_read_text, str, {"type": "string", "minLength": 1})
OPTIONAL_TEXT = AxisType(_read_optional_text, str, {"type": ["string", "null"], "minLength": 1})
SIZE = AxisType(_read_size, str, {"type": "integer", "minimum": 1, "maximum": MOST_SIZE})
FLAG = AxisType(_read_flag, lambda v: "on" if v else "off", {"type": ["boolean", "null"]})
SPECULATION = AxisType(_read_speculation, _speculation_word, _SPECULATION_SCHEMA)
