"""What a matrix names that is not there, said with file, line and key before anything starts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from matrixrun import engines, models
from matrixrun.engines import binaries
from matrixrun.evidence.errors import UserError
from matrixrun.matrix import AXES, CLIENT_AXES, Expansion, Matrix, expand, load
from matrixrun.matrix.problems import Key, Problem, raise_problems
from matrixrun.matrix.schema import CheckpointSpec, ModelSpec
from matrixrun.plan.build import build
from matrixrun.plan.types import Plan
from matrixrun.workloads import check_categories, check_file


def plan_file(file: Path) -> tuple[Matrix, Plan]:
    """Read a matrix file and plan it.

    Raises:
        MatrixError: something in the file is wrong, or names what is not there.
        UserError: the matrix asks for something that no launch could do.
    """
    matrix = load(file)
    expansion = expand(matrix, file=str(file))
    check(matrix, expansion, file=str(file))
    return matrix, build(matrix, expansion)


def check(matrix: Matrix, expansion: Expansion, *, file: str) -> None:
    """Look up engines, checkpoints and files by name, and read the user's own prompts. What only
    a node can know (an interpreter, a hub id) is not asked here.

    Raises:
        MatrixError: one of them does not exist, or the prompts cannot be used.
    """
    used = {str(cell.axes["engine"]) for cell in expansion.cells}
    used |= {str(cell.axes["model"]) for cell in expansion.cells}
    problems = [
        *(p for name in matrix.engines if name in used for p in _engine(matrix, name)),
        *(p for name, model in matrix.models.items() if name in used for p in _model(name, model)),
        *(p for name in matrix.engines if name in used for p in _attached(matrix, expansion, name)),
        *_expectations(matrix),
        *_categories(matrix),
        *_prompts(matrix),
    ]
    raise_problems(file, matrix.source.positions, problems)


def _engine(matrix: Matrix, name: str) -> Iterator[Problem]:
    try:
        engines.get(matrix.engines[name].kind)
    except UserError as error:
        yield Problem(("engines", name, "kind"), error.message, error.remedy)
    binary = matrix.engines[name].binary or ""
    try:
        if binary.startswith(binaries.PREFIX):
            binaries.find(binary)
    except UserError as error:
        yield Problem(("engines", name, "binary"), error.message, error.remedy)


def _attached(matrix: Matrix, expansion: Expansion, name: str) -> Iterator[Problem]:
    """An attached pair is one configuration: each axis of a launch has one value in its cells."""
    if matrix.engines[name].attach is None:
        return
    cells = [cell for cell in expansion.cells if cell.axes["engine"] == name]
    for axis in AXES:
        values = list(dict.fromkeys(axis.type.word(cell.axes[axis.name]) for cell in cells))
        if axis.name not in CLIENT_AXES and len(values) > 1:
            yield Problem(
                ("grid", axis.name),
                f"engine {name!r} is attached and runs as it runs, but has cells with "
                f"{axis.name} {', '.join(values)}",
                "exclude all but what its servers were started with, or attach another pair",
            )


def _model(name: str, model: ModelSpec) -> Iterator[Problem]:
    key: Key = ("models", name)
    if model.target is not None:
        yield from _checkpoint((*key, "target", "path"), model.target)
    for entry, checkpoint in model.targets.items():
        yield from _checkpoint((*key, "targets", entry, "path"), checkpoint)
    for entry, checkpoint in model.drafts.items():
        yield from _checkpoint((*key, "drafts", entry, "path"), checkpoint)


def _checkpoint(key: Key, checkpoint: CheckpointSpec) -> Iterator[Problem]:
    path = checkpoint.path
    if models.is_builtin(path):
        try:
            models.find(path)
        except UserError as error:
            yield Problem(key, error.message, error.remedy)
    elif Path(path).is_absolute() and not Path(path).exists():
        yield Problem(
            key,
            f"there is no file or folder {path}",
            "correct the path; the folder must be reachable from here and from the nodes",
        )


def _expectations(matrix: Matrix) -> Iterator[Problem]:
    named = matrix.expectations
    if named is not None and not Path(named).is_file():
        yield Problem(
            ("expectations",),
            f"there is no file {named}",
            "correct the path, or write the file with `matrixrun baseline accept SWEEP --out FILE`",
        )


def _categories(matrix: Matrix) -> Iterator[Problem]:
    if matrix.workload.path is not None:
        return
    for i, name in enumerate(matrix.workload.categories):
        try:
            check_categories([name])
        except UserError as error:
            message = error.message.removeprefix("workload.categories: ")
            yield Problem(("workload", "categories", i), message, error.remedy)


def _prompts(matrix: Matrix) -> Iterator[Problem]:
    """What no tokenizer is needed for; the lengths are known when there is one."""
    if matrix.workload.path is None:
        return
    try:
        check_file(matrix.workload)
    except UserError as error:
        message = error.message.removeprefix("workload.path: ")
        yield Problem(("workload", "path"), message, error.remedy)
