"""The matrix file's sections as types. Unknown keys are refused; `load` adds positions."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from matrixrun.evidence.cells import AxisValue

Scalar = str | int | float | bool | None


class Section(BaseModel):
    """A section of the matrix file: frozen, and strict about keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ArmOverrides(Section):
    """What one arm of an engine gets besides the rest: any flag and any variable."""

    args: tuple[str, ...] = ()
    env: dict[str, str] = {}


class LimitsSpec(Section):
    """Pinned equal in both arms, because speculation changes the engine's own defaults."""

    max_model_len: Annotated[int, Field(ge=16)] | None = None
    max_num_seqs: Annotated[int, Field(ge=1)] | None = None
    max_num_batched_tokens: Annotated[int, Field(ge=1)] | None = None
    block_size: Annotated[int, Field(ge=1)] | None = None
    kv_cache_bytes: Annotated[int, Field(ge=1)] | None = None


class EngineSpec(Section):
    """An engine and how its environment is made: `install` (the default is the engine's own
    recipe), or `python`, or `image`."""

    kind: str
    install: tuple[str, ...] | None = None
    no_deps: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    overlay: str | None = None
    fallback_index: str | None = None
    python: str | None = None
    image: str | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    off: ArmOverrides = ArmOverrides()
    on: ArmOverrides = ArmOverrides()
    limits: LimitsSpec = LimitsSpec()


class CheckpointSpec(Section):
    """A checkpoint: a folder, a hub id with its revision, or a `builtin:` name."""

    path: str
    revision: str | None = None


class ModelSpec(Section):
    """A target (or one checkpoint a quantization value) and the drafts that go with it."""

    target: CheckpointSpec | None = None
    targets: dict[str, CheckpointSpec] = {}
    drafts: dict[str, CheckpointSpec] = {}


class WorkloadSpec(Section):
    """What is sent: `prompts` prompts of at most `max_tokens` output tokens each.

    `categories` names workloads to draw from in equal parts; `path` is the user's own JSONL
    (`{"prompt": ...}` or `{"token_ids": [...]}` a line) instead. `prompt_tokens` is the range of
    prompt lengths in tokens."""

    prompts: Annotated[int, Field(ge=1)] = 300
    max_tokens: Annotated[int, Field(ge=1)] = 256
    categories: tuple[str, ...] = ("decided", "natural")
    prompt_tokens: tuple[int, int] = (16, 128)
    path: str | None = None
    chat: bool | None = None
    ignore_eos: bool = False


class Detect(Section):
    """The smallest share of faulty requests the gate must see, and with which confidence."""

    request_fault_rate: Annotated[float, Field(gt=0, lt=1)] = 0.01
    confidence: Annotated[float, Field(gt=0, lt=1)] = 0.95


class Expect(Section):
    """A verdict that is expected where `when` matches, with the reason why."""

    when: dict[str, Any]
    verdict: Literal["FAIL", "INCONCLUSIVE", "INACTIVE", "REFUSED", "ERROR"]
    reason: str
    link: str | None = None


class Coverage(Section):
    """What must have happened for a PASS: at least so many rejections at each draft position."""

    rejections_per_position: Annotated[int, Field(ge=0)] = 1


class Timeouts(Section):
    """Seconds: until an engine is healthy, for one request, for building an environment."""

    ready: Annotated[float, Field(gt=0)] = 900.0
    request: Annotated[float, Field(gt=0)] = 300.0
    build: Annotated[float, Field(gt=0)] = 3600.0


class Resources(Section):
    """What a launch reserves. Without `accelerator`, launches run on CPU and reserve
    `cpus_per_rank` cores for each rank; with it, one accelerator a rank."""

    accelerator: str | None = None
    cpus_per_rank: Annotated[float, Field(gt=0)] = 1.0
    memory_gib_per_rank: Annotated[float, Field(ge=0)] = 0.0


class Matrix(Section):
    """A whole matrix file."""

    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", max_length=80)]
    description: str = ""
    engines: dict[str, EngineSpec]
    models: dict[str, ModelSpec]
    grid: dict[str, Any]
    exclude: tuple[dict[str, Any], ...] = ()
    include: tuple[dict[str, Any], ...] = ()
    constraints: tuple[str, ...] = ()
    probes: tuple[str, ...] = ("equality", "acceptance")
    workload: WorkloadSpec = WorkloadSpec()
    detect: Detect = Detect()
    control: Literal["between-launches", "within-launch"] = "between-launches"
    equality: Literal["explained", "strict"] = "explained"
    expectations: str | None = None
    expect: tuple[Expect, ...] = ()
    coverage: Coverage = Coverage()
    timeouts: Timeouts = Timeouts()
    resources: Resources = Resources()
    seed: int = 0
    store_text: bool = True


__all__ = ["AxisValue", "Matrix"]
