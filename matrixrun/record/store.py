"""One sweep's results folder: the truth, readable without this program.

sweep.json  matrix.yaml  plan.json  judging.json  summary.json  summary.md  mlflow.json
workloads/<target>.json
launches/<launch>/{outcome.json, engine.log, passes/<pass>-<hash>.parquet, passes/<pass>.json}
launches/<launch>/ledger-<hash>.jsonl (of a launch that kept one)
cells/<cell>/{evidence.json, result.json}
damaged/<cell>-<hex>/ (what was found damaged and is run again)

Everything is written whole or not at all, evidence once only. Ids are file names as they stand
unless they hold characters that are not safe in one.
"""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from matrixrun.evidence.cells import Cell
from matrixrun.evidence.errors import StoreError, UserError
from matrixrun.evidence.verdicts import CellEvidence, CellResult
from matrixrun.record.files import (
    ELSEWHERE,
    LOCK,
    RUN_AGAIN,
    being_written,
    checked,
    file_name,
    locked,
    read_bytes,
    read_json,
    sha256,
    write_bytes,
    write_json,
)
from matrixrun.record.launch_files import LaunchFiles
from matrixrun.record.mirror import mirrored
from matrixrun.record.remote import DECISION_FILES, Remote
from matrixrun.record.summary import summary, summary_markdown
from matrixrun.record.sweep import (
    SWEEP_FILE,
    SweepInfo,
    SweepState,
    is_sweep,
    utc_now,
)
from matrixrun.workloads import Workload
from matrixrun.workloads.prompts import workload_of

T = TypeVar("T")


