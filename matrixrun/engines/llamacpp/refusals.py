"""What must not be launched or cannot be expressed, and how llama.cpp says no. Pure."""

from __future__ import annotations

import re

from matrixrun.engines import flags
from matrixrun.engines.llamacpp.command import ALIASES, CPU_RECIPE
from matrixrun.evidence.launches import ArmConfig

_SYNTHETIC = ("--spec-synth-len", "--spec-synth-rates")
_USAGE = re.compile(
    r"^error: (?P<words>(?:invalid argument|unknown argument|the argument).*)$"
    r"|^error while handling (?:argument|environment variable) (?P<argument>.+)$",
    re.MULTILINE,
)
_CONFIGURATION = re.compile(
    r"(?P<words>context type MTP requested but model doesn't contain MTP layers"
    r"|.*\bV cache quantization requires flash_attn.*"
    r"|.*\bquantized V cache was requested.*"
    r"|.*\bnot supported with.*split.*mode.*"
    r"|.*\b(?:SPLIT_MODE_TENSOR|split mode 'tensor').*not (?:implemented|supported).*"
    r"|RPC not supported in this build)"
)
_PREFIX = re.compile(r"^(?:\d+\.)+\d+ [A-Z] +(?:\S+ +)?\S*: *")


def refuse(config: ArmConfig) -> str | None:
    """Why this arm is not launched, see Engine.refuse. Methods unknown here are the engine's to
    judge."""
    return _lossy(config) or _inexpressible(config) or _misplaced(config)


def _lossy(config: ArmConfig) -> str | None:
    given = flags.flags_of(config.args, ALIASES)
    if config.speculation is not None:
        options = (f"--{name.removeprefix('--')}" for name in config.speculation.options)
        given |= flags.flags_of(options, ALIASES)
    for flag in _SYNTHETIC:
        if flag in given:
            return (
                f"lossy by design, so equal output cannot be asked for: {flag} accepts draft "
                "tokens at random, at a rate that was asked for"
            )
    return None


def _inexpressible(config: ArmConfig) -> str | None:
    limits, tensor, pipeline = (
        config.limits, config.tensor_parallel_size, config.pipeline_parallel_size,
    )  # fmt: skip
    reasons = (
        (
            config.quantization != "none" and not config.quantized_checkpoint,
            f"quantization {config.quantization!r} of one checkpoint",
            "it does not quantize while loading; name a GGUF file for each value in "
            f"models.{config.model}.targets",
        ),
        (config.nodes > 1, f"a launch over {config.nodes} nodes", "a server is one process"),
        (config.dtype is not None, f"dtype {config.dtype!r}", "the GGUF file's own types decide"),
        (
            config.data_parallel_size > 1,
            f"data_parallel_size {config.data_parallel_size}",
            "a server is one copy",
        ),
        (
            tensor > 1 and pipeline > 1,
            "tensor and pipeline parallelism at once",
            "it has one --split-mode",
        ),
        (limits.block_size is not None, "limits.block_size", "its KV cache has no blocks"),
        (
            limits.kv_cache_bytes is not None,
            "limits.kv_cache_bytes",
            "its size is max_model_len times max_num_seqs",
        ),
    )
    for holds, what, why in reasons:
        if holds:
            return f"{what} is not expressible with llama.cpp: {why}"
    return None


def _misplaced(config: ArmConfig) -> str | None:
    if config.endpoint is not None:  # nothing is installed, and where it runs is not ours
        return None
    ranks = config.tensor_parallel_size * config.pipeline_parallel_size
    if config.accelerator is not None and _cpu_build(config):
        return (
            f"resources ask for {config.accelerator}, but engine {config.engine!r} installs "
            "llama.cpp's CPU build: give it `binary:`, `python:` or `image:`"
        )
    if ranks > 1 and config.accelerator is None and not _rpc(config):
        return (
            f"a model is not split over {ranks} devices on one CPU: llama.cpp splits over "
            "accelerators, or over RPC workers named in args (`--rpc host:port,...`)"
        )
    return None


def _cpu_build(config: ArmConfig) -> bool:
    recipe = config.recipe
    if recipe.binary is not None:
        return recipe.binary.startswith("builtin:")
    return recipe.no_deps == CPU_RECIPE.no_deps


def _rpc(config: ArmConfig) -> bool:
    return "--rpc" in flags.flags_of(config.args, ALIASES)


def recognise(log: str) -> str | None:
    """llama.cpp's own words when it ended on purpose, see Engine.recognise_refusal.

    A refusal is a message of its argument parser, or one of the sentences with which it turns a
    configuration down. A file that cannot be read, lack of memory, a failed assertion are none.
    """
    if "GGML_ASSERT" in log:
        return None
    usage = _USAGE.search(log)
    if usage is not None:
        return str(usage["words"] or usage["argument"])
    for line in log.splitlines():
        said = _CONFIGURATION.search(_PREFIX.sub("", line))
        if said is not None:
            return said["words"]
    return None
