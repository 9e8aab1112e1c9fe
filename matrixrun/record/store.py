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
from matrixrun.evidence.launches import LaunchOutcome
from matrixrun.evidence.ledger import Event, read_events
from matrixrun.evidence.requests import Observation, PassRecord, Score
from matrixrun.evidence.verdicts import CellEvidence, CellResult
from matrixrun.record.files import (
    ELSEWHERE,
    LOCK,
    RUN_AGAIN,
    being_written,
    file_name,
    locked,
    read_bytes,
    read_json,
    sha256,
    write_bytes,
    write_json,
)
from matrixrun.record.mirror import mirrored
from matrixrun.record.observations import (
    decode_observations,
    decode_scores,
    encode_observations,
    encode_scores,
)
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


class Store:
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
            _checked(file, read_bytes(file), record.sha256, remedy=RUN_AGAIN)

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
        return _checked(path, data, self.info.matrix_sha256, remedy=ELSEWHERE).decode()

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
                msgspec.structs.replace(prompt, text=None, answer=None) for prompt in prompts
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

    # -- launches ----------------------------------------------------------------------------

    def launch_folder(self, launch: str) -> Path:
        """The folder of a launch (made when something is first written into it)."""
        return self.root / "launches" / file_name(launch)

    def write_log(self, launch: str, data: bytes) -> None:
        """Keep the engine's own log."""
        write_bytes(self.launch_folder(launch) / "engine.log", data)

    def write_outcome(self, outcome: LaunchOutcome) -> None:
        """Keep what became of a launch."""
        write_json(self.launch_folder(outcome.launch) / "outcome.json", outcome)

    def outcome(self, launch: str) -> LaunchOutcome | None:
        """What became of a launch, None while it has not ended."""
        path = self.launch_folder(launch) / "outcome.json"
        return read_json(path, LaunchOutcome) if path.exists() else None

    def write_observations(
        self, launch: str, pass_id: str, observations: Sequence[Observation], **about: Any
    ) -> PassRecord:
        """Write the observations of a pass; `about` are further fields of the PassRecord
        (`seconds`, `counters_before`, `counters_after`, `notes`)."""
        data = encode_observations(observations, text=self.info.store_text)
        return self.write_pass(launch, pass_id, "observations", data, len(observations), **about)

    def write_scores(
        self, launch: str, pass_id: str, scores: Sequence[Score], **about: Any
    ) -> PassRecord:
        """Write the scores of a pass; `about` as above."""
        data = encode_scores(scores)
        return self.write_pass(launch, pass_id, "scores", data, len(scores), **about)

    def write_ledger(self, launch: str, data: bytes) -> PassRecord:
        """Keep the ledger of a traced launch, a JSON event a line."""
        digest, folder = sha256(data), self.launch_folder(launch)
        path = folder / f"ledger-{digest[:8]}.jsonl"
        write_bytes(path, data)
        return PassRecord(
            launch=launch,
            pass_id="ledger",
            kind="ledger",
            path=path.relative_to(self.root).as_posix(),
            sha256=digest,
            requests=0,
            seconds=0.0,
        )

    def read_ledger(self, record: PassRecord) -> tuple[Event, ...]:
        """The events of a ledger, checked against its record's sha256."""
        return self._read_pass(record, read_events)

    def write_pass(
        self, launch: str, pass_id: str, kind: str, data: bytes, requests: int, **about: Any
    ) -> PassRecord:
        """Write a pass that was encoded elsewhere (on the node of its launch).

        `kind` is `observations` or `scores`. The record lies beside the file, whose name holds
        part of its hash: a launch that runs again for further cells must not overwrite what the
        evidence of finished ones refers to.
        """
        digest = sha256(data)
        folder = self.launch_folder(launch) / "passes"
        path = folder / f"{file_name(pass_id)}-{digest[:8]}.parquet"
        write_bytes(path, data)
        record = PassRecord(
            launch=launch,
            pass_id=pass_id,
            kind=kind,
            path=path.relative_to(self.root).as_posix(),
            sha256=digest,
            requests=requests,
            **{"seconds": 0.0, **about},
        )
        write_json(folder / f"{file_name(pass_id)}.json", record)
        return record

    def records(self, launch: str) -> tuple[PassRecord, ...]:
        """The passes that a launch has finished, by file name."""
        folder = self.launch_folder(launch) / "passes"
        files = sorted(p for p in folder.glob("*.json") if not p.name.startswith("."))
        return tuple(read_json(path, PassRecord) for path in files)

    def read_observations(self, record: PassRecord) -> list[Observation]:
        """The observations that a record points to, checked against its sha256."""
        return self._read_pass(record, decode_observations)

    def read_scores(self, record: PassRecord) -> list[Score]:
        """The scores that a record points to, checked against its sha256."""
        return self._read_pass(record, decode_scores)

    def _read_pass(self, record: PassRecord, decode: Callable[[bytes], T]) -> T:
        path = self.root / record.path
        data = _checked(path, read_bytes(path), record.sha256, remedy=RUN_AGAIN)
        try:
            return decode(data)
        except (ValueError, KeyError, TypeError, msgspec.MsgspecError) as error:
            raise StoreError(f"{path} cannot be read: {error}", remedy=RUN_AGAIN) from error

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


def _checked(path: Path, data: bytes, expected: str, remedy: str) -> bytes:
    found = sha256(data)
    if found != expected:
        raise StoreError(
            f"{path} is damaged or was changed: its sha256 is {found[:16]}, not {expected[:16]}",
            remedy=remedy,
        )
    return data
