"""The expectations file: what an approved sweep's cells showed, as intervals.

Written by hand as `CELL: {METRIC: [LOW, HIGH]}`, or by `matrixrun baseline accept`, which puts them
under each cell's `expect`.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import yaml

from matrixrun.evidence.cells import Cell
from matrixrun.evidence.errors import UserError
from matrixrun.judge import Expectation
from matrixrun.judge.witnesses.acceptance import LENGTH, POSITION, RATE, is_acceptance_metric
from matrixrun.matrix import Matrix
from matrixrun.matrix.problems import error_at
from matrixrun.plan import Plan
from matrixrun.record.files import sha256

FORM = (
    "write `CELL: {METRIC: [LOW, HIGH]}`, such as `acceptance/mean_acceptance_length: [2.1, 2.4]`"
)

MOST_TOLD = 5
BASELINE_KEY = "matrixrun"
BASELINE_FORMAT = "baseline 1"
SEAL = "written"


def seal(cells: dict[str, Any]) -> dict[str, Any]:
    """Return what a baseline file says of its own cells, so that one cut short is not taken whole:
    how many they are, and the hash of their content (not of the way it is written)."""
    text = json.dumps(cells, sort_keys=True)
    return {"cells": len(cells), "sha256": sha256(text.encode())}


def check_seal(file: Path, content: dict[str, Any]) -> None:
    """Refuse a baseline file whose cells are not those that were written; one that does not say
    what was written (an older one) is let through.

    Raises:
        UserError: it was cut, or edited.
    """
    if SEAL not in content:
        return
    cells, written = content.get("cells"), content[SEAL]
    found = seal(cells if isinstance(cells, dict) else {})
    if found == written:
        return
    count = written.get("cells") if isinstance(written, dict) else "?"
    changed = f"it was written with {count} cells and holds {found['cells']}"
    if found["cells"] == count:
        changed = "its cells are not what was written"
    raise UserError(
        f"the baseline {file} was cut short or edited: {changed}",
        remedy="restore it, or write it anew with `matrixrun baseline accept SWEEP --out FILE`; "
        f"if it was edited on purpose, remove its line `{SEAL}`",
    )


def read_expectations(path: str | Path) -> tuple[Expectation, ...]:
    """Read `cell id -> metric -> [low, high]` from a YAML file or a baseline.

    Raises:
        UserError: the file cannot be read, a metric has no such name, an entry is no interval, or
            a baseline was cut short.
    """
    file = Path(path)
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(
            f"expectations: cannot read {file}: {error.strerror}",
            remedy="correct the path under `expectations:`",
        ) from error
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"expectations: {file} is no YAML: {error}", remedy=FORM) from error
    if not isinstance(content, dict):
        raise UserError(f"expectations: {file} is not a mapping", remedy=FORM)
    cells = content
    if content.get(BASELINE_KEY) == BASELINE_FORMAT:
        check_seal(file, content)
        found = _metrics(file, "cells", content.get("cells"))
        cells = {
            cell: _metrics(file, cell, entry).get("expect") or {} for cell, entry in found.items()
        }
    return tuple(
        _expectation(file, cell, metric, interval)
        for cell, metrics in cells.items()
        for metric, interval in _metrics(file, cell, metrics).items()
    )


def with_expectations(matrix: Matrix, plan: Plan, *, file: str) -> Plan:
    """Return a plan with notes on what the expectations file of a matrix, read from `file`, says of
    other cells.

    Raises:
        MatrixError: as `read_expectations`, with the place where the matrix names that file.
    """
    if matrix.expectations is None:
        return plan
    try:
        expected = read_expectations(matrix.expectations)
    except UserError as error:
        message = error.message.removeprefix("expectations: ")
        key = ("expectations",)
        raise error_at(file, matrix.source.positions, key, message, error.remedy) from error
    told = unknown_cells(expected, plan.cells)
    return msgspec.structs.replace(plan, notes=(*plan.notes, *told))


def unknown_cells(expectations: Sequence[Expectation], cells: Sequence[Cell]) -> tuple[str, ...]:
    """Return a sentence for each cell that is expected and not there, with the id it may mean.

    A baseline of a larger grid names such cells rightly, so they are told and no mistake; but a
    misspelt id would leave its cell without an expectation.
    """
    known = [cell.id for cell in cells]
    named = dict.fromkeys(entry.cell for entry in expectations)
    missing = [name for name in named if name not in set(known)]
    told = []
    for name in missing[:MOST_TOLD]:
        close = difflib.get_close_matches(name, known, n=1, cutoff=0.8)
        meant = f"; did you mean {close[0]}?" if close else ""
        told.append(
            f"expectations: {name} is no cell of this matrix, so nothing is held to it{meant}"
        )
    if len(missing) > MOST_TOLD:
        told.append(f"expectations: {len(missing) - MOST_TOLD} more cells are not in this matrix")
    return tuple(told)


def _metrics(file: Path, cell: Any, metrics: Any) -> dict[str, Any]:
    if not isinstance(metrics, dict):
        raise UserError(f"expectations: {file}: {cell} is not a mapping of metrics", remedy=FORM)
    return metrics


def _expectation(file: Path, cell: str, metric: str, interval: Any) -> Expectation:
    if not is_acceptance_metric(str(metric)):
        raise UserError(
            f"expectations: {file}: {cell}: no metric is named {str(metric)!r}",
            remedy=_nearest(str(metric)),
        )
    match interval:
        case [int() | float() as low, int() | float() as high] if low <= high:
            return Expectation(cell=str(cell), metric=str(metric), low=float(low), high=float(high))
    raise UserError(
        f"expectations: {file}: {cell}: {metric}: {interval!r} is not an interval", remedy=FORM
    )


def _nearest(metric: str) -> str:
    position = re.search(r"(\d+)\D*$", metric)
    known = (LENGTH, RATE, f"{POSITION}{int(position[1]) if position else 0}")
    close = difflib.get_close_matches(metric, known, n=1, cutoff=0.5)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"known are {LENGTH}, {RATE} and {POSITION}N"