class Store(LaunchFiles):
    """A results folder, opened. Make one with `Store.create` or `Store.open`.

    Every method raises StoreError (naming the file and a remedy) when the disk refuses, or when
    what lies there is damaged.
    """

    def __init__(self, root: Path, info: SweepInfo, remote: Remote | None = None) -> None:
        """`remote` is where the folder is kept when `root` is only the copy that is worked on."""
        self.root = root
        self.remote = remote
        self.info = info
        self._finished: dict[str, str] | None = None

    @classmethod
    def create(cls, root: Path, sweep: SweepInfo, remote: Remote | None = None) -> Store:
        """Begin a sweep in `root`, which must be new or empty.

        Raises:
            UserError: `root` holds something already.
        """
        root = root.resolve()
        if is_sweep(root):
            raise UserError(
                f"{root} holds a sweep already", remedy="resume it, or choose another --results"
            )
        if root.exists() and not root.is_dir():
            raise UserError(f"{root} is a file", remedy="name a new folder with --results")
        try:
            root.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UserError(
                f"cannot make the results folder {root}: {error.strerror}",
                remedy="choose another --results",
            ) from error
        if any(path.name != LOCK for path in root.iterdir()):
            raise UserError(
                f"{root} is not empty and not the results folder of a sweep",
                remedy="choose an empty or new folder with --results",
            )
        store = cls(root, sweep, remote)
        write_json(root / SWEEP_FILE, sweep)
        return store

    @classmethod
    def open(cls, root: Path, remote: Remote | None = None) -> Store:
        """Open an existing results folder; UserError when `root` is none."""
        root = root.resolve()
        if not is_sweep(root):
            raise UserError(
                f"{root} is not the results folder of a sweep: it has no {SWEEP_FILE}",
                remedy="name the folder that --results was given, or a sweep's id",
            )
        return cls(root, read_json(root / SWEEP_FILE, SweepInfo), remote)

    @property
    def where(self) -> str:
        """What a user calls this sweep: its folder, or its URL."""
        return str(self.root) if self.remote is None else self.remote.shown

    @contextlib.contextmanager
    def writing(self, say: Callable[[str], None] | None = None) -> Iterator[None]:
        """Hold the folder as its only writer; it is free again when the process ends in any way.
        Where it is kept elsewhere, what is written is sent there all the while.

        Raises:
            UserError: another process is writing, here or there.
            StoreError: where it is kept cannot be written.
        """
        with locked(self.root) as mine:
            if not mine:
                raise being_written(self.where)
            with mirrored(self.remote, say or (lambda _: None)):
                if self.remote is not None:  # another driver may have begun or ended it since
                    self.info = read_json(self.root / SWEEP_FILE, SweepInfo)
                yield

    def settle(self) -> None:
        """Be sure that what was written so far is where the folder is kept.

        Raises:
            StoreError: it cannot be written there.
        """
        if self.remote is not None:
            self.remote.push()

    def set_state(self, state: SweepState, *, exit_code: int | None = None) -> None:
        """Record where the sweep stands; a state other than RUNNING also notes the time."""
        finished = None if state is SweepState.RUNNING else utc_now()
        self.info = msgspec.structs.replace(
            self.info, state=state, exit_code=exit_code, finished=finished
        )
        write_json(self.root / SWEEP_FILE, self.info)

    def set_damaged_aside(self) -> list[str]:
        """Move every cell whose evidence, or a file that it points to, is damaged into `damaged/`,
        so that it is run again; returns what was wrong with each. Nothing is deleted."""
        found = []
        for folder in sorted(self.root.glob("cells/*")):
            try:
                self._check_evidence(folder / "evidence.json")
            except StoreError as error:
                aside = self.root / "damaged" / f"{folder.name}-{secrets.token_hex(4)}"
                aside.parent.mkdir(exist_ok=True)
                folder.rename(aside)
                found.append(error.message)
        return found

    def _check_evidence(self, path: Path) -> None:
        evidence = read_json(path, CellEvidence) if path.exists() else None
        for record in evidence.all_records().values() if evidence is not None else ():
            file = self.root / record.path
            checked(file, read_bytes(file), record.sha256, remedy=RUN_AGAIN)

    # -- what was asked for ------------------------------------------------------------------

    def write_matrix(self, text: str) -> None:
        """Keep the matrix file verbatim; its sha256 must be the sweep's."""
        if sha256(text.encode()) != self.info.matrix_sha256:
            raise StoreError(f"the matrix is not the one that sweep {self.info.id} was begun with")
        write_bytes(self.root / "matrix.yaml", text.encode())

    def matrix_text(self) -> str:
        """The matrix file as it was when the sweep began."""
        path = self.root / "matrix.yaml"
        data = read_bytes(path)
        return checked(path, data, self.info.matrix_sha256, remedy=ELSEWHERE).decode()

    def write_plan(self, plan: Any) -> None:
        """Keep the plan (any msgspec value)."""
        write_json(self.root / "plan.json", plan)

    def withdraw_decision(self) -> None:
        """Remove an earlier sign-off: it may not outlive what it was made from."""
        for name in DECISION_FILES:
            (self.root / name).unlink(missing_ok=True)

    def write_settings(self, settings: Any) -> None:
        """Keep what the judge is asked (any msgspec value)."""
        write_json(self.root / "judging.json", settings)

    def settings(self, type_: type[T]) -> T:
        """What the judge was asked, as the type that was written."""
        return read_json(self.root / "judging.json", type_)

    def cells(self) -> tuple[Cell, ...]:
        """The cells of the stored plan; empty before there is one."""
        if not (self.root / "plan.json").exists():
            return ()
        return self.plan(_PlannedCells).cells

    def pending(self) -> tuple[str, ...]:
        """The ids of the plan's cells that have no evidence yet; raises as `planned`."""
        planned = self.planned(_PlannedCells)
        done = {evidence.cell.fingerprint for evidence in self.evidences()}
        return tuple(cell.id for cell in planned.cells if cell.fingerprint not in done)

    def planned(self, type_: type[T]) -> T:
        """The plan as `type_`, which has defaults: they stand for a plan that is not written yet.

        Raises:
            StoreError: there is evidence but no plan, so nobody can tell what is missing.
        """
        path = self.root / "plan.json"
        if path.exists():
            return self.plan(type_)
        if self.evidences():
            raise StoreError(
                f"{self.where}/plan.json is gone: which cells there should be is not known",
                remedy=f"`matrixrun run FILE --results {self.where}` writes it again",
            )
        return type_()

    def plan(self, type_: type[T]) -> T:
        """The plan as the type that was written."""
        return read_json(self.root / "plan.json", type_)

    def write_workload(self, target: str, workload: Workload) -> None:
        """Keep what is sent to a target, one prompt a line.

        Texts are dropped when the sweep stores none.
        """
        prompts = workload.prompts
        if not self.info.store_text:
            prompts = tuple(
                msgspec.structs.replace(prompt, text=None, answer=None, bad_words=())
                for prompt in prompts
            )
        head = msgspec.json.encode({"target": target, "sha256": workload.sha256})[:-1]
        lines = b",\n  ".join(msgspec.json.encode(prompt) for prompt in prompts)
        write_bytes(self._workload_path(target), head + b',\n "prompts": [\n  ' + lines + b"]}\n")

    def has_workload(self, target: str) -> bool:
        """Whether a workload is kept for this target."""
        return self._workload_path(target).exists()

    def workload(self, target: str) -> Workload:
        """What was sent to a target, checked against its sha256."""
        path = self._workload_path(target)
        stored = read_json(path, Workload)
        if workload_of(stored.prompts) != stored:
            raise StoreError(f"{path} was changed after it was written", remedy=ELSEWHERE)
        return stored

    def _workload_path(self, target: str) -> Path:
        return self.root / "workloads" / f"{file_name(target)}.json"

    # -- cells -------------------------------------------------------------------------------

    def cell_folder(self, cell: str) -> Path:
        """The folder of a cell."""
        return self.root / "cells" / file_name(cell)

    def write_evidence(self, evidence: CellEvidence) -> None:
        """Keep a cell's evidence. It is written once: the same again is allowed, other is not."""
        folder = self.cell_folder(evidence.cell.id)
        found = self.evidence(evidence.cell.id)
        if found is not None and found != evidence:
            raise StoreError(
                f"{folder}/evidence.json holds other evidence, and evidence is never changed",
                remedy=f"to run the cell again, remove {folder}",
            )
        write_json(folder / "evidence.json", evidence)
        if self._finished is not None:
            self._finished[evidence.cell.fingerprint] = evidence.cell.id

    def evidence(self, cell: str) -> CellEvidence | None:
        """The evidence of a cell, None while there is none."""
        path = self.cell_folder(cell) / "evidence.json"
        return read_json(path, CellEvidence) if path.exists() else None

    def evidences(self) -> tuple[CellEvidence, ...]:
        """The evidence of every finished cell, by folder name."""
        files = sorted(self.root.glob("cells/*/evidence.json"))
        return tuple(read_json(path, CellEvidence) for path in files)

    def finished(self, fingerprint: str) -> CellEvidence | None:
        """The evidence of the cell with this fingerprint, with every file that it points to
        present and whole; None when the cell has to be run.

        Raises:
            StoreError: the evidence, or a file that it points to, is damaged.
        """
        if self._finished is None:
            self._finished = {e.cell.fingerprint: e.cell.id for e in self.evidences()}
        cell = self._finished.get(fingerprint)
        evidence = None if cell is None else self.evidence(cell)
        if evidence is None:
            return None
        self._check_evidence(self.cell_folder(evidence.cell.id) / "evidence.json")
        return evidence

    def write_result(self, result: CellResult) -> None:
        """Keep a cell's verdict (again, whenever the judge has looked again)."""
        write_json(self.cell_folder(result.cell.id) / "result.json", result)

    def result(self, cell: str) -> CellResult | None:
        """The verdict of a cell, None while it has none."""
        path = self.cell_folder(cell) / "result.json"
        return read_json(path, CellResult) if path.exists() else None

    def results(self) -> tuple[CellResult, ...]:
        """Every verdict so far, by folder name."""
        files = sorted(self.root.glob("cells/*/result.json"))
        return tuple(read_json(path, CellResult) for path in files)

    def write_summary(
        self, results: Sequence[CellResult], exit_code: int, *, pending: Sequence[str] = ()
    ) -> None:
        """Write summary.json and summary.md; `pending` are the ids of cells without a verdict."""
        content = summary(results, self.info.id, exit_code, pending=pending)
        write_json(self.root / "summary.json", content)
        text = summary_markdown(results, self.info.id, exit_code, pending=pending)
        write_bytes(self.root / "summary.md", text.encode())


class _PlannedCells(msgspec.Struct, frozen=True):
    """What is read of plan.json here."""

    cells: tuple[Cell, ...] = ()
