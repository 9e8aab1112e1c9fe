"""The files that go with a run: raw observations, evidence, command lines, ends of logs."""

from __future__ import annotations

import contextlib
import shlex
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import yaml

from matrixrun import engines
from matrixrun.evidence.errors import StoreError
from matrixrun.evidence.launches import LaunchOutcome
from matrixrun.evidence.verdicts import CellEvidence, CellResult
from matrixrun.record.files import read_bytes, sha256
from matrixrun.record.masking import mask_matrix

if TYPE_CHECKING:
    from matrixrun.record.store import Store

LOG_TAIL_BYTES = 200_000
PLOT = "plots/evidence.png"
"""A cell's evidence as an image, within the cell's folder and among its run's artifacts."""


class Artifact(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a run: its path there, and either its content or the file that holds it."""

    path: str
    sha256: str
    source: Path | None = None
    content: bytes = b""


def cell_artifacts(
    store: Store, result: CellResult, evidence: CellEvidence | None
) -> list[Artifact]:
    """A cell's files. Engine logs are left out where the sweep stores no text: they may quote
    prompts."""
    folder = store.cell_folder(result.cell.id)
    found = [_file(folder / "result.json", "result.json")]
    if evidence is None:
        return found
    found.append(_file(folder / "evidence.json", "evidence.json"))
    if (folder / PLOT).exists():
        found.append(_file(folder / PLOT, PLOT))
    for name, record in evidence.all_records().items():
        source = store.root / record.path
        path = f"observations/{name}{source.suffix}"
        if not source.exists():
            raise StoreError(f"{source} is missing", remedy="restore it, then `matrixrun sync`")
        found.append(Artifact(path=path, sha256=record.sha256, source=source))
    for role, outcome in evidence.outcomes.items():
        found.append(_text(f"launches/{role}.command.sh", command_line(outcome)))
        log = store.launch_folder(outcome.launch) / "engine.log"
        if store.info.store_text and log.exists():
            found.append(_text(f"launches/{role}.log", _tail(log)))
    return found


def sweep_artifacts(store: Store) -> list[Artifact]:
    """A sweep's own files, as far as they are written; the matrix file without its secrets."""
    names = (
        "sweep.json", "plan.json", "summary.json", "summary.md", "report.html", "signoff.json",
        "signoff.md",
    )  # fmt: skip
    found = [_file(store.root / name, name) for name in names if (store.root / name).exists()]
    if (store.root / "matrix.yaml").exists():
        found.append(_text("matrix.yaml", _masked_matrix(store)))
    return found


def _masked_matrix(store: Store) -> str:
    try:
        return mask_matrix(store.matrix_text())
    except yaml.YAMLError as error:
        raise StoreError(f"{store.root / 'matrix.yaml'} is no YAML: {error}") from error


def command_line(outcome: LaunchOutcome) -> str:
    """The command that started a launch, to be run by hand; secrets are hidden."""
    variables = [
        f"{name}={shlex.quote(value)}" for name, value in engines.mask(outcome.env).items()
    ]
    # $PYTHON and the like are filled in where the process starts: they must stay variables.
    argv = engines.mask_argv(outcome.argv)
    words = [word if word.startswith("$") else shlex.quote(word) for word in argv]
    return " \\\n  ".join([*variables, " ".join(words)]) + "\n"


def digest(artifacts: Sequence[Artifact]) -> str:
    """One short hash over all paths and contents."""
    return sha256("\n".join(f"{a.path} {a.sha256}" for a in artifacts).encode())[:16]


@contextlib.contextmanager
def staged(artifacts: Sequence[Artifact]) -> Iterator[Path]:
    """A temporary folder that holds the artifacts under their paths, files linked."""
    with tempfile.TemporaryDirectory(prefix="matrixrun-") as name:
        folder = Path(name)
        for artifact in artifacts:
            path = folder / artifact.path
            path.parent.mkdir(parents=True, exist_ok=True)
            if artifact.source is None:
                path.write_bytes(artifact.content)
            else:
                _link(artifact.source, path)
        yield folder


def _link(source: Path, path: Path) -> None:
    try:
        path.hardlink_to(source)
    except OSError:  # another file system
        shutil.copyfile(source, path)


def _file(source: Path, path: str) -> Artifact:
    return Artifact(path=path, sha256=sha256(read_bytes(source)), source=source)


def _text(path: str, text: str) -> Artifact:
    content = text.encode("utf-8", "backslashreplace")
    return Artifact(path=path, sha256=sha256(content), content=content)


def _tail(log: Path) -> str:
    with log.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - LOG_TAIL_BYTES))
        text = file.read().decode("utf-8", "replace")
    if size <= LOG_TAIL_BYTES:
        return text
    return f"... the last {LOG_TAIL_BYTES} of {size} bytes ...\n{text}"
