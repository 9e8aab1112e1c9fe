"""The matrix file's sections as types. Unknown keys are refused; `load` adds positions."""

from __future__ import annotations

import re
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PrivateAttr

from matrixrun.matrix.axis_types import MOST_SIZE
from matrixrun.matrix.paths import dotted_path, file_path, interpreter_path
from matrixrun.matrix.problems import Remedied
from matrixrun.matrix.source import Source

Whole = Annotated[int, Field(strict=True)]
Size = Annotated[int, Field(strict=True, ge=1)]
# Far beyond what any engine serves: a number above is a slip, and would be planned for hours.
Requests = Annotated[int, Field(strict=True, ge=1, le=1_000_000)]
Tokens = Annotated[int, Field(strict=True, ge=1, le=2**20)]
Rows = Annotated[int, Field(strict=True, ge=1, le=MOST_SIZE)]
Real = Annotated[float, Field(strict=True, allow_inf_nan=False)]
Switch = Annotated[bool, Field(strict=True)]
Text = Annotated[str, Field(min_length=1)]
FilePath = Annotated[Text, AfterValidator(file_path)]
CheckpointPath = Annotated[Text, AfterValidator(dotted_path)]
InterpreterPath = Annotated[Text, AfterValidator(interpreter_path)]


def _address(text: str) -> str:
    """An http or https address of a server, a path in front of its own paths included."""
    try:
        parts = urlsplit(text)
        whole = parts.scheme in ("http", "https") and parts.hostname and (parts.port or True)
    except ValueError:
        whole = False
    if not whole and re.fullmatch(r"[\w.-]+:\d+(?:/[\w./-]*)?", text):
        raise Remedied("must be the address of a server with its scheme", f"write http://{text}")
    if not whole:
        raise ValueError("must be the address of a server, such as https://host:8000")
    if "@" in parts.netloc:
        raise ValueError("holds credentials: name their variables in key_env or headers_env")
    if parts.query or parts.fragment:
        raise ValueError("must end with its path: nothing after `?` or `#`")
    return text.rstrip("/")


def _variable(text: str) -> str:
    """The name of an environment variable. The message holds no value: it may be a secret."""
    if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", text):
        raise ValueError("must be the name of an environment variable, not what it holds")
    return text


Address = Annotated[str, AfterValidator(_address)]
Variable = Annotated[str, AfterValidator(_variable)]


class Section(BaseModel):
    """A section of the matrix file: frozen, and strict about keys."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class ArmOverrides(Section):
    """What one arm of an engine gets besides the rest: any flag and any variable."""

    args: tuple[str, ...] = ()
    env: dict[str, str] = {}


class LimitsSpec(Section):
    """Pinned equal in both arms, because speculation changes the engine's own defaults."""

    max_model_len: Annotated[Whole, Field(ge=16)] | None = None
    max_num_seqs: Rows | None = None
    max_num_batched_tokens: Size | None = None
    block_size: Size | None = None
    kv_cache_bytes: Size | None = None


class AttachSpec(Section):
    """Servers that run already, one for each arm; nothing is started or stopped.

    `second_off` is another server without speculation, for the comparison of off with off.
    `key_env` and the values of `headers_env` name environment variables where launches run."""

    off: Address
    on: Address
    second_off: Address | None = None
    key_env: Variable | None = None
    headers_env: dict[str, Variable] = {}
    model: Text | None = None


class EngineSpec(Section):
    """An engine and how its environment is made: `install` (the default is the engine's own
    recipe), or `python`, or `image`; `binary` is a server that is no Python program. With `attach`
    there is none to make."""

    kind: Text
    attach: AttachSpec | None = None
    install: tuple[str, ...] | None = None
    no_deps: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    overlay: FilePath | None = None
    fallback_index: str | None = None
    python: InterpreterPath | None = None
    binary: InterpreterPath | None = None
    image: Text | None = None
    args: tuple[str, ...] = ()
    env: dict[str, str] = {}
    off: ArmOverrides = ArmOverrides()
    on: ArmOverrides = ArmOverrides()
    limits: LimitsSpec = LimitsSpec()


class CheckpointSpec(Section):
    """A checkpoint: a folder, a hub id with its revision, or a `builtin:` name.

    `online` (only within `targets`) says that the checkpoint itself is not quantized: the engine
    quantizes it as it loads it."""

    path: CheckpointPath
    revision: Text | None = None
    online: Switch = False


class ModelSpec(Section):
    """A target (or one checkpoint a quantization value) and the drafts that go with it."""

    target: CheckpointSpec | None = None
    targets: dict[str, CheckpointSpec] = {}
    drafts: dict[str, CheckpointSpec] = {}


