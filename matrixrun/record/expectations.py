"""The expectations file: what an approved sweep's cells showed, as intervals.

Written by hand as `CELL: {METRIC: [LOW, HIGH]}`, or by `matrixrun baseline accept`, which puts them
under each cell's `expect`.
"""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Any

import yaml

from matrixrun.evidence.errors import UserError
from matrixrun.judge import Expectation
from matrixrun.judge.witnesses.acceptance import LENGTH, POSITION, RATE, is_acceptance_metric

FORM = (
    "write `CELL: {METRIC: [LOW, HIGH]}`, such as `acceptance/mean_acceptance_length: [2.1, 2.4]`"
)

BASELINE_KEY = "matrixrun"
BASELINE_FORMAT = "baseline 1"


def read_expectations(path: str | Path) -> tuple[Expectation, ...]:
    """Read `cell id -> metric -> [low, high]` from a YAML file or a baseline.

    Raises:
        UserError: the file cannot be read, a metric has no such name, or an entry is no interval.
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
        found = _metrics(file, "cells", content.get("cells"))
        cells = {
            cell: _metrics(file, cell, entry).get("expect") or {} for cell, entry in found.items()
        }
    return tuple(
        _expectation(file, cell, metric, interval)
        for cell, metrics in cells.items()
        for metric, interval in _metrics(file, cell, metrics).items()
    )


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
