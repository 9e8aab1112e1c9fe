"""Launches: what is started, and what became of it."""

from __future__ import annotations

from enum import StrEnum
from typing import Any

import msgspec

from matrixrun.evidence.cells import Speculation


class Arm(StrEnum):
    """One engine configuration of a pair."""

    OFF = "off"
    ON = "on"


class Role(StrEnum):
    """What a launch is for: `on` speculates, `A` (off) scores, `B` (off) is the null arm; `forced`
    is an extra launch of the on arm with planned drafts, `traced` one whose scheduler keeps a
    ledger; neither ever stands in for it."""

    ON = "on"
    FORCED = "forced"
    TRACED = "traced"
    A = "A"
    B = "B"

    @property
    def arm(self) -> Arm:
        return Arm.OFF if self in (Role.A, Role.B) else Arm.ON

    @property
    def extra(self) -> bool:
        """Whether the engine is changed for it, so that it answers one probe only."""
        return self in (Role.FORCED, Role.TRACED)


class Checkpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A model by folder, hub id (with revision) or `builtin:` name."""

    path: str
    revision: str | None = None

    @property
    def hub_revision(self) -> str | None:
        """The revision to ask a hub for; None for what lies on disk or is built here."""
        return None if self.path.startswith(("builtin:", "/", ".", "~")) else self.revision


class Recipe(msgspec.Struct, frozen=True, kw_only=True):
    """How an engine's environment is made.

    Exactly one of three: `python` (an interpreter that exists), `image` (a container), or a
    virtual environment from `install` / `no_deps` (requirements), minus `without` (distributions
    removed afterwards). `overlay` is a folder put first on the engine's PYTHONPATH;
    `fallback_index` is a package index tried only when the user's own pip configuration fails.
    `binary` is the server's own executable, for an engine that is no Python program: a path, or a
    name to be found in the environment or on PATH.
    """

    install: tuple[str, ...] = ()
    no_deps: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    overlay: str | None = None
    fallback_index: str | None = None
    python: str | None = None
    image: str | None = None
    binary: str | None = None


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """A server that runs already and that nobody here starts or stops.

    `key_env` names the environment variable that holds its key, `headers_env` those that hold
    further headers: values are read where requests are sent, and written nowhere. `model` is the
    name under which it serves the target; None: the only one that it lists.
    """

    url: str
    key_env: str | None = None
    headers_env: dict[str, str] = {}
    model: str | None = None


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What is pinned equal in both arms, because speculation changes the engine's own defaults.

    Tokens, requests and bytes; None leaves the engine's default. `max_num_seqs` is the most
    requests running at once.
    """

    max_model_len: int | None = None
    max_num_seqs: int | None = None
    max_num_batched_tokens: int | None = None
    block_size: int | None = None
    kv_cache_bytes: int | None = None


class ArmConfig(msgspec.Struct, frozen=True, kw_only=True):
    """All that an engine needs to know to start one arm; the input of its pure half.

    `speculation` is None in the off arm, `draft` is the checkpoint that `speculation.draft` names.
    `args` and `env` are the user's own (engine-wide ones first, then this arm's). `accelerator` is
    the type a rank runs on; None runs the engine on CPU. `nodes` is how many it spans. With an
    `endpoint` nothing is started: the other fields are then what the user says of the server that
    runs there.
    """

    engine: str
    kind: str
    arm: Arm
    recipe: Recipe
    model: str
    target: Checkpoint
    draft: Checkpoint | None = None
    quantization: str = "none"
    quantized_checkpoint: bool = False
    tensor_parallel_size: int = 1
    pipeline_parallel_size: int = 1
    data_parallel_size: int = 1
    prefix_caching: bool | None = None
    dtype: str | None = None
    kv_cache_dtype: str | None = None
    speculation: Speculation | None = None
    limits: Limits = Limits()
    accelerator: str | None = None
    nodes: int = 1
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    endpoint: Endpoint | None = None


class Command(msgspec.Struct, frozen=True, kw_only=True):
    """A command line as data. `$PYTHON`, `$BINARY`, `$HOST`, `$PORT`, `$TARGET` and `$DRAFT` in
    argv and env are filled in where the process starts, and so is `$LEDGER`, a file beside its log;
    secrets travel in the environment only.

    Of a launch over nodes also `$HEAD` and `$HEAD_PORT`, where its process groups find each other,
    `$NODE_RANK` (0 on the head) and `$NODE_IP`, this node's own address."""

    argv: tuple[str, ...]
    env: dict[str, str]


class Gang(msgspec.Struct, frozen=True, kw_only=True):
    """What a launch holds at once: `accelerators` (0 on CPU) of `accelerator` type, `cpus` cores,
    `memory_bytes` (0: not reserved), over `nodes` nodes."""

    accelerators: int
    accelerator: str | None = None
    cpus: float = 1.0
    memory_bytes: int = 0
    nodes: int = 1


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """One server to start. `cells` are the ids of the cells it serves; `seconds` is an estimate.
    `follower` starts the process group of each further node of its gang."""

    id: str
    role: Role
    config: ArmConfig
    command: Command
    gang: Gang
    cells: tuple[str, ...]
    fingerprint: str
    seconds: float
    follower: Command | None = None


class LaunchEnd(StrEnum):
    """How a launch ended, as far as its cells are concerned; `away`: an attached endpoint that does
    not answer as it must."""

    SERVED = "served"
    REFUSED = "refused"
    DIED = "died"
    HUNG = "hung"
    UNBUILT = "unbuilt"
    LOST = "lost"
    AWAY = "away"
    STOPPED = "stopped"


class LaunchOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What became of a launch, with all that a reader needs to start it again by hand.

    `message` is the engine's own words where it failed; `facts` what the engine reported of itself
    (versions, KV blocks, scheduler and runner, block size); `hardware` accelerator name, count,
    driver and node; `ready_seconds` from spawn to first healthy answer, `seconds` from holding the
    gang to letting go of it, all attempts together.
    """

    launch: str
    fingerprint: str
    end: LaunchEnd
    message: str = ""
    log_tail: str = ""
    log_path: str | None = None
    argv: tuple[str, ...] = ()
    env: dict[str, str] = {}
    facts: dict[str, Any] = {}
    hardware: dict[str, Any] = {}
    checkpoints: dict[str, str] = {}
    ready_seconds: float | None = None
    seconds: float | None = None
    counters_before: dict[str, float] = {}
    counters_after: dict[str, float] = {}
    attempts: int = 1
