"""Constraints: small Boolean expressions over a cell's axes, such as
`tensor_parallel_size * pipeline_parallel_size <= 8`.

The text is parsed with `ast` and only listed node types are translated into functions; nothing is
ever handed to `eval`. A whitelist rather than simpleeval, for three reasons: names and types are
checked when the file is loaded, with a position, and not only when a cell happens to reach them;
a constraint is translated once and not walked again for each of 10,000 cells; and what it can cost
is bounded by its length, since there is no power, shift, call, repetition of text or comprehension.
"""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable, Mapping
from typing import Any

from matrixrun.evidence.cells import AxisValue, Speculation
from matrixrun.matrix.axes import BY_NAME
from matrixrun.matrix.axis_types import SPECULATION_FIELDS
from matrixrun.matrix.problems import closest, did_you_mean

MAX_LENGTH = 500
MAX_NUMBER = 10**15
WORDS: dict[str, bool | None] = {"true": True, "false": False, "null": None}
"""YAML's words, allowed beside Python's True, False and None."""

Axes = Mapping[str, AxisValue]
Term = Callable[[Axes], Any]

_ARITHMETIC: dict[type[ast.operator], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_ORDER: dict[type[ast.cmpop], Callable[[Any, Any], bool]] = {
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_FORM = "a constraint is made of axes, numbers, 'text', + - * / // %, comparisons, in, and, or, not"


class ConstraintError(Exception):
    """A constraint that cannot be read, or has no answer for a cell."""

    def __init__(self, message: str, remedy: str | None = None) -> None:
        self.message, self.remedy = message, remedy
        super().__init__(message)


class Constraint:
    """A constraint that has been read; `holds(axes)` answers for one cell."""

    def __init__(self, text: str) -> None:
        """Read `text`; raises ConstraintError where it is not in the allowed form."""
        self.text = text
        self._term = _translate(_parse(text), text)

    def holds(self, axes: Axes) -> bool:
        """Whether the cell is allowed; raises ConstraintError where there is no such answer."""
        try:
            return _truth(self._term(axes), self.text)
        except ZeroDivisionError:
            message = f"`{self.text}` divides by zero"
            remedy = "divide by what is never 0, or multiply the other side by it"
            raise ConstraintError(message, remedy) from None
        except OverflowError:
            message = f"`{self.text}` gives too large a number"
            raise ConstraintError(message, "multiply fewer or smaller numbers") from None


def _parse(text: str) -> ast.expr:
    if len(text) > MAX_LENGTH:
        message = f"longer than {MAX_LENGTH} characters"
        raise ConstraintError(message, "split it: constraints are joined by `and`")
    try:
        return ast.parse(text.strip(), mode="eval").body
    except SyntaxError as error:
        where = f" at character {error.offset}" if error.offset else ""
        raise ConstraintError(f"`{text}` cannot be read{where}: {error.msg}", _FORM) from None
    except (ValueError, RecursionError, MemoryError):
        raise ConstraintError(f"`{text[:60]}` cannot be read", _FORM) from None


def _translate(node: ast.expr, text: str) -> Term:
    translate = _FORMS.get(type(node))
    if translate is None:
        raise ConstraintError(f"`{_source(node, text)}` is not allowed in a constraint", _FORM)
    return translate(node, text)


def _source(node: ast.AST, text: str) -> str:
    return ast.get_source_segment(text.strip(), node) or text


def _constant(node: ast.Constant, text: str) -> Term:
    value = node.value
    if not isinstance(value, str | int | float | bool | None):
        raise ConstraintError(f"`{_source(node, text)}` is not allowed in a constraint", _FORM)
    if isinstance(value, int | float) and not abs(value) <= MAX_NUMBER:
        message = f"the number {_source(node, text)[:20]} is too large"
        raise ConstraintError(message, f"write numbers of at most {MAX_NUMBER:.0e}")
    return lambda _: value


def _list(node: ast.Tuple | ast.List, text: str) -> Term:
    items = [_translate(item, text) for item in node.elts]
    return lambda axes: [item(axes) for item in items]


def _name(node: ast.Name, text: str) -> Term:
    name, place = node.id, f"at character {node.col_offset + 1} of `{text}`"
    if name in WORDS:
        word = WORDS[name]
        return lambda _: word
    if name == "speculation":
        fields = ", ".join(f"speculation.{field}" for field in SPECULATION_FIELDS)
        raise ConstraintError("`speculation` alone has no single value", f"write one of {fields}")
    if name not in BY_NAME:
        axis = closest(name, BY_NAME)
        quoted = f"put text in quotes: '{name}'"
        remedy = quoted if axis is None else f"did you mean `{axis}`? or {quoted}"
        raise ConstraintError(f"unknown axis `{name}` {place}", remedy)
    return lambda axes: axes[name]


def _attribute(node: ast.Attribute, text: str) -> Term:
    field = node.attr
    if not isinstance(node.value, ast.Name) or node.value.id != "speculation":
        raise ConstraintError(f"`{_source(node, text)}` is not allowed in a constraint", _FORM)
    if field not in SPECULATION_FIELDS:
        remedy = did_you_mean(field, SPECULATION_FIELDS)
        raise ConstraintError(f"unknown field `speculation.{field}`", remedy)

    def value(axes: Axes) -> Any:
        speculation = axes["speculation"]
        assert isinstance(speculation, Speculation)
        return getattr(speculation, field)

    return value


def _arithmetic(node: ast.UnaryOp | ast.BinOp, text: str) -> Term:
    source = _source(node, text)
    if isinstance(node, ast.UnaryOp):
        operand = _translate(node.operand, text)
        if isinstance(node.op, ast.Not):
            return lambda axes: not _truth(operand(axes), source)
        if isinstance(node.op, ast.USub):
            return lambda axes: -_number(operand(axes), source)
        raise ConstraintError(f"`{source}` is not allowed in a constraint", _FORM)
    apply = _ARITHMETIC.get(type(node.op))
    if apply is None:
        raise ConstraintError(f"`{source}` is not allowed in a constraint", _FORM)
    left, right = _translate(node.left, text), _translate(node.right, text)
    return lambda axes: apply(_number(left(axes), source), _number(right(axes), source))


def _boolean(node: ast.BoolOp, text: str) -> Term:
    source = _source(node, text)
    terms = [_translate(value, text) for value in node.values]
    join = all if isinstance(node.op, ast.And) else any
    return lambda axes: join(_truth(term(axes), source) for term in terms)


def _comparison(node: ast.Compare, text: str) -> Term:
    source = _source(node, text)
    terms = [_translate(part, text) for part in (node.left, *node.comparators)]
    compare = [_comparator(op, source) for op in node.ops]

    def value(axes: Axes) -> bool:
        values = [term(axes) for term in terms]
        return all(c(values[i], values[i + 1]) for i, c in enumerate(compare))

    return value


def _comparator(op: ast.cmpop, source: str) -> Callable[[Any, Any], bool]:
    if isinstance(op, ast.Eq | ast.Is):
        return lambda a, b: _equal(a, b, source)
    if isinstance(op, ast.NotEq | ast.IsNot):
        return lambda a, b: not _equal(a, b, source)
    if isinstance(op, ast.In):
        return lambda a, b: _member(a, b, source)
    if isinstance(op, ast.NotIn):
        return lambda a, b: not _member(a, b, source)
    order = _ORDER[type(op)]
    return lambda a, b: order(_number(a, source), _number(b, source))


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "true or false"
    if isinstance(value, int | float):
        return "a number"
    return "text" if isinstance(value, str) else "a list"


def _equal(left: Any, right: Any, source: str) -> bool:
    if left is None or right is None:
        return left is right
    if _kind(left) != _kind(right):
        message = f"`{source}` compares {_kind(left)} with {_kind(right)}"
        raise ConstraintError(message, "numbers stand without quotes, text stands in quotes")
    return bool(left == right)


def _member(item: Any, items: Any, source: str) -> bool:
    if not isinstance(items, list):
        raise ConstraintError(f"`{source}`: what follows `in` is no list", "write it as [1, 2]")
    return any(_equal(item, other, source) for other in items)


def _number(value: Any, source: str) -> int | float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        shown = "null" if value is None else _kind(value)
        raise ConstraintError(f"`{source}` calculates with {shown}", "use numbers there")
    return value


def _truth(value: Any, source: str) -> bool:
    if not isinstance(value, bool):
        shown = "null" if value is None else f"{value!r}"
        message = f"`{source}` gives {shown}, which is neither true nor false"
        raise ConstraintError(message, "compare it with something: `... == 2`")
    return value


_FORMS: dict[type[ast.expr], Callable[[Any, str], Term]] = {
    ast.Constant: _constant,
    ast.Name: _name,
    ast.Attribute: _attribute,
    ast.Tuple: _list,
    ast.List: _list,
    ast.UnaryOp: _arithmetic,
    ast.BinOp: _arithmetic,
    ast.BoolOp: _boolean,
    ast.Compare: _comparison,
}
