"""What a results folder says of itself: the sweep, and how to find one again."""

from __future__ import annotations

import difflib
import platform
import secrets
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path

import msgspec

import matrixrun
from matrixrun.evidence.errors import StoreError, UserError
from matrixrun.record.files import read_json, sha256

SWEEP_FILE = "sweep.json"


class SweepState(StrEnum):
    """Where a sweep stands. A sweep whose driver was killed stays RUNNING until it is resumed."""

    RUNNING = "running"
    COMPLETE = "complete"
    INTERRUPTED = "interrupted"


class SweepInfo(msgspec.Struct, frozen=True, kw_only=True):
    """The head of a results folder. Times are UTC, ISO 8601; `program` is matrixrun's version."""

    id: str
    matrix_name: str
    created: str
    matrix_sha256: str
    matrix_file: str = ""
    store_text: bool = True
    program: str = ""
    python: str = ""
    platform: str = ""
    state: SweepState = SweepState.RUNNING
    finished: str | None = None
    exit_code: int | None = None


def utc_now() -> str:
    """The time as it stands in results: `2026-01-31T09:30:00Z`."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_utc(text: str) -> datetime:
    """The time that `utc_now` wrote."""
    return datetime.strptime(text, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)


def new_sweep(
    matrix_name: str, matrix_text: str, *, matrix_file: str = "", store_text: bool = True
) -> SweepInfo:
    """A sweep with a fresh id, `<name>-<UTC time>-<4 hex>`, begun now by this program."""
    created = utc_now()
    stamp = created.replace("-", "").replace(":", "")
    return SweepInfo(
        id=f"{matrix_name}-{stamp}-{secrets.token_hex(2)}",
        matrix_name=matrix_name,
        created=created,
        matrix_sha256=sha256(matrix_text.encode()),
        matrix_file=matrix_file,
        store_text=store_text,
        program=matrixrun.__version__,
        python=platform.python_version(),
        platform=f"{platform.system()} {platform.machine()}",
    )


def is_sweep(folder: Path) -> bool:
    """Whether `folder` is the results folder of a sweep."""
    return (folder / SWEEP_FILE).is_file()


def list_sweeps(results: Path) -> dict[str, Path]:
    """Every sweep directly below `results`: id -> folder, oldest first."""
    found: list[tuple[str, str, Path]] = []
    for file in sorted(results.glob(f"*/{SWEEP_FILE}")):
        try:
            info = read_json(file, SweepInfo)
        except StoreError:
            found.append(("", file.parent.name, file.parent))
        else:
            found.append((info.created, info.id, file.parent))
    return {name: folder for _, name, folder in sorted(found)}


def find_sweep(reference: str, results: Path = Path("results")) -> Path:
    """The folder of the sweep that a user named: a folder, or the id of one below `results`.

    Raises:
        UserError: there is none; the message names the nearest ids.
    """
    folder = Path(reference)
    if is_sweep(folder):
        return folder
    sweeps = list_sweeps(results)
    if reference in sweeps:
        return sweeps[reference]
    if is_sweep(results / reference):
        return results / reference
    raise UserError(_no_sweep(reference, folder, results), remedy=_nearest(reference, sweeps))


def _no_sweep(reference: str, folder: Path, results: Path) -> str:
    if folder.is_dir():
        return f"{reference} is a folder, but no results folder: it has no {SWEEP_FILE}"
    return f"there is no sweep {reference!r}: neither a folder of that name nor an id in {results}/"


def _nearest(reference: str, sweeps: dict[str, Path]) -> str:
    if not sweeps:
        return "name the results folder itself (what --results was given), or run a matrix first"
    near = difflib.get_close_matches(Path(reference).name, sweeps, n=3, cutoff=0.4)
    if near:
        return "did you mean " + " or ".join(near) + "?"
    return "the newest sweeps are " + ", ".join(list(sweeps)[-3:])
