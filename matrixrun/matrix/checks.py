"""Checks across sections: names that must exist, keys that contradict each other."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from matrixrun.evidence.cells import AxisValue, Speculation
from matrixrun.matrix.checkpoints import target_of
from matrixrun.matrix.constraints import Constraint, ConstraintError
from matrixrun.matrix.grid import complete_include, read_grid, read_include, read_rule
from matrixrun.matrix.problems import Key, Problem, closest, did_you_mean, raise_problems
from matrixrun.matrix.schema import AttachSpec, EngineSpec, Matrix, ModelSpec

PROBES = (
    *("acceptance", "accuracy", "conversation", "equality", "pressure"),
    *("ledger", "processors", "rollback", "sampling", "surface"),
)
BASE_PROBE = "equality"
"""Every verdict rests on it, and probes that send nothing themselves read what it sends."""

ACCURACY_PROBE = "accuracy"

HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
"""A field name as RFC 9110 has it."""


def check(matrix: Matrix, *, file: str) -> None:
    """Everything that types alone do not say.

    Raises:
        MatrixError: with every problem found, in the order of the file.
    """
    problems = [
        *_engine_problems(matrix),
        *_model_problems(matrix),
        *_grid_problems(matrix),
        *_expect_problems(matrix),
        *_probe_problems(matrix),
        *_workload_problems(matrix),
        *_strategy_problems(matrix),
        *_constraint_problems(matrix),
    ]
    raise_problems(file, matrix.source.positions, problems)


def check_files(matrix: Matrix, *, file: str) -> None:
    """Whether the files and folders that the matrix reads here exist.

    Raises:
        MatrixError: naming the key and the path.
    """
    problems: list[Problem] = []
    workload = matrix.workload.path
    if workload is not None and not Path(workload).is_file():
        remedy = "write a path relative to the matrix file's folder"
        problems.append(Problem(("workload", "path"), no_file(workload), remedy))
    if matrix.accuracy is not None and not Path(matrix.accuracy.task).is_file():
        message = no_file(matrix.accuracy.task)
        remedy = "write a path relative to the matrix file's folder"
        problems.append(Problem(("accuracy", "task"), message, remedy))
    for name, engine in matrix.engines.items():
        if engine.overlay in matrix.source.written and not Path(engine.overlay).is_dir():
            remedy = "write a path relative to the matrix file's folder"
            message = f"there is no folder {engine.overlay}"
            problems.append(Problem(("engines", name, "overlay"), message, remedy))
    raise_problems(file, matrix.source.positions, problems)


def no_file(path: str) -> str:
    """What to say of a path where there is no file to read."""
    return f"{path} is a folder, not a file" if Path(path).is_dir() else f"there is no file {path}"


def _engine_problems(matrix: Matrix) -> Iterable[Problem]:
    if not matrix.engines:
        yield Problem(("engines",), "names no engine", "add `vllm: {kind: vllm}`")
    for name, engine in matrix.engines.items():
        key: Key = ("engines", name)
        if engine.attach is not None:
            yield from _attach_problems(matrix, engine, key)
            continue
        given = [way for way in ("install", "python", "image") if getattr(engine, way) is not None]
        if engine.image is not None and (engine.binary or "").startswith("builtin:"):
            message = "is built on the node, where a container does not look"
            yield Problem((*key, "binary"), message, "name the server that the image holds")
        if len(given) > 1:
            message = f"has {' and '.join(f'`{way}`' for way in given)}"
            yield Problem((*key, given[1]), message, "keep one: an engine has one environment")
        elif given and given[0] != "install":
            yield from _installed_problems(engine, key, given[0])


def _attach_problems(matrix: Matrix, engine: EngineSpec, key: Key) -> Iterable[Problem]:
    """An attached engine is somebody else's: what would shape a launch has no effect, and what it
    cannot be compared with is no control."""
    attach = engine.attach
    assert attach is not None
    for part, field in EngineSpec.model_fields.items():
        if part in ("kind", "attach") or getattr(engine, part) == field.default:
            continue
        message = "has no effect beside `attach`: nothing is launched"
        yield Problem((*key, part), message, "remove it, or remove `attach`")
    key = (*key, "attach")
    yield from _header_problems(attach, key)
    if attach.on == attach.off:
        remedy = "give the address of the server that speculates"
        yield Problem((*key, "on"), "is the same server as `off`", remedy)
    if attach.second_off in (attach.on, attach.off):
        message = "is one of the pair's own servers"
        remedy = "remove it: the off server is its own control then"
        yield Problem((*key, "second_off"), message, remedy)
    written = matrix.control if "control" in matrix.model_fields_set else None
    if attach.second_off is None and written == "between-launches":
        message = "control: between-launches needs a second server without speculation"
        remedy = "add `second_off: URL` here, or write `control: within-launch`"
        yield Problem(key, message, remedy)
    if attach.second_off is not None and written == "within-launch":
        message = "has no effect beside `control: within-launch`"
        remedy = "remove it, or write `control: between-launches`"
        yield Problem((*key, "second_off"), message, remedy)


def _header_problems(attach: AttachSpec, key: Key) -> Iterable[Problem]:
    for name in attach.headers_env:
        at = (*key, "headers_env", name)
        if not HEADER.fullmatch(name):
            message = f"{name!r} cannot be the name of a header"
            yield Problem(at, message, "write letters, digits and `-`, such as `X-Tenant`")
        elif name.lower() == "authorization" and attach.key_env is not None:
            message = "is sent already: `key_env` is the bearer key in that header"
            yield Problem(at, message, "keep one: `key_env`, or this header with its whole value")


def _installed_problems(engine: EngineSpec, key: Key, given: str) -> Iterable[Problem]:
    for part in ("no_deps", "without", "fallback_index"):
        if getattr(engine, part):
            message = f"has no effect beside `{given}`: nothing is installed there"
            yield Problem((*key, part), message, f"remove it, or remove `{given}`")


def _model_problems(matrix: Matrix) -> Iterable[Problem]:
    if not matrix.models:
        yield Problem(("models",), "names no model", "add one with a `target`")
    for name, model in matrix.models.items():
        key: Key = ("models", name)
        if model.target is not None and model.targets:
            remedy = "keep one: `target` for one checkpoint, `targets` for one a quantization"
            yield Problem((*key, "targets"), "has both `target` and `targets`", remedy)
        if model.target is None and not model.targets:
            remedy = "add `target: {path: ...}`"
            yield Problem(key, "has neither `target` nor `targets`", remedy)
        yield from _online_problems(model, key)


def _online_problems(model: ModelSpec, key: Key) -> Iterable[Problem]:
    remedy = "remove it: it belongs to an entry of `targets` other than `none`"
    places = {("target",): model.target, ("targets", "none"): model.targets.get("none")}
    places |= {("drafts", name): draft for name, draft in model.drafts.items()}
    for place, checkpoint in places.items():
        if checkpoint is not None and checkpoint.online:
            yield Problem((*key, *place, "online"), "has no meaning here", remedy)


def _grid_problems(matrix: Matrix) -> list[Problem]:
    problems: list[Problem] = []
    grid = read_grid(matrix.grid, problems)
    rules = [
        (("exclude", i), read_rule(rule, ("exclude", i), problems))
        for i, rule in enumerate(matrix.exclude)
    ]
    includes: list[tuple[Key, dict[str, AxisValue]]] = []
    for i, include in enumerate(matrix.include):
        key: Key = ("include", i)
        named = read_include(include, key, problems)
        problems.extend(_name_problems(named, key, matrix))
        if len(named) == len(include):
            cell = complete_include(named, grid, key, problems)
            includes.extend([] if cell is None else [(key, cell)])
    if not matrix.grid and not matrix.include:
        problems.append(Problem(("grid",), "the grid is empty", "add engine, model, speculation"))
    for name, values in grid.items():
        for at, value in _written(matrix.grid, name, values):
            problems.extend(_name_problems({name: value}, at, matrix, own_key=True))
    for key, rule in rules:
        problems.extend(_name_problems(rule, key, matrix))
    if not problems:
        problems.extend(_availability_problems(matrix, grid, includes))
        problems.extend(_batch_problems(matrix, grid, includes))
    return problems


def _written(
    grid: Mapping[str, Any], name: str, values: list[AxisValue]
) -> Iterable[tuple[Key, AxisValue]]:
    """Each value of an axis with the key where it stands (repeats share the first one's)."""
    written = grid.get(name)
    for value in values:
        at: Key = ("grid", name)
        if isinstance(written, list | tuple) and value in written:
            at = (*at, list(written).index(value))
        yield at, value


def _name_problems(
    axes: Mapping[str, Any], key: Key, matrix: Matrix, *, own_key: bool = False
) -> Iterable[Problem]:
    """Engines and models that an assignment names must have an entry."""
    for axis, known in (("engine", matrix.engines), ("model", matrix.models)):
        name = axes.get(axis)
        if isinstance(name, str) and name not in known:
            at = key if own_key else (*key, axis)
            remedy = did_you_mean(name, known)
            yield Problem(at, f"there is no `{name}` under `{axis}s:`", remedy)


def _availability_problems(
    matrix: Matrix,
    grid: Mapping[str, list[AxisValue]],
    includes: list[tuple[Key, dict[str, AxisValue]]],
) -> Iterable[Problem]:
    """A draft or quantization that no model of the grid has is a mistake; where only some have it,
    `expand` takes the others' cells out. An include names its model: there it is a mistake."""
    names = [str(name) for name in grid.get("model", [])]
    models = {name: matrix.models[name] for name in names}
    if models:
        for at, value in _written(matrix.grid, "quantization", grid["quantization"]):
            if not any(target_of(model, str(value)) for model in models.values()):
                yield _quantization_problem(at, str(value), models)
        for at, value in _written_speculations(matrix, grid):
            if value.draft and not any(value.draft in model.drafts for model in models.values()):
                yield _draft_problem(at, value.draft, models)
    for key, cell in includes:
        name, speculation = str(cell["model"]), cell["speculation"]
        model, quantization = matrix.models[name], str(cell["quantization"])
        assert isinstance(speculation, Speculation)
        if target_of(model, quantization) is None:
            yield _quantization_problem((*key, "quantization"), quantization, {name: model})
        if speculation.draft and speculation.draft not in model.drafts:
            yield _draft_problem((*key, "speculation"), speculation.draft, {name: model})


def _written_speculations(
    matrix: Matrix, grid: Mapping[str, list[AxisValue]]
) -> Iterable[tuple[Key, Speculation]]:
    written = matrix.grid.get("speculation")
    items = list(written) if isinstance(written, list | tuple) else [written]
    drafts = [item.get("draft") if isinstance(item, dict) else None for item in items]
    for value in grid["speculation"]:
        assert isinstance(value, Speculation)
        at: Key = ("grid", "speculation")
        if isinstance(written, list | tuple) and value.draft in drafts:
            at = (*at, drafts.index(value.draft), "draft")
        yield at, value


def _quantization_problem(key: Key, value: str, models: Mapping[str, ModelSpec]) -> Problem:
    known = {name for model in models.values() for name in model.targets}
    where = " or ".join(f"models.{name}.targets" for name in models)
    meant = closest(value, known)
    there = f"write `{meant}`" if meant else f"write one of {', '.join(sorted(known))}"
    remedy = (
        f"{f'{there}, or ' if known else ''}add `{value}: {{path: ...}}` to {where}"
        " (with `online: true` if the engine is to quantize that checkpoint itself)"
    )
    return Problem(key, f"`{value}` has no entry under {where}", remedy)


def _draft_problem(key: Key, draft: str, models: Mapping[str, ModelSpec]) -> Problem:
    known = {name for model in models.values() for name in model.drafts}
    where = " or ".join(f"models.{name}.drafts" for name in models)
    remedy = did_you_mean(draft, known) if known else f"add `{draft}: {{path: ...}}` there"
    return Problem(key, f"there is no draft `{draft}` under {where}", remedy)


def _batch_problems(
    matrix: Matrix,
    grid: Mapping[str, list[AxisValue]],
    includes: list[tuple[Key, dict[str, AxisValue]]],
) -> Iterable[Problem]:
    """A batch size above `max_num_seqs` would be served in turns: not the batch it claims to be."""
    pairs = [
        (at, str(engine), value)
        for at, value in _written(matrix.grid, "batch_size", grid["batch_size"])
        for engine in grid.get("engine", [])
    ]
    pairs += [((*key, "batch_size"), str(c["engine"]), c["batch_size"]) for key, c in includes]
    for at, engine, value in pairs:
        most = matrix.engines[engine].limits.max_num_seqs
        if most is not None and isinstance(value, int) and value > most:
            message = f"{value} is more than engines.{engine}.limits.max_num_seqs ({most})"
            yield Problem(at, message, "raise that limit, or lower the batch size")


def _expect_problems(matrix: Matrix) -> list[Problem]:
    problems: list[Problem] = []
    for i, expect in enumerate(matrix.expect):
        key: Key = ("expect", i, "when")
        rule = read_rule(expect.when, key, problems)
        problems.extend(_name_problems(rule, key, matrix))
    return problems


def _probe_problems(matrix: Matrix) -> Iterable[Problem]:
    if not matrix.probes:
        yield Problem(("probes",), "the list is empty", "add `equality`, or remove the key")
    for i, name in enumerate(matrix.probes):
        if name not in PROBES:
            yield Problem(("probes", i), f"unknown probe `{name}`", did_you_mean(name, PROBES))
    known = matrix.probes and set(matrix.probes) <= set(PROBES)
    if known and BASE_PROBE not in matrix.probes:
        message = f"`{BASE_PROBE}` is missing, on which every verdict rests"
        yield Problem(("probes",), message, f"add `{BASE_PROBE}` to the list")
    yield from _accuracy_problems(matrix)


def _accuracy_problems(matrix: Matrix) -> Iterable[Problem]:
    asked = ACCURACY_PROBE in matrix.probes
    if asked and matrix.accuracy is None:
        remedy = "add a section `accuracy: {task: TASK.yaml}`, or take the probe out"
        key: Key = ("probes", matrix.probes.index(ACCURACY_PROBE))
        yield Problem(key, "the probe `accuracy` has no task", remedy)
    if matrix.accuracy is None:
        return
    if not asked:
        remedy = f"add `{ACCURACY_PROBE}` to `probes:`, or remove the section"
        yield Problem(("accuracy",), "has no effect: the probe is not asked for", remedy)


def _workload_problems(matrix: Matrix) -> Iterable[Problem]:
    workload = matrix.workload
    shortest, longest = workload.prompt_tokens
    if shortest > longest:
        message = f"the shortest prompt ({shortest}) is longer than the longest ({longest})"
        yield Problem(("workload", "prompt_tokens"), message, "write [shortest, longest]")
    if not workload.categories:
        yield Problem(("workload", "categories"), "the list is empty", "remove the key, or add one")
    if workload.path is not None and "categories" in workload.model_fields_set:
        remedy = "remove one: the prompts come from the file or from the categories"
        yield Problem(("workload", "categories"), "has no effect beside `path`", remedy)
    needed = workload.max_tokens + (longest if workload.path is None else 1)
    for name, engine in matrix.engines.items():
        most = engine.limits.max_model_len
        if most is not None and most < needed:
            message = f"{most} tokens cannot hold prompt and output of the workload ({needed})"
            remedy = "raise it, or lower workload.max_tokens or workload.prompt_tokens"
            yield Problem(("engines", name, "limits", "max_model_len"), message, remedy)


def _strategy_problems(matrix: Matrix) -> Iterable[Problem]:
    strategy = matrix.strategy
    if strategy.kind == "full" and "strength" in strategy.model_fields_set:
        message = "has no effect beside `kind: full`: every allowed cell is run"
        yield Problem(("strategy", "strength"), message, "remove it, or write `kind: covering`")


def _constraint_problems(matrix: Matrix) -> Iterable[Problem]:
    for i, text in enumerate(matrix.constraints):
        try:
            Constraint(text)
        except ConstraintError as error:
            yield Problem(("constraints", i), error.message, error.remedy)
