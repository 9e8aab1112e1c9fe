"""From a cell and the matrix to the configurations of its two arms."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from matrixrun import engines
from matrixrun.evidence.cells import Cell, Speculation
from matrixrun.evidence.errors import UserError
from matrixrun.evidence.launches import Arm, ArmConfig, Checkpoint, Endpoint, Gang, Limits, Recipe
from matrixrun.evidence.replies import Form
from matrixrun.matrix import AXES, CLIENT_AXES, Matrix, target_of
from matrixrun.matrix.schema import AttachSpec, CheckpointSpec, EngineSpec, ModelSpec, Resources

# Beyond prompt and answer: the token that a scoring request must generate, and the rows that
# speculation reserves near the end (an engine stops speculating for a whole batch there).
MODEL_LENGTH_HEADROOM = 64
ATTACHED_CPUS = 0.1  # cores for sending requests to a server that runs elsewhere
# A conversation holds so many answers, and a user's turn of up to so many tokens between two.
CONVERSATION_TURNS = 4
USER_TURN_TOKENS = 32
# The most that a reply to a program without tools is given (probe `surface`).
REPLY_TOKENS = 32
# What a chat template makes of a message with a tool, and its answer: known to the server alone, so
# with room to spare.
CHAT_TOKENS = 1024

TOPOLOGY_AXES = tuple(
    axis.name
    for axis in AXES
    if axis.name not in CLIENT_AXES and axis.name not in ("engine", "model", "speculation")
)
"""Axes that go into ArmConfig under their own names."""
PARALLEL_AXES = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")


def batch_size(cell: Cell) -> int:
    """Return the number of requests in flight in this cell."""
    return int(cell.axes["batch_size"])  # type: ignore[arg-type]


def speculation_of(cell: Cell) -> Speculation:
    """Return the cell's speculation."""
    value = cell.axes["speculation"]
    assert isinstance(value, Speculation)
    return value


def recipe_of(spec: EngineSpec) -> Recipe:
    """Return how the engine's environment is made: the engine's own recipe where the matrix names
    no environment, with single fields replaced where it names those."""
    if spec.install is None and spec.python is None and spec.image is None:
        base = engines.get(spec.kind).default_recipe
        changes: dict[str, Any] = {
            name: getattr(spec, name)
            for name in ("no_deps", "without", "overlay", "fallback_index", "binary")
            if getattr(spec, name)
        }
        return msgspec.structs.replace(base, **changes)
    return Recipe(
        install=spec.install or (),
        no_deps=spec.no_deps,
        without=spec.without,
        overlay=spec.overlay,
        fallback_index=spec.fallback_index,
        python=spec.python,
        image=spec.image,
        binary=spec.binary,
    )


def limits_by_engine_and_model(
    matrix: Matrix, cells: Iterable[Cell]
) -> dict[tuple[str, str], Limits]:
    """Return what is pinned in every launch of an engine with a model.

    `max_num_seqs` defaults to the largest batch size of all their cells, so that the batch size
    of a cell never changes a launch.

    Raises:
        UserError: a limit of the matrix is too small for the grid or the workload.
    """
    largest: dict[tuple[str, str], Cell] = {}
    for cell in cells:
        key = (str(cell.axes["engine"]), str(cell.axes["model"]))
        largest[key] = max(largest.get(key, cell), cell, key=batch_size)
    return {key: _limits(matrix, key[0], cell) for key, cell in largest.items()}


def replied_forms(matrix: Matrix, config: ArmConfig) -> tuple[Form, ...]:
    """Return the forms of replies that the sweep asks of an arm: none without the probe `surface`,
    and none where texts, which are what it judges, may not be stored."""
    if "surface" not in matrix.probes or not matrix.store_text:
        return ()
    return engines.get(config.kind).forms(config)


def _forms(matrix: Matrix, cell: Cell) -> set[Form]:
    if "surface" not in matrix.probes:
        return set()
    recipe, free = recipe_of(matrix.engines[str(cell.axes["engine"])]), Limits()
    arms = (arm_config(matrix, cell, arm, recipe=recipe, limits=free) for arm in Arm)
    return {form for config in arms for form in replied_forms(matrix, config)}


def _limits(matrix: Matrix, engine: str, cell: Cell) -> Limits:
    largest = batch_size(cell)
    spec = matrix.engines[engine].limits
    tokens = matrix.workload.prompt_tokens[1] + matrix.workload.max_tokens
    if spec.max_num_seqs is not None and spec.max_num_seqs < largest:
        raise UserError(
            f"engines.{engine}.limits.max_num_seqs: {spec.max_num_seqs} is less than "
            f"batch_size {largest} in the grid",
            remedy=f"write `max_num_seqs: {largest}` or leave the larger batch sizes out",
        )
    # One more: a scoring request generates a token behind prompt and answer.
    if spec.max_model_len is not None and spec.max_model_len <= tokens:
        raise UserError(
            f"engines.{engine}.limits.max_model_len: {spec.max_model_len} does not hold the "
            f"workload's prompts and answers ({tokens} tokens) and one token more",
            remedy=f"write `max_model_len: {tokens + MODEL_LENGTH_HEADROOM}`, or lower "
            "`workload.max_tokens` or `workload.prompt_tokens`",
        )
    replies = _reply_length(matrix, engine, _forms(matrix, cell))
    if "conversation" in matrix.probes:
        turn = matrix.workload.max_tokens + USER_TURN_TOKENS
        tokens += (CONVERSATION_TURNS - 1) * turn
    return Limits(
        max_model_len=spec.max_model_len or max(tokens, replies) + MODEL_LENGTH_HEADROOM,
        max_num_seqs=spec.max_num_seqs or largest,
        max_num_batched_tokens=spec.max_num_batched_tokens,
        block_size=spec.block_size,
        kv_cache_bytes=spec.kv_cache_bytes,
    )


