"""From plain data to a Matrix, or to another of our files: pydantic's errors in a file's words."""

from __future__ import annotations

import re
import types
import typing
from dataclasses import dataclass
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from matrixrun.matrix.axes import BY_NAME
from matrixrun.matrix.axis_types import BOOLEAN_WORDS
from matrixrun.matrix.paths import Folder
from matrixrun.matrix.problems import (
    Key,
    Positions,
    Problem,
    described,
    did_you_mean,
    raise_problems,
)
from matrixrun.matrix.schema import Matrix

M = TypeVar("M", bound=BaseModel)

_WANTED = {
    "string_type": "text",
    "int_type": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "bool_type": "true or false",
    "tuple_type": "a list",
    "dict_type": "a mapping",
    "model_type": "a mapping",
    "model_attributes_type": "a mapping",
    "finite_number": "a finite number",
}
_BOUNDS = {
    "greater_than_equal": ("at least", "ge"),
    "greater_than": ("greater than", "gt"),
    "less_than_equal": ("at most", "le"),
    "less_than": ("less than", "lt"),
}


def validate(data: Any, positions: Positions, file: str, folder: Folder) -> Matrix:
    """The data as a Matrix, paths resolved against `folder`.

    Raises:
        MatrixError: unknown or missing keys, wrong types, values out of bounds: all of them.
    """
    return validated(Matrix, data, positions, file, page="docs/matrix.md", context=folder)


def validated(
    kind: type[M], data: Any, positions: Positions, file: str, *, page: str, context: Any = None
) -> M:
    """The data of a file as `kind`; `page` of the docs says what may stand in such a file.

    Raises:
        MatrixError: as `validate`.
    """
    try:
        return kind.model_validate(data, context=context)
    except ValidationError as error:
        words = _Words(kind, page)
        details = error.errors(include_url=False)
        raise_problems(file, positions, [words.problem(detail) for detail in details])
        raise


@dataclass(frozen=True)
class _Words:
    """Says what is wrong in a file that should hold `root`."""

    root: type[BaseModel]
    page: str

    def problem(self, detail: ErrorDetails) -> Problem:
        key, kind = detail["loc"], detail["type"]
        if kind == "extra_forbidden":
            return _unknown_key(self.root, key)
        if kind == "missing":
            return _missing(key)
        return _wrong_value(self, key, kind, detail["input"], detail)


def _wrong_value(words: _Words, key: Key, kind: str, value: Any, detail: ErrorDetails) -> Problem:
    context = detail.get("ctx", {})
    message, remedy = detail["msg"], f"{words.page} says what may stand here"
    if kind in _WANTED:
        message = f"must be {_WANTED[kind]}, but is {described(value)}"
        remedy = _type_remedy(_WANTED[kind], value)
    elif kind in _BOUNDS:
        bound, limit = _BOUNDS[kind]
        message = f"must be {bound} {context[limit]}, but is {value}"
        remedy = f"write a number that is {bound} {context[limit]}"
    elif kind in ("literal_error", "enum"):
        message = f"must be {context['expected']}, but is {described(value)}"
        remedy = did_you_mean(str(value), re.findall(r"'([^']*)'", context["expected"]))
    elif kind.startswith("date_"):
        message, remedy = f"must be a date, but is {described(value)}", "write it as 2026-12-31"
    elif kind == "string_too_short" and context["min_length"] > 1:
        message = (
            f"must have at least {context['min_length']} characters, but is {described(value)}"
        )
        remedy = "write more of it"
    elif kind == "string_too_short":
        message, remedy = "must not be empty text", "write a value, or remove the key"
    elif kind == "string_pattern_mismatch" and "a-f" in context["pattern"]:
        message = f"{value!r} is no hash"
        remedy = "write its first hexadecimal digits, in lower case"
    elif kind == "string_pattern_mismatch":
        message = f"{value!r} cannot be a name"
        remedy = "use letters, digits, `.`, `_` and `-`, a letter or digit first"
    elif kind == "value_error":
        message = str(context["error"])
        remedy = getattr(context["error"], "remedy", remedy)
    elif kind == "too_long":
        message, remedy = f"has more than {context['max_length']} items", "remove the others"
    return Problem(key, message, remedy)


def _unknown_key(root: type[BaseModel], key: Key) -> Problem:
    name = str(key[-1])
    section = _model_at(root, key[:-1])
    remedy = did_you_mean(name, section.model_fields if section is not None else {})
    if root is Matrix and len(key) == 1 and name in BY_NAME:
        remedy = f"axes stand under `grid:`; among the sections, {remedy}"
    return Problem(key, f"unknown key `{name}`", remedy)


def _missing(key: Key) -> Problem:
    name = key[-1]
    if isinstance(name, int):
        return Problem(key[:-1], "has too few items", "write two numbers: [shortest, longest]")
    return Problem(key[:-1], f"`{name}` is missing", f"add `{name}: ...`")


def _type_remedy(wanted: str, value: Any) -> str:
    if value is None:
        return "give it a value, or remove the key"
    if wanted == "text" and isinstance(value, bool | int | float):
        # A float is not told: 1e3 may have been written for it.
        as_read = "" if isinstance(value, float) else described(value).removeprefix("the number ")
        return f'put it in quotes: "{as_read}"' if as_read else "put it in quotes"
    if wanted == "true or false":
        return f"write {BOOLEAN_WORDS.get(str(value).lower(), 'true or false')}"
    if wanted == "a list" and isinstance(value, str):
        return f'write ["{value}"]'
    if "number" in wanted and isinstance(value, str) and value.strip("-").isdigit():
        return "remove the quotes"
    return f"write {wanted}"


def _model_at(root: type[BaseModel], key: Key) -> type[BaseModel] | None:
    """The section that stands at a key path, found by walking the types of the schema."""
    current: Any = root
    for part in key:
        if isinstance(current, type) and issubclass(current, BaseModel):
            field = current.model_fields.get(str(part))
            current = field.annotation if field is not None else None
        else:
            arguments = typing.get_args(current)
            current = (
                arguments[-1 if typing.get_origin(current) is dict else 0] if arguments else None
            )
        if typing.get_origin(current) in (types.UnionType, typing.Union):
            current = typing.get_args(current)[0]
    return current if isinstance(current, type) and issubclass(current, BaseModel) else None
