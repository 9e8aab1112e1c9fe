"""The expectations file: what an approved sweep's cells showed, as intervals.

Written by hand as `CELL: {METRIC: [LOW, HIGH]}`, or by `matrixrun baseline accept`, which puts them
under each cell's `expect`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from matrixrun.evidence.errors import UserError
from matrixrun.judge import Expectation

FORM = (
    "write `CELL: {METRIC: [LOW, HIGH]}`, such as `acceptance/mean_acceptance_length: [2.1, 2.4]`"
)

BASELINE_KEY = "matrixrun"
BASELINE_FORMAT = "baseline 1"


def read_expectations(path: str | Path) -> tuple[Expectation, ...]:
    """Read `cell id -> metric -> [low, high]` from a YAML file or a baseline.

    Raises:
        UserError: the file cannot be read, or an entry is no interval.
    """
    file = Path(path)
    try:
        content = yaml.safe_load(file.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"expectations: cannot read {file}: {error}", remedy=FORM) from error
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
    match interval:
        case [int() | float() as low, int() | float() as high] if low <= high:
            return Expectation(cell=str(cell), metric=str(metric), low=float(low), high=float(high))
    raise UserError(
        f"expectations: {file}: {cell}: {metric}: {interval!r} is not an interval", remedy=FORM
    )
