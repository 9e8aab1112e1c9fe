"""YAML 1.2 (core schema) over PyYAML's parser: plain data, with the line of every key and item.

PyYAML's own loader follows YAML 1.1, where the key `on` is True, `1:30` is 90 and `017` is 15, and
the last of two equal keys wins. Here booleans are true and false only, duplicate keys are refused,
no tag constructs an object, and aliases cannot blow up.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from matrixrun.evidence.errors import MatrixError
from matrixrun.matrix.problems import Invalid, Key, Positions, Problem, error_at

MAX_BYTES = 4_000_000
MAX_NODES = 200_000
"""Bounds a file's size after its aliases are followed (the "billion laughs" of nested aliases)."""
MAX_DEPTH = 40
MAX_INTEGER = 2**63

NULL = "tag:yaml.org,2002:null"
BOOL = "tag:yaml.org,2002:bool"
INT = "tag:yaml.org,2002:int"
FLOAT = "tag:yaml.org,2002:float"
TEXT = "tag:yaml.org,2002:str"
MERGE = "tag:yaml.org,2002:merge"
COLLECTIONS = ("tag:yaml.org,2002:map", "tag:yaml.org,2002:seq")

_PATTERNS = {
    NULL: r"~|null|Null|NULL|",
    BOOL: r"true|True|TRUE|false|False|FALSE",
    INT: r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+",
    FLOAT: r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"
    r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
    MERGE: r"<<",
}
_RESOLVE = {tag: re.compile(f"(?:{pattern})\\Z") for tag, pattern in _PATTERNS.items()}
_LEADING_ZERO = re.compile(r"[-+]?0[0-9]+\Z")


