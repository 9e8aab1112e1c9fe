"""`load`: a matrix file, read, checked and with its paths resolved."""

from __future__ import annotations

from pathlib import Path

from matrixrun.evidence.errors import MatrixError
from matrixrun.evidence.requests import Task
from matrixrun.matrix.checks import check, check_files
from matrixrun.matrix.paths import Folder
from matrixrun.matrix.problems import Invalid, described, raise_problems
from matrixrun.matrix.schema import Matrix
from matrixrun.matrix.source import Source, content_digest
from matrixrun.matrix.tasks import read_task, task_digest
from matrixrun.matrix.validation import validate
from matrixrun.matrix.yaml12 import parse


def load(path: Path) -> Matrix:
    """Read a matrix file.

    Paths in it are relative to its folder and come out absolute: `overlay`, `workload.path`,
    `accuracy.task`, `expectations`, interpreters with a `/`, checkpoints that begin with `./`,
    `../` or `~/`.

    Raises:
        MatrixError: naming file, line, key and remedy of everything that is wrong with it.
    """
    file = str(path)
    document = parse(_read(Path(path)), file)
    positions = document.positions
    if not isinstance(document.data, dict):
        if document.data is None:
            raise MatrixError(file, None, "", "the file is empty", remedy="start with `name: ...`")
        message = f"the file must be a mapping, but is {described(document.data)}"
        remedy = "start with `name:`, `engines:`, `models:` and `grid:`"
        raise MatrixError(file, positions.line(()), "", message, remedy=remedy)
    folder = Folder(Path(path).absolute().parent)
    matrix = validate(document.data, positions, file, folder)
    matrix = matrix.located(Source(positions, folder.written))
    check(matrix, file=file)
    check_files(matrix, file=file)
    task, named = _task(matrix, file)
    written = folder.written | named
    return matrix.located(Source(positions, written, _digests(matrix, task), task))


def _task(matrix: Matrix, file: str) -> tuple[Task | None, dict[str, str]]:
    """The accuracy task, and its data files as they are written."""
    if matrix.accuracy is None:
        return None, {}
    try:
        return read_task(matrix.accuracy, matrix.source.written)
    except Invalid as error:
        raise_problems(file, matrix.source.positions, [error.problem])
        raise


def _read(path: Path) -> str:
    file = str(path)
    try:
        return path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError:
        remedy = "check the path; ready ones lie in matrices/"
        raise MatrixError(file, None, "", "there is no such file", remedy=remedy) from None
    except IsADirectoryError:
        remedy = "name one file in it"
        raise MatrixError(file, None, "", "is a folder, not a file", remedy=remedy) from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        remedy = "save the file as UTF-8"
        raise MatrixError(file, line, "", "is not UTF-8 text", remedy=remedy) from None
    except OSError as error:
        message = f"cannot be read: {error.strerror}"
        raise MatrixError(file, None, "", message, remedy="check its permissions") from None


def _digests(matrix: Matrix, task: Task | None) -> dict[str, str]:
    """sha256 of the files whose content determines results: own prompts, engine overlays, and the
    accuracy task with its data."""
    paths = [matrix.workload.path, *(engine.overlay for engine in matrix.engines.values())]
    written = matrix.source.written
    digests = {path: content_digest(Path(path)) for path in paths if path in written}
    if matrix.accuracy is not None and task is not None:
        digests[matrix.accuracy.task] = task_digest(task)
    return digests
