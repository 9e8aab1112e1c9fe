"""An arm of SGLang as a command line. Pure; flags as SGLang 0.5.23 names them."""

from __future__ import annotations

import re

from matrixrun.engines import flags
from matrixrun.engines.flags import Flag
from matrixrun.evidence.cells import Speculation
from matrixrun.evidence.errors import UserError
from matrixrun.evidence.launches import ArmConfig, Checkpoint, Command, Recipe

DEFAULT_RECIPE = Recipe(install=("sglang==0.5.23",))
"""For accelerators: no package on an index holds SGLang's kernels for CPU."""

LAUNCH = (
    'import os, runpy, sys; sys.argv[1:1] = ["--api-key", os.environ["SGLANG_API_KEY"]]; '
    'runpy.run_module("sglang.launch_server", run_name="__main__", alter_sys=True)'
)
"""SGLang takes its key from the command line only, where every user of the machine can read it;
so the program hands it over from its environment, inside the process."""

CPU_TOKENS = "16384"
"""KV cache of one server on CPU, in tokens: the default takes most of the memory, and the second
server dies."""

METHODS = {
    "ngram": "NGRAM",
    "draft_model": "STANDALONE",
    "eagle": "EAGLE",
    "eagle3": "EAGLE3",
    "mtp": "NEXTN",
}
"""What other engines call an algorithm that SGLang has under a name of its own."""

CHAINS = frozenset({"EAGLE", "EAGLE3", "NEXTN", "STANDALONE", "FROZEN_KV_MTP"})
"""Drafters that propose token by token: their length is the number of steps. Every other
algorithm is told how many tokens a verification holds, which is one more than it drafts."""

ON_SWITCHES = frozenset({"--speculative-enable-w4a4-mxfp4-megamoe"})
"""Options that have a `--no-` form; the others are off unless given."""

ALIASES = {
    "--model": "--model-path",
    "--tensor-parallel-size": "--tp-size",
    "--pipeline-parallel-size": "--pp-size",
    "--data-parallel-size": "--dp-size",
    "--attention-data-parallel-size": "--attn-dp-size",
    "--nccl-init-addr": "--dist-init-addr",
    "--speculative-draft-model": "--speculative-draft-model-path",
}
OURS_ALONE = frozenset(
    {"--model-path", "--host", "--port", "--api-key", "--admin-api-key", "--config"}
    | {"--enable-metrics", "--incremental-streaming-output", "--stream-interval"}
    | {"--ssl-keyfile", "--ssl-certfile", "--grpc-mode", "--smg-grpc-mode", "--grpc-port"}
    | {"--nnodes", "--node-rank", "--dist-init-addr", "--skip-tokenizer-init"}
)
SPECULATION_FLAGS = re.compile(r"--spec.*|--uno-.*|--enable-multi-layer-eagle")
"""Every flag of speculation, also abbreviated as SGLang's parser allows."""
OBSERVATION_FLAGS = frozenset({"--incremental-streaming-output"})
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
        *speculation_flags(config.speculation, config.draft),
    ]
    argv = ("$PYTHON", "-c", LAUNCH)
    return Command(
        argv=(*argv, *flags.merge(ours, config.args, ALIASES)),
        env={**_environment(config), **config.env},
    )


def follower_command(config: ArmConfig) -> Command:
    """The command line of a further node, see Engine.follower_command: the same but for its rank;
    SGLang serves on the first node alone."""
    head = command(config)
    rank = head.argv.index("--node-rank") + 1
    argv = (*head.argv[:rank], "$NODE_RANK", *head.argv[rank + 1 :])
    return Command(argv=argv, env=head.env)


def _check_user_flags(config: ArmConfig) -> None:
    given = sorted(flags.flags_of(config.args, ALIASES))
    speculation = [flag for flag in given if SPECULATION_FLAGS.fullmatch(flag)]
    if speculation:
        raise UserError(
            f"engines.{config.engine}: args: {', '.join(speculation)} cannot be set: args go to "
            "both arms, and the off arm would speculate too",
            remedy="name the method, its draft and its options on the `speculation` axis",
        )
    taken = [flag for flag in given if flag in OURS_ALONE]
    if taken:
        raise UserError(
            f"engines.{config.engine}: args: {', '.join(taken)} cannot be set: matrixrun chooses "
            "the model, where the server listens, on which node, and what it reports",
            remedy="remove it from args",
        )


def _server(config: ArmConfig) -> list[Flag]:
    found: list[Flag] = [
        ("--model-path", "$TARGET"),
        ("--host", "$HOST"),
        ("--port", "$PORT"),
        ("--random-seed", "0"),
        ("--enable-metrics",),
        ("--incremental-streaming-output",),
    ]
    revision = config.target.hub_revision
    return found if revision is None else [*found, ("--revision", revision)]