def _reply_length(matrix: Matrix, engine: str, forms: set[Form]) -> int:
    """Return how many tokens the longest reply takes with its prompt, at most."""
    if not forms:
        return 0
    completion = matrix.workload.prompt_tokens[1] + REPLY_TOKENS
    given = matrix.engines[engine].limits.max_model_len
    if given is not None and given < completion and Form.COMPLETION in forms:
        raise UserError(
            f"engines.{engine}.limits.max_model_len: {given} does not hold the workload's prompts "
            f"and the {REPLY_TOKENS} tokens of the probe `surface` ({completion} tokens)",
            remedy=f"write `max_model_len: {completion}` or more, lower `workload.prompt_tokens`, "
            "or take `surface` out of `probes`",
        )
    return completion if forms == {Form.COMPLETION} else max(completion, CHAT_TOKENS)


def arm_config(
    matrix: Matrix, cell: Cell, arm: Arm, *, recipe: Recipe, limits: Limits
) -> ArmConfig:
    """Return the configuration of one arm of `cell`; the cell's client axes do not enter it.

    Raises:
        UserError: the model has no checkpoint for it.
    """
    engine, model = str(cell.axes["engine"]), str(cell.axes["model"])
    spec = matrix.engines[engine]
    quantization = str(cell.axes["quantization"])
    target, quantized = _target(model, matrix.models[model], quantization)
    speculation = speculation_of(cell) if arm is Arm.ON else None
    overrides = spec.on if arm is Arm.ON else spec.off
    topology: dict[str, Any] = {name: cell.axes[name] for name in TOPOLOGY_AXES}
    return ArmConfig(
        engine=engine,
        kind=spec.kind,
        arm=arm,
        recipe=recipe,
        model=model,
        target=target,
        draft=_draft(model, matrix.models[model], speculation),
        quantized_checkpoint=quantized,
        speculation=speculation,
        limits=limits,
        accelerator=None if spec.attach is not None else matrix.resources.accelerator,
        nodes=1 if spec.attach is not None else _nodes(topology, matrix.resources),
        args=spec.args + overrides.args,
        env={**spec.env, **overrides.env},
        endpoint=None if spec.attach is None else _endpoint(spec.attach, arm),
        **topology,
    )


def _endpoint(attach: AttachSpec, arm: Arm) -> Endpoint:
    return Endpoint(
        url=attach.on if arm is Arm.ON else attach.off,
        key_env=attach.key_env,
        headers_env=attach.headers_env,
        model=attach.model,
    )


def at_second_off(config: ArmConfig, attach: AttachSpec) -> ArmConfig:
    """Return the off arm of an attached engine as launch B has it, on the second off server."""
    assert config.endpoint is not None
    assert attach.second_off is not None
    endpoint = msgspec.structs.replace(config.endpoint, url=attach.second_off)
    return msgspec.structs.replace(config, endpoint=endpoint)


def as_declared(config: ArmConfig) -> ArmConfig:
    """Return `config` less what an attached server was started with by somebody else: it cannot be
    refused any more, only what makes the question meaningless can."""
    return msgspec.structs.replace(
        config,
        quantization="none",
        tensor_parallel_size=1,
        pipeline_parallel_size=1,
        data_parallel_size=1,
        prefix_caching=None,
        dtype=None,
        kv_cache_dtype=None,
        limits=Limits(),
    )


def _nodes(topology: Mapping[str, Any], resources: Resources) -> int:
    """Return the nodes of a launch: one where its ranks fit, else the fewest that share them
    equally."""
    ranks = math.prod(topology[name] for name in PARALLEL_AXES)
    most = resources.ranks_per_node or ranks
    return next(n for n in range(1, ranks + 1) if ranks % n == 0 and ranks // n <= most)


def gang_of(config: ArmConfig, resources: Resources) -> Gang:
    """Return what a launch of `config` holds: one accelerator a rank, or cores without one; for a
    server that runs elsewhere next to nothing."""
    if config.endpoint is not None:
        return Gang(accelerators=0, cpus=ATTACHED_CPUS)
    ranks = math.prod(getattr(config, name) for name in PARALLEL_AXES)
    return Gang(
        nodes=config.nodes,
        accelerators=ranks if resources.accelerator is not None else 0,
        accelerator=resources.accelerator,
        cpus=resources.cpus_per_rank * ranks,
        memory_bytes=int(resources.memory_gib_per_rank * ranks * 2**30),
    )


def _target(name: str, model: ModelSpec, quantization: str) -> tuple[Checkpoint, bool]:
    """Return the target checkpoint, and whether its weights are quantized already."""
    found = target_of(model, quantization)
    if found is None:
        raise UserError(
            f"models.{name}.targets: there is no checkpoint for quantization {quantization!r}",
            remedy=f"add `{quantization}:` there, or a `target:` that the engine quantizes itself",
        )
    return _checkpoint(found.checkpoint), found.quantized


def _draft(name: str, model: ModelSpec, speculation: Speculation | None) -> Checkpoint | None:
    if speculation is None or speculation.draft is None:
        return None
    if speculation.draft not in model.drafts:
        raise UserError(
            f"models.{name}.drafts: there is no draft {speculation.draft!r} "
            f"(speculation {speculation.label})",
            remedy=f"one of: {', '.join(sorted(model.drafts)) or 'none is listed'}",
        )
    return _checkpoint(model.drafts[speculation.draft])


def _checkpoint(spec: CheckpointSpec) -> Checkpoint:
    return Checkpoint(path=spec.path, revision=spec.revision)