class WorkloadSpec(Section):
    """What is sent: `prompts` prompts of at most `max_tokens` output tokens each.

    `categories` names workloads to draw from in equal parts; `path` is the user's own JSONL
    (`{"prompt": ...}` or `{"token_ids": [...]}` a line) instead, all of it (up to the default of
    `prompts`) where `prompts` is not given. `prompt_tokens` is the range of prompt lengths in
    tokens."""

    prompts: Requests = 300
    max_tokens: Tokens = 256
    categories: tuple[str, ...] = ("decided", "natural")
    prompt_tokens: tuple[Tokens, Tokens] = (16, 128)
    path: FilePath | None = None
    chat: Switch | None = None
    ignore_eos: Switch = False


class AccuracySpec(Section):
    """What the probe `accuracy` asks: a task file of lm-evaluation-harness, the first `limit` of
    its documents, and which of its metrics and filters says that an answer is right (the first)."""

    task: FilePath
    limit: Size | None = None
    metric: Text | None = None
    filter: Text | None = None


class Detect(Section):
    """The smallest share of faulty requests the gate must see, and with which confidence; of what a
    fault does to a request, `sensitivity` is the share taken to be large enough to be seen."""

    request_fault_rate: Annotated[Real, Field(gt=0, lt=1)] = 0.01
    confidence: Annotated[Real, Field(gt=0, lt=1)] = 0.95
    sensitivity: Annotated[Real, Field(gt=0, le=1)] = 1.0


class Expect(Section):
    """A verdict that is expected where `when` matches, with the reason why."""

    when: dict[str, Any]
    verdict: Literal["FAIL", "INCONCLUSIVE", "INACTIVE", "REFUSED", "ERROR"]
    reason: Text
    link: str | None = None


class Coverage(Section):
    """What must have happened for a PASS: at least so many rejections at each draft position."""

    rejections_per_position: Annotated[Whole, Field(ge=0)] = 1


class Strategy(Section):
    """Which of the allowed cells are run: all of them, or a covering array, in which every
    combination of `strength` values that an allowed cell has still occurs."""

    kind: Literal["full", "covering"] = "full"
    strength: Size = 2


class Timeouts(Section):
    """Seconds: until an engine is healthy, for one request, for building an environment, for the
    accuracy task on one launch."""

    ready: Annotated[Real, Field(gt=0)] = 900.0
    request: Annotated[Real, Field(gt=0)] = 300.0
    build: Annotated[Real, Field(gt=0)] = 3600.0
    accuracy: Annotated[Real, Field(gt=0)] = 3600.0


class Resources(Section):
    """What a launch reserves. Without `accelerator`, launches run on CPU and reserve
    `cpus_per_rank` cores for each rank; with it, one accelerator a rank. A launch of more than
    `ranks_per_node` ranks spans nodes; None keeps every launch on one."""

    accelerator: Text | None = None
    ranks_per_node: Size | None = None
    cpus_per_rank: Annotated[Real, Field(gt=0)] = 1.0
    memory_gib_per_rank: Annotated[Real, Field(ge=0)] = 0.0


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
    strategy: Strategy = Strategy()
    probes: tuple[str, ...] = ("equality", "acceptance")
    accuracy: AccuracySpec | None = None
    workload: WorkloadSpec = WorkloadSpec()
    detect: Detect = Detect()
    control: Literal["between-launches", "within-launch"] = "between-launches"
    equality: Literal["explained", "strict"] = "explained"
    expectations: FilePath | None = None
    expect: tuple[Expect, ...] = ()
    coverage: Coverage = Coverage()
    timeouts: Timeouts = Timeouts()
    resources: Resources = Resources()
    seed: Annotated[Whole, Field(ge=0, le=2**32 - 1)] = 0
    store_text: Switch = True

    _source: Source = PrivateAttr(default_factory=Source)

    def control_of(self, engine: str) -> Literal["between-launches", "within-launch"]:
        """The off-against-off comparison of an engine's cells: an attached engine without a second
        off endpoint is its own control, whatever the others do."""
        attach = self.engines[engine].attach
        alone = attach is not None and attach.second_off is None
        return "within-launch" if alone else self.control

    @property
    def source(self) -> Source:
        """Where this matrix was read: lines for messages, digests for fingerprints."""
        return self._source

    def located(self, source: Source) -> Matrix:
        """This matrix with what is known of its file."""
        copy = self.model_copy()
        copy._source = source
        return copy
