"""What a results folder holds of its launches: outcomes, logs, passes and ledgers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from matrixrun.evidence.errors import StoreError
from matrixrun.evidence.launches import LaunchOutcome
from matrixrun.evidence.ledger import Event, read_events
from matrixrun.evidence.requests import Observation, PassRecord, Score
from matrixrun.record.files import (
    RUN_AGAIN,
    checked,
    file_name,
    read_bytes,
    read_json,
    sha256,
    write_bytes,
    write_json,
)
from matrixrun.record.observations import (
    decode_observations,
    decode_scores,
    encode_observations,
    encode_scores,
)
from matrixrun.record.sweep import SweepInfo

T = TypeVar("T")


class LaunchFiles:
    """The launches' part of a `Store`, which says what its methods raise."""

    root: Path
    info: SweepInfo

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
        data = checked(path, read_bytes(path), record.sha256, remedy=RUN_AGAIN)
        try:
            return decode(data)
        except (ValueError, KeyError, TypeError, msgspec.MsgspecError) as error:
            raise StoreError(f"{path} cannot be read: {error}", remedy=RUN_AGAIN) from error
