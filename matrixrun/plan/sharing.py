"""From cells to launches: what is started the same way is started once.

Two arms share a launch when role, command, recipe, checkpoints and gang are the same. All methods,
draft lengths and batch sizes of a target configuration therefore meet the same off launches.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from dataclasses import dataclass, field

import msgspec

from matrixrun import engines
from matrixrun.evidence.cells import Cell
from matrixrun.evidence.launches import Arm, ArmConfig, Command, Gang, Role
from matrixrun.matrix import AXES, CLIENT_AXES, Matrix, fingerprint
from matrixrun.matrix.cell_identity import portable
from matrixrun.matrix.fingerprint import canonical
from matrixrun.plan.arms import (
    arm_config,
    as_declared,
    at_second_off,
    batch_size,
    gang_of,
    limits_by_engine_and_model,
    recipe_of,
    speculation_of,
)
from matrixrun.plan.secrets import without_secrets
from matrixrun.plan.types import PlannedPair

LAUNCH_AXES = tuple(axis for axis in AXES if axis.name not in CLIENT_AXES)
TARGET_AXES = tuple(axis for axis in LAUNCH_AXES if axis.name != "speculation")


EXTRAS = {Role.FORCED: "rollback", Role.TRACED: "ledger"}
"""The probes that need an extra launch, with planned drafts and with a ledger."""

# Launch ids are folder names: room for role and suffix is left under the usual 255.
MAX_LABEL = 150


@dataclass
class Server:
    """A launch in the making: `fingerprints` of its settings by role, `cells` it serves."""

    role: Role
    config: ArmConfig
    command: Command
    gang: Gang
    label: str
    fingerprint: str
    follower: Command | None = None
    cells: list[str] = field(default_factory=list)
    batch_sizes: set[int] = field(default_factory=set)

    def serve(self, cell: Cell) -> None:
        """Note that `cell` is among those served."""
        self.cells.append(cell.id)
        self.batch_sizes.add(batch_size(cell))


@dataclass(frozen=True)
class Shared:
    """Servers by launch id, the pairs that refer to them, and why cells have none."""

    servers: dict[str, Server]
    pairs: tuple[PlannedPair, ...]
    refused: dict[str, str]


def share(matrix: Matrix, cells: Iterable[Cell]) -> Shared:
    """Return the servers that `cells` need; neither they nor their ids depend on the order."""
    cells = tuple(cells)
    arms = _Arms(matrix, cells)
    servers: dict[str, Server] = {}
    refused: dict[str, str] = {}
    wanted: list[tuple[Cell, dict[Role, str]]] = []
    for cell in cells:
        found = {arm: arms.get(cell, arm) for arm in Arm}
        reason = next((arm.refusal for arm in found.values() if arm.refusal is not None), None)
        if reason is not None:
            refused[cell.id] = reason
            continue
        within = matrix.control_of(str(cell.axes["engine"])) == "within-launch"
        keys = {}
        for role in (Role.ON, Role.A) if within else (Role.ON, Role.A, Role.B):
            server = _server(servers, role, arms.serving(cell, role))
            server.serve(cell)
            keys[role] = server.fingerprint
        for role, probe in EXTRAS.items():
            extra = arms.extra(cell, role) if probe in matrix.probes else None
            if extra is not None:
                server = _server(servers, role, extra)
                server.serve(cell)
                keys[role] = server.fingerprint
        wanted.append((cell, keys))
    ids = _ids(servers.values())
    return Shared(
        servers={ids[key]: server for key, server in servers.items()},
        pairs=tuple(
            _pair(cell, {role: ids[key] for role, key in keys.items()}) for cell, keys in wanted
        ),
        refused=refused,
    )


def _pair(cell: Cell, ids: dict[Role, str]) -> PlannedPair:
    return PlannedPair(
        cell=cell.id,
        on=ids[Role.ON],
        off=ids[Role.A],
        null=ids.get(Role.B),
        forced=ids.get(Role.FORCED),
        traced=ids.get(Role.TRACED),
    )


@dataclass(frozen=True)
class _ArmOf:
    """An arm as far as it is the same for every role."""

    config: ArmConfig
    refusal: str | None
    command: Command | None
    follower: Command | None
    gang: Gang
    label: str
    fingerprints: dict[Role, str]


class _Arms:
    """The arms of cells; an engine is asked once for each different one."""

    def __init__(self, matrix: Matrix, cells: tuple[Cell, ...]) -> None:
        self._matrix = matrix
        self._limits = limits_by_engine_and_model(matrix, cells)
        self._recipes = {name: recipe_of(spec) for name, spec in matrix.engines.items()}
        # Paths count as the file writes them, so that another folder is no other launch.
        self._portable = functools.cache(lambda value: portable(msgspec.to_builtins(value), matrix))
        self._known: dict[tuple[object, ...], _ArmOf] = {}

    def get(self, cell: Cell, arm: Arm) -> _ArmOf:
        """Return an arm of `cell`."""
        target = tuple(cell.axes[axis.name] for axis in TARGET_AXES)
        key = (arm, *target) if arm is Arm.OFF else (arm, *target, _speculation_key(cell))
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._make(cell, arm)
        return found

    def serving(self, cell: Cell, role: Role) -> _ArmOf:
        """Return the arm of `cell` in a role; B of an attached engine is a server of its own."""
        attach = self._matrix.engines[str(cell.axes["engine"])].attach
        found = self.get(cell, role.arm)
        if attach is None or role is not Role.B:
            return found
        return self._arm_of(at_second_off(found.config, attach), found.label)

    def _make(self, cell: Cell, arm: Arm) -> _ArmOf:
        name, model = str(cell.axes["engine"]), str(cell.axes["model"])
        config = arm_config(
            self._matrix,
            cell,
            arm,
            recipe=self._recipes[name],
            limits=self._limits[name, model],
        )
        return self._arm_of(config, _label(cell, arm))

    def extra(self, cell: Cell, role: Role) -> _ArmOf | None:
        """Return the on arm of `cell` with planned drafts, or with a ledger; None where its engine
        has none."""
        config = self.get(cell, Arm.ON).config
        if config.endpoint is not None:
            return None  # what runs already cannot be given a drafter or a scheduler
        engine = engines.get(config.kind)
        changed = engine.forced(config) if role is Role.FORCED else engine.traced(config)
        if changed is None or changed.speculation is None:
            return None
        key = (role, fingerprint(changed))
        if key not in self._known:
            label = _label(cell, Arm.ON)
            if role is Role.FORCED:  # shared by all methods of a draft length
                label = f"{_label(cell, Arm.OFF)}.k{changed.speculation.num_speculative_tokens}"
            self._known[key] = self._arm_of(changed, label)
        found = self._known[key]
        return None if found.refusal is not None else found

    def _arm_of(self, config: ArmConfig, label: str) -> _ArmOf:
        gang = gang_of(config, self._matrix.resources)
        refusal, command = _asked(config)
        follower = None
        if config.nodes > 1 and refusal is None:
            follower = engines.get(config.kind).follower_command(config)
        settings = {
            "kind": config.kind,
            # A new token or key makes no new launch.
            "command": None if command is None else without_secrets(command),
            "recipe": self._portable(config.recipe),
            "target": self._portable(config.target),
            "draft": self._portable(config.draft),
            "gang": gang,
        }
        roles = [role for role in Role if role.arm is config.arm]
        return _ArmOf(
            config=config,
            refusal=refusal,
            command=command,
            follower=follower,
            gang=gang,
            label=label,
            fingerprints={role: fingerprint({"role": role, **settings}) for role in roles},
        )


def _asked(config: ArmConfig) -> tuple[str | None, Command | None]:
    """Return why the engine will not launch an arm, or else its command. An attached server's is
    where it is."""
    engine = engines.get(config.kind)
    if config.endpoint is not None:
        refusal = engine.refuse(as_declared(config))
        where = ("attach", config.endpoint.url, *filter(None, [config.endpoint.model]))
        return refusal, None if refusal is not None else Command(argv=where, env={})
    refusal = engine.refuse(config)
    return refusal, None if refusal is not None else engine.command(config)


def _speculation_key(cell: Cell) -> tuple[object, ...]:
    value = speculation_of(cell)
    options = canonical(value.options) if value.options else ""
    return value.method, value.num_speculative_tokens, value.draft, options


def _label(cell: Cell, arm: Arm) -> str:
    """Return the axes of a launch as a person types them, such as `vllm.tiny-dense.tp2`."""
    axes = LAUNCH_AXES if arm is Arm.ON else TARGET_AXES
    shown = [(axis, cell.axes[axis.name]) for axis in axes if axis.shown(cell.axes[axis.name])]
    text = ".".join(axis.fragment.format(axis.type.word(value)) for axis, value in shown)
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text)[:MAX_LABEL]


def _server(servers: dict[str, Server], role: Role, arm: _ArmOf) -> Server:
    """Return the server of this fingerprint; its name is the least of those that share it."""
    key = arm.fingerprints[role]
    server = servers.get(key)
    assert arm.command is not None
    if server is None:
        server = Server(
            role, arm.config, arm.command, arm.gang, arm.label, key, follower=arm.follower
        )
        servers[key] = server
    elif arm.label < server.label:
        server.label, server.config = arm.label, arm.config
    return server


def _ids(servers: Iterable[Server]) -> dict[str, str]:
    """Return a launch id for each fingerprint: role and label, and more where two would agree."""
    by_id: dict[str, list[tuple[str, str]]] = {}
    for server in servers:
        name = f"{server.role}.{server.label}"
        # Ids are folder names, and some file systems do not tell upper from lower case.
        by_id.setdefault(name.casefold(), []).append((name, server.fingerprint))
    return {
        key: name if len(same) == 1 else f"{name}-{key[:8]}"
        for same in by_id.values()
        for name, key in same
    }
