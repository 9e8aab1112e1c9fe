"""What a matrix names that is not there, said with file, line and key before anything starts."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from matrixrun import engines, models
from matrixrun.engines import binaries
from matrixrun.evidence.errors import MatrixError, UserError
from matrixrun.matrix import AXES, CLIENT_AXES, Expansion, Matrix, expand, load
from matrixrun.matrix.checks import no_file
from matrixrun.matrix.problems import Key, Problem, error_at, key_text, raise_problems
from matrixrun.matrix.schema import CheckpointSpec, ModelSpec
from matrixrun.plan.build import build
from matrixrun.plan.methods import missing_drafts
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
    matrix, notes = _with_own_prompts(matrix)
    notes += [f"{key_text(p.key)}: {p.message}" for p in absent_programs(matrix, expansion)]
    try:
        plan = build(matrix, expansion)
    except MatrixError:
        raise
    except UserError as error:
        raise _located(matrix, error, str(file)) from error
    return matrix, msgspec.structs.replace(plan, notes=(*plan.notes, *notes))


def _located(matrix: Matrix, error: UserError, file: str) -> UserError:
    """The error of an engine's or a model's entry, with the place of that entry in the file."""
    for section, entries in (("engines", matrix.engines), ("models", matrix.models)):
        for name in sorted(entries, key=len, reverse=True):
            found = re.match(
                rf"{section}\.{re.escape(name)}(?:: |\.)(?:([a-z_.]+): )?", error.message
            )
            if found is None:
                continue
            parts = found[1].split(".") if found[1] else []
            spec = matrix.engines[name] if section == "engines" else None
            if spec is not None and parts and not getattr(spec, parts[0], True):
                arms = [arm for arm in ("on", "off") if getattr(getattr(spec, arm), parts[0], ())]
                parts = [*arms[:1], *parts]
            key = (section, name, *parts)
            words = error.message[found.end() :]
            return error_at(file, matrix.source.positions, key, words, error.remedy)
    return error


def _with_own_prompts(matrix: Matrix) -> tuple[Matrix, list[str]]:
    """The matrix with the number of prompts that its own file has, where it does not say how many;
    and what of the file is not used."""
    spec = matrix.workload
    if spec.path is None:
        return matrix, []
    survey = check_file(spec)
    notes = []
    if survey.different > survey.used:
        least = "at least " if survey.trouble else ""
        notes.append(
            f"workload.path: the first {survey.used} of {least}{survey.different} different "
            "prompts are used."
        )
    if survey.trouble is not None:
        message = survey.trouble.message.removeprefix("workload.path: ")
        notes.append(f"workload.path: behind the prompts that are used: {message}")
    if survey.used != spec.prompts:
        workload = spec.model_copy(update={"prompts": survey.used})
        matrix = matrix.model_copy(update={"workload": workload}).located(matrix.source)
    return matrix, notes


def absent_programs(matrix: Matrix, expansion: Expansion) -> list[Problem]:
    """Interpreters and servers that engines name and this machine does not have. A cluster's nodes
    may have them, so it is a mistake only where launches run here."""
    used = {str(cell.axes["engine"]) for cell in expansion.cells}
    problems = []
    for name, engine in matrix.engines.items():
        if name not in used or engine.image is not None:
            continue
        for key, program in (("python", engine.python), ("binary", engine.binary)):
            if program is None or program.startswith(binaries.PREFIX) or shutil.which(program):
                continue
            there = "cannot be executed" if Path(program).exists() else "is not there"
            remedy = "correct the path, or run where it lies"
            message = f"{program} {there} on this machine"
            problems.append(Problem(("engines", name, key), message, remedy))
    return problems


def require_programs(matrix: Matrix, plan: Plan, *, file: str) -> None:
    """Refuse to start launches on this machine with a program that it does not have.

    Raises:
        MatrixError: naming the engine's key and the path.
    """
    found = absent_programs(matrix, Expansion(cells=plan.cells, excluded=()))
    raise_problems(file, matrix.source.positions, found)


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
        *missing_drafts(matrix, expansion),
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
            no_file(named),
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
