"""`matrixrun run`: from a matrix file to verdicts, in the results folder, on screen, in MLflow."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType

import msgspec

from matrixrun import plan as planning
from matrixrun.evidence.cells import Cell
from matrixrun.evidence.errors import ClusterError, StoreError, TrackingError, UserError
from matrixrun.evidence.verdicts import CellEvidence
from matrixrun.fanout import cluster
from matrixrun.fanout.actor import LaunchSettings
from matrixrun.fanout.refusals import refused_evidence
from matrixrun.fanout.staging import stage
from matrixrun.fanout.staleness import require_same_cells, require_same_matrix
from matrixrun.fanout.sweep import Sweep
from matrixrun.judge import exit_code, settings_for
from matrixrun.matrix import Expansion, Matrix
from matrixrun.plan import Plan
from matrixrun.record import (
    Display,
    Store,
    SweepHead,
    SweepState,
    Tracking,
    choose,
    new_sweep,
    read_expectations,
    with_expectations,
)
from matrixrun.record.cache import cache_folder
from matrixrun.record.costs import read_costs
from matrixrun.record.files import being_written, locked
from matrixrun.record.remote import Remote
from matrixrun.record.replay import judge_store, withdraw_if_changed

INCOMPLETE = 2
TRACKING_SECONDS = 600.0  # that the end waits for MLflow: some 2,000 cells; `sync` sends the rest


class RunOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What the command line adds to a matrix file; `deadline_seconds` None: no deadline.

    `results` is the sweep's folder, here or kept elsewhere; None makes a new one here.
    `costs` are results folders of earlier sweeps, which estimates are corrected by."""

    results: Path | Remote | None = None
    only: tuple[str, ...] = ()
    address: str | None = None
    tracking_uri: str | None = None
    track: bool = True
    deadline_seconds: float | None = None
    quiet: bool = False
    costs: tuple[Path, ...] = ()


Report = Callable[[Store], Path]


class RunEnd(msgspec.Struct, frozen=True):
    """How a run ended: the exit code, and the results folder unless there was nothing to run."""

    code: int
    store: Store | None = None


def run_matrix(file: Path, options: RunOptions, report: Report) -> RunEnd:
    """Run a matrix file, or finish an interrupted run of it.

    `report` writes the sweep's report from its results folder, at the end.

    Raises:
        UserError: the file, the options or the results folder are not usable.
        StoreError: the results folder cannot be written.
        ClusterError: no local Ray came up; the folder is there and says so.
    """
    cluster.check_address(options.address)  # before there is a folder for it
    matrix, planned = planning.plan_file(file)
    learned = planning.with_costs(planned, read_costs(options.costs))
    whole = with_expectations(matrix, learned, file=str(file))
    plan = planning.select(whole, options.only)
    if cluster.is_local(options.address):
        planning.require_programs(matrix, plan, file=str(file))
    with choose(quiet=options.quiet) as display:
        for note in whole.notes[len(planned.notes) :]:
            display.note(note)
        if not plan.cells:
            display.note(f"{file}: nothing to run: no cell is left after exclude and constraints")
            return RunEnd(5)
        store = open_store(file, matrix, whole, options.results, display.note)
        with store.writing(display.note):
            for trouble in store.set_damaged_aside():
                display.note(f"{trouble}; its cell is run again, what was there is in damaged/")
            require_same_matrix(store, file, whole)  # another driver may have begun the folder
            require_same_cells(store, whole)
            store.write_plan(planning.to_json(planned))  # later sweeps learn from plain estimates
            run = _Run(matrix, plan, store, display=display, options=options, report=report)
            return RunEnd(run.run(), store)


def run_further(
    file: Path,
    matrix: Matrix,
    options: RunOptions,
    report: Report,
    *,
    known: Sequence[Cell],
    further: Sequence[Cell],
) -> Store:
    """Run `further` cells that the matrix allows into the folder `options.results`, each launched
    as it would be beside the `known` ones.

    Raises:
        UserError, StoreError: as `run_matrix`.
    """
    cells = {cell.fingerprint: cell for cell in (*known, *further)}
    whole = planning.build(matrix, Expansion(cells=tuple(cells.values()), excluded=()))
    plan = planning.select(whole, [cell.id for cell in further])
    with choose(quiet=options.quiet) as display:
        store = open_store(file, matrix, whole, options.results, display.note)
        with store.writing(display.note):
            require_same_matrix(store, file, plan)
            require_same_cells(store, plan)
            store.write_plan(planning.to_json(plan))
            run = _Run(matrix, plan, store, display=display, options=options, report=report)
            run.run()
    return store


def open_store(
    file: Path,
    matrix: Matrix,
    plan: Plan,
    place: Path | Remote | None,
    say: Callable[[str], None],
) -> Store:
    """A new results folder for the matrix, or the one that is to be resumed.

    Raises:
        UserError: the folder holds something else, or the sweep of another matrix, or another
            process writes to it.
        StoreError: where it is kept cannot be read.
    """
    remote = place if isinstance(place, Remote) else None
    results = place.local if isinstance(place, Remote) else place
    for trouble in () if remote is None else _pulled(remote):
        say(f"{trouble}; it was left there, and its cell is run again")
    text = file.read_text(encoding="utf-8")
    info = new_sweep(matrix.name, text, matrix_file=file.name, store_text=matrix.store_text)
    if results is not None and (results / "sweep.json").exists():
        store = Store.open(results, remote)
        require_same_matrix(store, file, plan)
        return store
    if results is not None:
        info = msgspec.structs.replace(info, id=results.resolve().name)
    store = Store.create(results or Path("results") / info.id, info, remote)
    store.write_matrix(text)
    return store


