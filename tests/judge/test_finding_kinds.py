"""The registry of faults' names is what the witnesses say, no more and no less."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from matrixrun import judge
from matrixrun.judge.kinds import FAULT_KINDS

SOURCES = sorted(Path(judge.__file__).parent.rglob("*.py"))


def findings(tree: ast.Module) -> Iterator[tuple[str | None, bool]]:
    """Each finding that a module makes: its kind, None where it is chosen at run time, and whether
    it is written down as a mere notice."""
    constants = {
        node.targets[0].id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "Finding":
            given = {word.arg: word.value for word in node.keywords}
            kind = given["kind"]
            written = isinstance(kind, ast.Constant)
            name = kind.value if written else constants.get(ast.unparse(kind))
            yield name, ast.unparse(given["severity"]) in {"Severity.NOTICE", "notice"}


def test_every_fault_that_a_witness_can_name_is_registered() -> None:
    named = {
        kind
        for source in SOURCES
        for kind, notice in findings(ast.parse(source.read_text()))
        if kind is not None and not notice
    }
    assert len(named) > 15
    assert named <= FAULT_KINDS, named - FAULT_KINDS


def test_every_registered_fault_is_named_by_a_witness() -> None:
    words: set[object] = set()
    notices: set[str | None] = set()
    faults: set[str | None] = set()
    for source in SOURCES:
        tree = ast.parse(source.read_text())
        if source.name not in {"kinds.py", "verdict.py"}:
            words |= {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
        for kind, notice in findings(tree):
            (notices if notice else faults).add(kind)
    assert words >= FAULT_KINDS, FAULT_KINDS - words
    assert not (notices - faults) & FAULT_KINDS
