"""Secrets stay out of messages, ledgers and artifacts; what is one, engines say."""

from __future__ import annotations

import json
import os
import re
from urllib.parse import unquote, urlsplit

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from matrixrun import engines
from matrixrun.engines import MASK

_IN_URI = re.compile(r"(?<=://)[^/@\s]+@")
_IN_QUERY = re.compile(r"(?i)\b([\w-]*(?:password|token|secret|key)[\w-]*)=[^&\s'\"]+")


def mask(text: str, uri: str = "") -> str:
    """`text` without credentials: those in URIs and queries, the password that `uri` holds, and
    the values of secret environment variables of this process."""
    text = _IN_URI.sub(f"{MASK}@", text)
    text = _IN_QUERY.sub(rf"\1={MASK}", text)
    password = urlsplit(uri).password if uri else None
    if password:
        for secret in (password, unquote(password)):
            text = text.replace(secret, MASK)
    return engines.mask_text(text, os.environ)


def mask_matrix(text: str) -> str:
    """A matrix file for showing: the values of variables under `env:` and of flags under `args:`
    that are named like secrets are `***`, wherever else they stand too; the rest is kept as it is
    written, comments included.

    Raises:
        yaml.YAMLError: `text` is no YAML.
    """
    root = yaml.compose(text, Loader=yaml.SafeLoader)
    found = _Found()
    if root is not None:
        found.search(root)
    spans = found.spans()
    for start, end in sorted(spans, reverse=True):
        text = text[:start] + _in_place(text[start:end], spans[start, end]) + text[end:]
    return engines.mask_values(text, found.secrets)  # in comments


class _Found:
    """What of a YAML document is to be masked."""

    def __init__(self) -> None:
        self.secrets: set[str] = set()
        self._scalars: dict[tuple[int, int], str] = {}
        self._masked: dict[tuple[int, int], str] = {}
        self._seen: set[int] = set()

    def search(self, node: Node) -> None:
        """Look for `env:` and `args:` at any depth; what an alias repeats is looked at once."""
        if id(node) in self._seen:
            return
        self._seen.add(id(node))
        if isinstance(node, ScalarNode):
            self._scalars[_span(node)] = node.value
        elif isinstance(node, SequenceNode):
            for item in node.value:
                self.search(item)
        elif isinstance(node, MappingNode):
            for key, value in node.value:
                self.search(key)
                self.search(value)
                if key.value == "env":
                    self._variables(value)
                elif key.value == "args":
                    self._arguments(value)

    def spans(self) -> dict[tuple[int, int], str]:
        """Places in the text, as start and end, and the values to be shown there."""
        shown = {at: engines.mask_values(v, self.secrets) for at, v in self._scalars.items()}
        changed = {at: value for at, value in shown.items() if value != self._scalars[at]}
        return {at: value for at, value in (changed | self._masked).items() if at[0] < at[1]}

    def _variables(self, node: Node) -> None:
        if isinstance(node, SequenceNode):  # several mappings, merged by `<<`
            for item in node.value:
                self._variables(item)
        elif isinstance(node, MappingNode):
            for key, value in node.value:
                if key.value == "<<":
                    self._variables(value)
                elif isinstance(value, ScalarNode):
                    variable = {key.value: value.value}
                    self.secrets |= engines.secret_values(variable)
                    self._note(value, engines.mask(variable)[key.value])

    def _arguments(self, node: Node) -> None:
        if isinstance(node, SequenceNode):
            words = [item for item in node.value if isinstance(item, ScalarNode)]
            argv = [word.value for word in words]
            self.secrets |= engines.secret_values({}, argv)
            for word, shown in zip(words, engines.mask_argv(argv), strict=True):
                self._note(word, shown)

    def _note(self, node: ScalarNode, shown: str) -> None:
        if shown != node.value:
            self._masked[_span(node)] = shown


def _span(node: ScalarNode) -> tuple[int, int]:
    return node.start_mark.index, node.end_mark.index


def _in_place(written: str, shown: str) -> str:
    """`shown` as a YAML scalar in the place of `written`: an anchor before it stays, and so does
    the end of the line that belongs to a block scalar."""
    anchor = re.match(r"(?:!\S*\s+)?(&\S+\s+)", written)
    after = written[len(written.rstrip()) :]
    return (anchor.group(1) if anchor else "") + json.dumps(shown, ensure_ascii=False) + after
