"""What must not be launched or cannot be expressed, and how SGLang says no. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from matrixrun.engines import flags, tracebacks
from matrixrun.engines.sglang.command import ALIASES, OBSERVATION_FLAGS
from matrixrun.engines.tracebacks import Raised
from matrixrun.evidence.launches import ArmConfig

_THRESHOLDS = ("speculative-accept-threshold-single", "speculative-accept-threshold-acc")
_SIMULATED = "SGLANG_SIMULATE_ACC_LEN"

_LOGGED = re.compile(r"\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d[^\]]*\]")
_USAGE = re.compile(r"^(?:sglang serve|\S*launch_server\S*): error: (?P<words>.+)$")
_TYPES = frozenset({"ValueError", "NotImplementedError", "ImportError"})
_LOADING = re.compile(r"/model_loader/|/models/|/weight_utils\.py$|/hf_transformers_utils\.py$")
_NO_REFUSAL = re.compile(
    r"\bmemory\b|mem.fraction|Assertion failed|"
    r"Invalid repository ID|Repository Not Found|local (?:folder|directory)|offline mode",
    re.IGNORECASE,
)


def refuse(config: ArmConfig) -> str | None:
    """Why this arm is not launched, see Engine.refuse. Algorithms unknown here are the engine's to
    judge."""
    for reason in _lossy(config):
        return f"lossy by design, so equal output cannot be asked for: {reason}"
    return _inexpressible(config) or _without_kernels(config)


def _lossy(config: ArmConfig) -> Iterator[str]:
    options = {} if config.speculation is None else config.speculation.options
    for name in _THRESHOLDS:
        value = _option(options, name)
        if value is not None and not _is_one(value):
            yield f"--{name} {value} accepts draft tokens that the target would not have emitted"
    simulated = config.env.get(_SIMULATED)
    if simulated is not None and not simulated.strip().startswith("-"):
        yield f"{_SIMULATED}={simulated} accepts as many draft tokens as it says, right or not"


def _option(options: Mapping[str, Any], flag: str) -> Any:
    wanted = flags.canonical(f"--{flag}", ALIASES)
    for name, value in options.items():
        if flags.canonical(f"--{name.removeprefix('--')}", ALIASES) == wanted:
            return value
    return None


def _is_one(value: object) -> bool:
    try:
        return float(str(value)) == 1.0
    except ValueError:
        return True  # no number: the engine's own parser has the word on it


def _inexpressible(config: ArmConfig) -> str | None:
    if config.limits.kv_cache_bytes is not None:
        return (
            "limits.kv_cache_bytes is not expressible with SGLang: it sizes its KV cache in "
            "tokens; give `--max-total-tokens` in args, which go to both arms"
        )
    return _unspannable(config)


def _unspannable(config: ArmConfig) -> str | None:
    """What SGLang cannot lay out over nodes. Of unequal shares it would start a part of the ranks,
    which then wait for the others for ever (`_calculate_rank_ranges`)."""
    nodes, stages = config.nodes, config.pipeline_parallel_size
    if nodes == 1:
        return None
    if config.data_parallel_size > 1:
        return (
            f"data_parallel_size {config.data_parallel_size} over {nodes} nodes: SGLang keeps its "
            "replicas on one node; give `--attn-dp-size` in args"
        )
    whole = stages % nodes == 0  # stages a node
    whole |= nodes % stages == 0 and config.tensor_parallel_size % (nodes // stages) == 0
    if whole:
        return None
    return (
        f"{stages} stages of {config.tensor_parallel_size} ranks over {nodes} nodes: SGLang puts "
        "as many whole stages on each node, or each stage on as many whole nodes; choose "
        "resources.ranks_per_node so"
    )


def _without_kernels(config: ArmConfig) -> str | None:
    recipe = config.recipe
    elsewhere = recipe.python or recipe.image or recipe.overlay
    if config.accelerator is not None or elsewhere or config.endpoint is not None:
        return None
    return (
        f"engine {config.engine!r} installs SGLang's package, whose kernels are for GPUs only: "
        "name `resources: {accelerator: ...}`, or give `python:` or `image:` with a build for CPU"
    )


def recognise(log: str) -> str | None:
    """SGLang's own words when it ended on purpose, see Engine.recognise_refusal.

    A refusal is a message of its argument parser, or an exception of validation that SGLang's own
    code raised on purpose. The first exception of a log is the cause, those after it pass it on.
    Crashes, lack of memory and checkpoints that cannot be read are none.
    """
    lines = log.splitlines()
    for line in lines:
        usage = _USAGE.search(line)
        if usage:
            return None if _only_ours(usage["words"]) else usage["words"]
    for exception in tracebacks.raised(("", _bare(line)) for line in lines):
        return exception.message if _on_purpose(exception) else None
    return None


def _bare(line: str) -> str:
    """A line as part of a traceback: a process logs its exception behind words of its own, and what
    else is logged meanwhile belongs to none."""
    if line.endswith(tracebacks.START):
        return tracebacks.START
    return "" if _LOGGED.match(line) else line


def _only_ours(words: str) -> bool:
    """An older SGLang that does not know the flags we observe with: nothing was refused."""
    named = {flags.canonical(word, ALIASES) for word in words.split() if word.startswith("--")}
    return "unrecognized arguments" in words and bool(named) and named <= OBSERVATION_FLAGS


def _on_purpose(exception: Raised) -> bool:
    if _NO_REFUSAL.search(exception.message):
        return False
    if exception.type == "AssertionError":
        # Half of its checks of arguments are written so. Of an assertion over several lines a
        # traceback shows any of them.
        return "/sglang/srt/arg_groups/" in exception.path and bool(exception.message)
    own = "/sglang/" in exception.path and exception.source.startswith("raise ")
    return own and exception.type in _TYPES and not _LOADING.search(exception.path)
