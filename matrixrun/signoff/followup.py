"""`matrixrun run --localize`: a few further cells, to say which settings a failure needs.

Each round is a sweep of its own beside the first one's folder (`SWEEP-localize-1`, ...), judged by
itself: the first sweep's verdicts stay what they were. What is found is kept in the first folder.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from matrixrun import plan as planning
from matrixrun.evidence.cells import AxisValue, Cell, Speculation
from matrixrun.evidence.errors import MatrixError
from matrixrun.evidence.verdicts import CellResult
from matrixrun.fanout import RunOptions, run_further
from matrixrun.matrix import AXES, Matrix, expand
from matrixrun.matrix.cell_identity import value_key
from matrixrun.record import Remote, Store
from matrixrun.record.files import write_json
from matrixrun.signoff.narrow import FILE, Allowed, FollowUp, narrow, sentence
from matrixrun.signoff.plots import report_with_plots
from matrixrun.signoff.report import write_report

SIMPLER: dict[str, AxisValue] = {axis.name: axis.default for axis in AXES if not axis.required}  # type: ignore[misc]
"""What an axis that has one value only is changed to, to see whether that value matters."""
SIMPLER |= {"prefix_caching": False}


def follow_up(file: Path, store: Store, options: RunOptions, *, most: int) -> FollowUp:
    """Run at most `most` further cells and say what the failures of a finished sweep need.

    The sweep's report is written again. `options` are those of the sweep itself; what is left of
    its deadline is the caller's to say.

    Raises:
        UserError: a folder beside the sweep's is in the way.
        StoreError: results cannot be read or written.
    """
    matrix, plan = planning.plan_file(file)
    results, ran = list(store.results()), 0
    sweeps: list[str] = []
    values, allowed = changes(matrix, plan.cells), allowed_by(matrix, file)
    started = time.monotonic()
    found, wanted = narrow(results, values, allowed)
    while cells := wanted[: most - ran]:
        folder = store.root.with_name(f"{store.root.name}-localize-{len(sweeps) + 1}")
        left = _left(options, folder, time.monotonic() - started)
        ended = _run(file, matrix, (plan.cells, cells), left)
        results += ended
        sweeps.append(folder.name)
        ran += len(ended)
        found, wanted = narrow(results, values, allowed)
        if len(ended) < len(cells):  # cut short: the same command again goes on there
            break
    told = FollowUp(cells=ran, sweeps=tuple(sweeps), narrowed=found)
    with store.writing():
        write_json(store.root / FILE, told)
        write_report(store)
    return told


def follow_up_lines(told: FollowUp) -> list[str]:
    """Return what was found in words, a line each."""
    if not told.narrowed:
        return ["localize: no cell failed that was not expected to"]
    ran = f"{told.cells} further cell{'' if told.cells == 1 else 's'}"
    where = f" ({', '.join(told.sweeps)})" if told.sweeps else ""
    return [f"localize: {ran}{where}", *(f"  {sentence(one)}" for one in told.narrowed)]


def _run(
    file: Path, matrix: Matrix, cells: tuple[Sequence[Cell], Sequence[Cell]], options: RunOptions
) -> Sequence[CellResult]:
    known, further = cells
    report = report_with_plots if options.track else write_report
    store = run_further(file, matrix, options, report, known=known, further=further)
    wanted = {cell.fingerprint for cell in further}
    return [one for one in store.results() if one.cell.fingerprint in wanted]


def _left(options: RunOptions, folder: Path, gone: float) -> RunOptions:
    deadline, here = options.deadline_seconds, options.results
    return msgspec.structs.replace(
        options,
        results=here.beside(folder.name) if isinstance(here, Remote) else folder,
        only=(),
        deadline_seconds=None if deadline is None else max(0.0, deadline - gone),
    )


def changes(matrix: Matrix, cells: Sequence[Cell]) -> Mapping[str, Sequence[AxisValue]]:
    """Return what each axis may be changed to: what the sweep's cells have, and where that is one
    value only, the simpler one."""
    values: dict[str, dict[object, AxisValue]] = {}
    for cell in cells:
        for axis, value in cell.axes.items():
            values.setdefault(axis, {})[value_key(value)] = value
    for axis, known in values.items():
        if len(known) == 1 and axis in SIMPLER and axis in matrix.grid:
            known.setdefault(value_key(SIMPLER[axis]), SIMPLER[axis])
    return {axis: tuple(known.values()) for axis, known in values.items()}


def allowed_by(matrix: Matrix, file: Path) -> Allowed:
    """Return the test of a single cell against exclude, checkpoints and constraints."""

    def allowed(axes: Mapping[str, AxisValue]) -> Cell | None:
        grid = {axis: [_written(value)] for axis, value in axes.items()}
        one = matrix.model_copy(update={"grid": grid, "include": (), "strategy": _FULL})
        try:
            return next(iter(expand(one, file=str(file)).cells), None)
        except MatrixError:  # such a cell could not be written down: a checkpoint no model has
            return None

    return allowed


_FULL = Matrix.model_fields["strategy"].default


def _written(value: AxisValue) -> object:
    """Return a value as a matrix file has it."""
    if not isinstance(value, Speculation):
        return value
    named = {
        "method": value.method,
        "num_speculative_tokens": value.num_speculative_tokens,
        "draft": value.draft,
    }
    return {name: part for name, part in named.items() if part is not None} | value.options