def _pulled(remote: Remote) -> list[str]:
    with locked(remote.local) as mine:
        if not mine:
            raise being_written(remote.shown)
        return remote.pull()


@contextmanager
def _interruptible() -> Iterator[None]:
    """Where no event loop listens yet, let SIGTERM interrupt as Ctrl-C does: Ray's own handler, in
    place since it started, would end the process with nothing written."""

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class _Run:
    """One run of a matrix into one results folder."""

    def __init__(
        self,
        matrix: Matrix,
        plan: Plan,
        store: Store,
        *,
        display: Display,
        options: RunOptions,
        report: Report,
    ) -> None:
        self.matrix, self.plan, self.store = matrix, plan, store
        self.display, self.options, self.report = display, options, report
        expectations = read_expectations(matrix.expectations) if matrix.expectations else ()
        self.judging = settings_for(matrix, expectations=expectations)
        self.tracking = Tracking(options.tracking_uri, matrix.name) if options.track else None

    def run(self) -> int:
        """Fan out what is left to do, judge all of it, and say it everywhere."""
        self.store.write_settings(self.judging)
        self.store.set_state(SweepState.RUNNING)
        resumed = len(self.store.evidences())
        for evidence in refused_evidence(self.plan, self.judging):
            self._keep(evidence)
        left = self._left()
        self.display.started(self._head(left, resumed))
        if left.launches:
            self._fan_out(left)
        return self._close()

    def _keep(self, evidence: CellEvidence) -> None:
        if self.store.finished(evidence.cell.fingerprint) is None:
            self.store.write_evidence(evidence)

    def _left(self) -> Plan:
        """The part of the plan whose cells have no evidence yet."""
        open_cells = [
            cell.id for cell in self.plan.cells if self.store.finished(cell.fingerprint) is None
        ]
        if not open_cells:
            return msgspec.structs.replace(self.plan, launches=(), pairs=(), cells=())
        return planning.select(self.plan, open_cells)

    def _head(self, left: Plan, resumed: int) -> SweepHead:
        return SweepHead(
            sweep=self.store.info.id,
            root=self.store.where,
            cells=len(self.plan.cells),
            launches=len(left.launches),
            naive_launches=left.naive_launches,
            seconds=left.seconds,
            accelerators=str(left.accelerators_at_once or ""),
            resumed=resumed,
        )

    def _fan_out(self, left: Plan) -> None:
        """Run the launches that are left, until they end or it is cut short."""
        try:
            cluster.connect(self.options.address)
        except (ClusterError, UserError):
            self.store.set_state(SweepState.INTERRUPTED, exit_code=INCOMPLETE)
            raise
        cache = cache_folder()
        try:
            with _interruptible():
                staged = stage(self.matrix, left, self.store, cache, self.display.progress)
        except KeyboardInterrupt:
            self.display.note("interrupted before any launch; run again to resume")
            return
        timeouts = self.matrix.timeouts
        sweep = Sweep(
            matrix=self.matrix,
            plan=left,
            store=self.store,
            display=self.display,
            launching=LaunchSettings(
                cache=cache,
                ready_timeout=timeouts.ready,
                request_timeout=timeouts.request,
                build_timeout=timeouts.build,
                accuracy_timeout=timeouts.accuracy,
            ),
            judging=self.judging,
            workloads=staged.workloads,
            unstaged=staged.missing,
        )
        asyncio.run(self._until_done(sweep))

    async def _until_done(self, sweep: Sweep) -> None:
        """Run the sweep until it ends, a signal comes, or the deadline passes."""
        work = asyncio.create_task(sweep.run())
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            # Ray replaces handlers that were there before it started.
            loop.add_signal_handler(number, work.cancel, f"signal {number.name}")
        opening = asyncio.create_task(asyncio.to_thread(self._start_tracking))
        try:
            await asyncio.wait_for(work, self.options.deadline_seconds)
        except TimeoutError:
            self.display.note("the deadline has passed; what is done is kept, run again to resume")
        except asyncio.CancelledError:
            self.display.note("interrupted; what is done is kept, run again to resume")
        finally:
            for number in (signal.SIGINT, signal.SIGTERM):
                loop.remove_signal_handler(number)
            await opening

    def _start_tracking(self) -> None:
        if self.tracking is not None:
            with suppress(TrackingError):  # said at the end, when there is something to lose
                self.tracking.start(self.store)

    def _close(self) -> int:
        """Judge everything that has evidence, write it, show it, log it.

        The exit code is incomplete when a cell that was asked for has none; what `--only` left
        out stays to be done, and the folder says so.
        """
        results = judge_store(self.store, self.judging)
        open_cells = set(self.store.pending())
        pending = [cell.id for cell in self.plan.cells if cell.id in open_cells]
        code = exit_code(results, complete=not pending)
        withdraw_if_changed(self.store, results)
        for result in results:
            self.store.write_result(result)
            self.display.cell(result)
        self.store.write_summary(results, code, pending=pending)
        state = SweepState.INTERRUPTED if open_cells else SweepState.COMPLETE
        self.store.set_state(state, exit_code=code)
        self.display.final(
            results,
            code,
            root=self.store.where,
            report=self.report(self.store),
            where=self._track(pending),
            pending=pending,
        )
        return code

    def _track(self, pending: Sequence[str]) -> str:
        """Bring MLflow up to date; returns where to look, or how to do it later."""
        if self.tracking is None:
            return ""
        try:
            self.store.settle()  # before anything is logged
            self.tracking.sync(
                self.store,
                pending=pending,
                most_seconds=TRACKING_SECONDS,
                say=self.display.progress,
            )
        except (StoreError, TrackingError) as error:
            self.display.note(f"MLflow: {error}")
            return f"nothing is lost: `matrixrun sync {self.store.where}` fills MLflow later"
        return self.tracking.where()