def _topology(config: ArmConfig) -> list[Flag]:
    sizes = (
        ("--tp-size", config.tensor_parallel_size),
        ("--pp-size", config.pipeline_parallel_size),
    )
    found: list[Flag] = [(flag, str(size)) for flag, size in sizes]
    if config.data_parallel_size > 1:
        found.append(("--dp-size", str(config.data_parallel_size)))
    if config.nodes > 1:
        found += [
            ("--nnodes", str(config.nodes)),
            ("--node-rank", "0"),
            ("--dist-init-addr", "$HEAD:$HEAD_PORT"),
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
    if config.prefix_caching is False:
        found.append(("--disable-radix-cache",))
    return found


def _limits(config: ArmConfig) -> list[Flag]:
    limits = config.limits
    values = (
        ("--context-length", limits.max_model_len),
        ("--max-running-requests", limits.max_num_seqs),
        ("--chunked-prefill-size", limits.max_num_batched_tokens),
        ("--max-prefill-tokens", limits.max_num_batched_tokens),
        ("--page-size", limits.block_size),
    )
    found: list[Flag] = [(flag, str(value)) for flag, value in values if value is not None]
    if config.accelerator is None:
        found += [("--device", "cpu"), ("--max-total-tokens", CPU_TOKENS)]
    return found


def fixes_cache(config: ArmConfig) -> bool:
    """Whether the KV cache holds as many tokens as somebody said, on CPU always."""
    return config.accelerator is None or "--max-total-tokens" in flags.flags_of(
        config.args, ALIASES
    )


def algorithm_of(speculation: Speculation) -> str:
    """The value of `--speculative-algorithm`: one of SGLang's own words."""
    return METHODS.get(speculation.method, speculation.method).upper()


def speculation_flags(speculation: Speculation | None, draft: Checkpoint | None) -> list[Flag]:
    """The flags of an on arm: what the axis says, then its options under SGLang's own names
    (`speculative_eagle_topk: 4` is `--speculative-eagle-topk 4`), which win."""
    if speculation is None:
        return []
    found: list[Flag] = [("--speculative-algorithm", algorithm_of(speculation))]
    if draft is not None:
        found.append(("--speculative-draft-model-path", "$DRAFT"))
        revision = draft.hub_revision
        if revision is not None:
            found.append(("--speculative-draft-model-revision", revision))
    found += _draft_length(speculation)
    options = [flag for item in speculation.options.items() for flag in _option(*item)]
    given = flags.flags_of((flag[0] for flag in options), ALIASES)
    return [flag for flag in found if flag[0] not in given] + options


def _draft_length(speculation: Speculation) -> list[Flag]:
    length = speculation.num_speculative_tokens
    if length is None:
        return []
    algorithm, verified = algorithm_of(speculation), str(length + 1)
    if algorithm == "DSPARK":
        return [("--speculative-dspark-block-size", str(length))]
    if algorithm not in CHAINS:
        return [("--speculative-num-draft-tokens", verified)]
    found: list[Flag] = [("--speculative-num-steps", str(length))]
    if str(speculation.options.get("speculative_eagle_topk", 1)) != "1":
        return found  # a tree: how many of its nodes are verified is an option of its own
    return [
        *found,
        ("--speculative-eagle-topk", "1"),
        ("--speculative-num-draft-tokens", verified),
    ]


def _option(name: str, value: object) -> list[Flag]:
    flag = "--" + name.removeprefix("--").replace("_", "-")
    if value is True:
        return [(flag,)]
    if value is False:
        return [(flag.replace("--", "--no-", 1),)] if flag in ON_SWITCHES else []
    return [(flag, str(value))]


def _environment(config: ArmConfig) -> dict[str, str]:
    env = {
        "SGLANG_API_KEY": "$KEY",
        # /health generates a token otherwise, and waits at least a second for it.
        "SGLANG_ENABLE_HEALTH_ENDPOINT_GENERATION": "0",
        # A server whose scheduler is dead otherwise waits a minute and more for a GPU's core dump
        # and for a debugger.
        "SGLANG_CUDA_COREDUMP_BEFORE_CRASH": "0",
        "SGLANG_PYSPY_DUMP_BEFORE_CRASH": "0",
    }
    if config.accelerator is not None:
        return env
    return env | {
        "SGLANG_USE_CPU_ENGINE": "1",  # else `--device cpu` takes the code paths of a GPU
        "CUDA_VISIBLE_DEVICES": "",
        "OMP_NUM_THREADS": "1",
    }
