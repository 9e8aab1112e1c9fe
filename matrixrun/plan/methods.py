"""Speculation methods by name: which an engine is known to have, and which need a draft.

What is known is engines/support.yaml and the adapters' own names for other engines' methods. An
engine may know more than that: an unknown method is only told, never refused.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence
from fnmatch import fnmatch

from matrixrun import engines
from matrixrun.evidence.cells import Cell, Speculation
from matrixrun.evidence.launches import Launch, Role
from matrixrun.matrix import Expansion, Matrix
from matrixrun.matrix.problems import Key, Problem, did_you_mean
from matrixrun.plan.support import known


def method_notes(launches: Sequence[Launch]) -> tuple[str, ...]:
    """Say where a method is none that its engine is known to have."""
    found: dict[tuple[str, str, str], None] = {}
    for one in launches:
        speculation = one.config.speculation
        if one.role is Role.ON and speculation is not None:
            for word in speculation.method.split(","):
                if not _is_known(one.config.kind, word):
                    found[one.config.engine, one.config.kind, word] = None
    return tuple(
        f"engines.{engine}: `{word}` is no method that {kind} is known to have here: "
        f"{did_you_mean(word, _names(kind))} It is passed on as it is, since another release may "
        "have it."
        for engine, kind, word in sorted(found)
    )


def missing_drafts(matrix: Matrix, expansion: Expansion) -> Iterator[Problem]:
    """Speculations that need a draft checkpoint and name none, once each; an attached server has
    its draft already, and an option that names a model is the engine's to read."""
    seen: dict[tuple[str, str], Cell] = {}
    for cell in expansion.cells:
        engine, speculation = str(cell.axes["engine"]), cell.axes["speculation"]
        assert isinstance(speculation, Speculation)
        named = speculation.draft or any("model" in option for option in speculation.options)
        spec = matrix.engines[engine]
        if named or spec.attach is not None or spec.kind not in engines.kinds():
            continue
        if any(_needs_draft(spec.kind, word) for word in speculation.method.split(",")):
            seen.setdefault((engine, speculation.method), cell)
    for (engine, method), cell in seen.items():
        drafts = sorted(matrix.models[str(cell.axes["model"])].drafts)
        remedy = f"add `draft: {drafts[0] if drafts else 'NAME'}` to it"
        if not drafts:
            remedy += f", and `drafts: {{NAME: {{path: ...}}}}` to models.{cell.axes['model']}"
        message = f"`{method}` on engine {engine} drafts with a checkpoint, and none is named"
        yield Problem(_where(matrix, method), message, remedy)


def _where(matrix: Matrix, method: str) -> Key:
    """The place of a speculation without a draft in the file."""
    written = matrix.grid.get("speculation")
    for i, value in enumerate(written if isinstance(written, list | tuple) else ()):
        if isinstance(value, dict) and value.get("method") == method and not value.get("draft"):
            return ("grid", "speculation", i)
    for i, include in enumerate(matrix.include):
        value = include.get("speculation")
        if isinstance(value, dict) and value.get("method") == method and not value.get("draft"):
            return ("include", i, "speculation")
    return ("grid", "speculation")


def _is_known(kind: str, method: str) -> bool:
    also = known(kind).get("also", ())
    word = method.strip().casefold()
    return word in _names(kind) or any(fnmatch(word, one.casefold()) for one in also)


@functools.cache
def _names(kind: str) -> frozenset[str]:
    """Every name that a method of an engine goes by, in lower case."""
    names = engines.get(kind).method_names
    listed = {word for line in known(kind)["methods"] for word in line["method"].split(",")}
    return frozenset(name.casefold() for name in (*listed, *names, *names.values()))


def _needs_draft(kind: str, method: str) -> bool:
    names = engines.get(kind).method_names

    def own(word: str) -> str:
        return names.get(word.strip(), word.strip()).casefold()

    return any(
        line.get("draft") is True and own(line["method"]) == own(method)
        for line in known(kind)["methods"]
    )
