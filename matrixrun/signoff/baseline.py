"""`matrixrun baseline accept`: what an approved sweep showed, as a file for review in git.

The file is also what a matrix's `expectations:` may name: the judge reads each cell's `expect`.
It depends on the sweep alone, so that accepting the same sweep twice gives the same bytes.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import msgspec
import yaml

from matrixrun.evidence.errors import MatrixError, UserError
from matrixrun.evidence.verdicts import Verdict
from matrixrun.matrix.yaml12 import parse
from matrixrun.record import Store
from matrixrun.record.expectations import BASELINE_FORMAT, BASELINE_KEY, SEAL, check_seal, seal
from matrixrun.record.files import to_plain, write_bytes
from matrixrun.record.naming import params
from matrixrun.signoff.levels import (
    CellLevels,
    SweepLevels,
    levels_of,
    pending_words,
    unmeasured_words,
)

HEAD = """\
# What sweep {sweep} showed, accepted as what is to be expected from now on.
# Written by `matrixrun baseline accept`; review its changes like those of code.
# `expect` are the intervals that a matrix naming this file under `expectations:` is judged by;
# `figures` are [value] or [value, low, high] and are compared by `matrixrun signoff`.
"""


def accept(store: Store) -> str:
    """Return a sweep as a baseline file.

    Acceptance is expected only of cells that are PASS; what else there is, is kept with its reason.

    Raises:
        UserError: the sweep is not complete, or no cell of it was measured.
        StoreError: its evidence cannot be read.
    """
    levels = complete_levels(store)
    axes = {result.cell.id: params(result.cell) for result in levels.results}
    cells = {
        name: {"axes": axes[name], **_entry(levels.cells[name])} for name in sorted(levels.cells)
    }
    content = {
        BASELINE_KEY: BASELINE_FORMAT,
        "provenance": _provenance(store, levels),
        SEAL: seal(cells),
        "cells": cells,
    }
    body: str = yaml.safe_dump(
        content, sort_keys=False, default_flow_style=None, width=100, allow_unicode=True
    )
    return HEAD.format(sweep=store.info.id) + body


def complete_levels(store: Store) -> SweepLevels:
    """Return the figures of a sweep that later ones may be held to.

    Raises:
        UserError: a cell lacks its verdict, or the evidence for it, or none was measured.
        StoreError: its evidence cannot be read.
    """
    levels = levels_of(store)
    if levels.pending:
        raise UserError(
            f"sweep {store.info.id} is not complete: {pending_words(levels.pending)}",
            remedy=levels.pending[0].remedy,
        )
    if not levels.cells:
        raise UserError(
            f"sweep {store.info.id} is not complete: it has no cells",
            remedy="`matrixrun run FILE --results FOLDER` runs them",
        )
    if nothing := unmeasured_words([cell.verdict for cell in levels.cells.values()]):
        raise UserError(
            f"sweep {store.info.id} is nothing to be held to: {nothing}",
            remedy="see why in its report, mend the matrix file, and run it anew",
        )
    return levels


def write_baseline(out: Path, text: str) -> Path:
    """Write a baseline file; an existing one is replaced, since git keeps the old."""
    write_bytes(out, text.encode())
    return out


def read_baseline(path: Path) -> SweepLevels:
    """Read a baseline file.

    Raises:
        UserError: it cannot be read, or is not (all of) what `baseline accept` writes.
    """
    try:
        content = parse(path.read_text(encoding="utf-8"), str(path)).data
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read the baseline {path}: {error}", remedy=_REMEDY) from error
    if not isinstance(content, dict) or content.get(BASELINE_KEY) != BASELINE_FORMAT:
        raise MatrixError(str(path), 1, BASELINE_KEY, "is not a baseline file", remedy=_REMEDY)
    check_seal(path, content)
    try:
        cells = msgspec.convert(content.get("cells"), dict[str, CellLevels])
        name = str(content["provenance"]["sweep"])
    except (msgspec.ValidationError, KeyError, TypeError) as error:
        raise _damaged(path, error) from error
    for cell, levels in cells.items():
        entry = content["cells"][cell]
        _check_intervals(path, cell, levels.figures, entry.get("expect") or {})
    if not cells:
        raise _damaged(path, "it has no cells")
    judging = str(content["provenance"].get("judging", ""))
    return SweepLevels(name=name, cells=cells, judging=judging)


def _check_intervals(
    path: Path, cell: str, figures: dict[str, tuple[float, ...]], expect: dict[str, Any]
) -> None:
    """Refuse figures that are neither [value] nor [value, low, high], and reversed intervals."""
    for name, values in figures.items():
        reversed_ = len(values) == 3 and values[1] > values[2]
        if len(values) not in {1, 3} or reversed_ or any(map(math.isnan, values)):
            raise _damaged(path, f"{cell}: {name}: {list(values)} is not [value, low, high]")
    for name, interval in expect.items():
        try:
            low, high = msgspec.convert(interval, tuple[float, float])
        except msgspec.ValidationError as error:
            raise _damaged(path, f"{cell}: {name}: {error}") from error
        if low > high:
            raise _damaged(path, f"{cell}: {name}: {interval} is not [low, high]")


def _damaged(path: Path, why: object) -> UserError:
    return UserError(f"the baseline {path} is damaged: {why}", remedy=_REMEDY)


_REMEDY = "name a file that `matrixrun baseline accept SWEEP --out FILE` wrote, or a sweep"


def _provenance(store: Store, levels: SweepLevels) -> dict[str, Any]:
    info = store.info
    return {
        "sweep": info.id,
        "matrix": info.matrix_name,
        "matrix_sha256": info.matrix_sha256,
        "created": info.created,
        "finished": info.finished or "",
        "program": f"matrixrun {info.program}",
        "judging": levels.judging,
        "engines": sorted({cell.engine for cell in levels.cells.values() if cell.engine}),
    }


def _entry(levels: CellLevels) -> dict[str, Any]:
    plain: dict[str, Any] = to_plain(levels)
    figures = plain.pop("figures", {})
    if levels.verdict is Verdict.PASS:
        expect = {
            name: list(values[1:])
            for name, values in levels.figures.items()
            if name.startswith("acceptance/") and len(values) == 3
        }
        plain["expect"] = expect
    return plain | {"figures": {name: list(values) for name, values in figures.items()}}