class _Loader(yaml.SafeLoader):
    """PyYAML's scanner, parser and composer with YAML 1.2's resolution of plain scalars."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 - PyYAML's own class attribute

    def resolve(self, kind: type[Node], value: Any, implicit: Any) -> str:
        if kind is ScalarNode and implicit[0]:
            return next((tag for tag, p in _RESOLVE.items() if p.match(value)), TEXT)
        if kind is ScalarNode:
            return TEXT
        return COLLECTIONS[0] if kind is MappingNode else COLLECTIONS[1]


@dataclass(frozen=True)
class Document:
    """A parsed file: plain data (dict with text keys, list, str, int, float, bool, None)."""

    data: Any
    positions: Positions


def parse(text: str, file: str) -> Document:
    """Parse one YAML document.

    Raises:
        MatrixError: syntax, duplicate key, a key that is no text, a tag, too large a document.
    """
    if len(text) > MAX_BYTES:
        raise MatrixError(
            file, None, "", f"larger than {MAX_BYTES:,} characters", remedy="is this the file?"
        )
    node = _compose(text, file)
    builder = _Builder()
    try:
        data = None if node is None else builder.build(node, (), 0)
    except Invalid as found:
        problem = found.problem
        positions = Positions(builder.lines)
        raise error_at(file, positions, problem.key, problem.message, problem.remedy) from None
    return Document(data, Positions(builder.lines))


def _compose(text: str, file: str) -> Node | None:
    try:
        loader = _Loader(text)
        node: Node | None = loader.get_single_node()
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        message = f"a character that YAML does not allow: {chr(int(error.character))!r}"
        raise MatrixError(file, line, "", message, remedy="remove it") from None
    except yaml.MarkedYAMLError as error:
        raise _syntax_error(error, file) from None
    except RecursionError:
        message = "nested too deeply"
        raise MatrixError(file, None, "", message, remedy="write it flatter") from None
    return node


def _syntax_error(error: yaml.MarkedYAMLError, file: str) -> MatrixError:
    mark = error.problem_mark or error.context_mark
    line = mark.line + 1 if mark else None
    column = f" at column {mark.column + 1}" if mark else ""
    problem = (error.problem or error.context or "not readable").removeprefix("but ")
    return MatrixError(
        file, line, "", f"not valid YAML: {problem}{column}", remedy=_syntax_remedy(problem)
    )


def _syntax_remedy(problem: str) -> str:
    if "'\\t'" in problem:
        return "indent with spaces, not with tabs"
    if "another document" in problem:
        return "a matrix file is one document: remove what follows the second `---`"
    if "undefined alias" in problem:
        return "define the anchor (`&name`) above its first use"
    if "mapping values are not allowed" in problem:
        return "check the indentation, and put text that contains `: ` in quotes"
    if "'`'" in problem or "'@'" in problem or "'%'" in problem:
        return "put the text in quotes"
    return "check indentation, colons, quotes and brackets at and just above this line"


class _Builder:
    """Builds data from nodes and notes the line of every key and item on the way."""

    def __init__(self) -> None:
        self.lines: dict[Key, int] = {}
        self._count = 0
        self._open: set[int] = set()

    def build(self, node: Node, key: Key, depth: int) -> Any:
        if not key or isinstance(key[-1], int):
            self.lines[key] = node.start_mark.line + 1
        self._bound(node, key, depth)
        if isinstance(node, ScalarNode):
            return _scalar(node, key)
        if node.tag not in COLLECTIONS:
            raise _tag_problem(node, key)
        self._open.add(id(node))
        try:
            if isinstance(node, MappingNode):
                return self._mapping(node, key, depth)
            assert isinstance(node, SequenceNode)
            return [self.build(item, (*key, i), depth + 1) for i, item in enumerate(node.value)]
        finally:
            self._open.discard(id(node))

    def _bound(self, node: Node, key: Key, depth: int) -> None:
        self._count += 1
        if id(node) in self._open:
            raise Invalid(
                Problem(key, "an alias that contains itself", "remove the alias (`*name`)")
            )
        if depth > MAX_DEPTH:
            raise Invalid(Problem(key, "nested too deeply", "write it flatter"))
        if self._count > MAX_NODES:
            message = f"more than {MAX_NODES:,} values once aliases are followed"
            raise Invalid(Problem(key, message, "use fewer aliases"))

    def _mapping(self, node: MappingNode, key: Key, depth: int) -> dict[str, Any]:
        self._refuse_duplicates(node, key)
        values: dict[str, Any] = {}
        for name_node, value_node in node.value:
            if name_node.tag == MERGE:
                for source in reversed(self._merge_sources(value_node, key)):
                    values.update(self.build(source, key, depth + 1))
        for name_node, value_node in node.value:
            if name_node.tag != MERGE:
                name = str(name_node.value)
                self.lines[*key, name] = name_node.start_mark.line + 1
                values[name] = self.build(value_node, (*key, name), depth + 1)
        return values

    def _refuse_duplicates(self, node: MappingNode, key: Key) -> None:
        first_lines: dict[str, int] = {}
        for name_node, _ in node.value:
            name = self._name(name_node, key)
            line = name_node.start_mark.line + 1
            if name in first_lines:
                self.lines[*key, name] = line
                message = f"the key is there twice (first on line {first_lines[name]})"
                raise Invalid(Problem((*key, name), message, "keep one of the two"))
            first_lines[name] = line

    def _name(self, node: Node, key: Key) -> str:
        if isinstance(node, ScalarNode) and node.tag in (TEXT, MERGE):
            return _whole(str(node.value), key)
        line = node.start_mark.line + 1
        if not isinstance(node, ScalarNode):
            raise Invalid(Problem(key, f"a key must be text (line {line})", "write a plain name"))
        name = str(node.value)
        self.lines[*key, name] = line
        message = f"the key `{name}` is not text"
        raise Invalid(Problem((*key, name), message, f'put it in quotes: "{name}"'))

    def _merge_sources(self, node: Node, key: Key) -> list[Node]:
        nodes = node.value if isinstance(node, SequenceNode) else [node]
        if not all(isinstance(source, MappingNode) for source in nodes):
            self.lines[*key, "<<"] = node.start_mark.line + 1
            message = "`<<` merges mappings only"
            raise Invalid(Problem((*key, "<<"), message, "write `<<: *anchor`"))
        return list(nodes)


def _tag_problem(node: Node, key: Key) -> Invalid:
    tag = str(node.tag).replace("tag:yaml.org,2002:", "!!")
    remedy = "remove it: values here are plain text, numbers, lists and mappings"
    return Invalid(Problem(key, f"the tag `{tag}` is not allowed for this value", remedy))


def _scalar(node: ScalarNode, key: Key) -> Any:
    text = str(node.value)
    if node.tag in (TEXT, MERGE):
        return _whole(text, key)
    if node.tag not in _RESOLVE or not _RESOLVE[node.tag].match(text):
        raise _tag_problem(node, key)
    if node.tag == NULL:
        return None
    if node.tag == BOOL:
        return text.lower() == "true"
    return _integer(text, key) if node.tag == INT else _real(text, key)


def _whole(text: str, key: Key) -> str:
    """Return the text, unless it holds what no file and no process takes: an escape such as
    `\\ud800` is half of a character."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        message = f"holds half of a character ({text[error.start]!a})"
        remedy = "write the character itself, or both of its halves"
        raise Invalid(Problem(key, message, remedy)) from None
    return text


def _integer(text: str, key: Key) -> int:
    quoted = f'put it in quotes ("{text}") if it is text'
    smaller = f"write a smaller number; {quoted}"
    if _LEADING_ZERO.match(text):
        plain = text.lstrip("+-0") or "0"
        message = f"{text} is a different number to different YAML readers"
        raise Invalid(Problem(key, message, f"write {plain} if it is a number; {quoted}"))
    if len(text) > 20:
        raise Invalid(Problem(key, f"the number {text[:20]}... is too large", smaller))
    value = int(text, 0) if text[:2] in ("0o", "0x") else int(text)
    if abs(value) >= MAX_INTEGER:
        raise Invalid(Problem(key, f"the number {text} is too large", smaller))
    return value


def _real(text: str, key: Key) -> float:
    if text.lower().lstrip("+-") in (".inf", ".nan"):
        sign = -1.0 if text.startswith("-") else 1.0
        return sign * math.inf if "inf" in text.lower() else math.nan
    value = float(text)
    if math.isinf(value):
        message = f"the number {text} is too large"
        remedy = f'write a smaller number; put it in quotes ("{text}") if it is text'
        raise Invalid(Problem(key, message, remedy))
    return value
