"""From an arm's configuration to a `llama-server` command line. Pure."""

from __future__ import annotations

import re
from pathlib import Path

from matrixrun.engines import flags
from matrixrun.engines.flags import Flag
from matrixrun.evidence.cells import Speculation
from matrixrun.evidence.errors import UserError
from matrixrun.evidence.launches import ArmConfig, Command, Recipe

CPU_RECIPE = Recipe(
    # The package is complete without what it names; `gguf` writes our small models.
    install=("gguf==0.19.0", "numpy>=1.26"),
    no_deps=("xllamacpp==2026.10.11549",),
)
LAUNCHER = Path(__file__).with_name("in_process.py")

METHODS = {
    "ngram": "ngram-simple",
    "draft_model": "draft-simple",
    "eagle3": "draft-eagle3",
    "mtp": "draft-mtp",
}
"""What other engines call a method that llama.cpp has under a name of its own."""

LENGTH_FLAGS = {
    "ngram-simple": "--spec-ngram-simple-size-m",
    "ngram-map-k": "--spec-ngram-map-k-size-m",
    "ngram-map-k4v": "--spec-ngram-map-k4v-size-m",
    "ngram-mod": "--spec-ngram-mod-n-max",
}
"""Where a method takes its draft length; every other one has it from `--spec-draft-n-max`."""
NGRAM_MOD_SHORTEST = 48  # llama.cpp's default --spec-ngram-mod-n-min, which n-max must reach

ALIASES = {
    "-m": "--model",
    "-a": "--alias",
    "-c": "--ctx-size",
    "-np": "--parallel",
    "-b": "--batch-size",
    "-ub": "--ubatch-size",
    "-t": "--threads",
    "--threads-batch": "--threads-batch",
    "-tb": "--threads-batch",
    "-ctk": "--cache-type-k",
    "-ctv": "--cache-type-v",
    "-fa": "--flash-attn",
    "-sm": "--split-mode",
    "-ts": "--tensor-split",
    "-mg": "--main-gpu",
    "-dev": "--device",
    "-ngl": "--n-gpu-layers",
    "--gpu-layers": "--n-gpu-layers",
    "-s": "--seed",
    "-cram": "--cache-ram",
    "-md": "--spec-draft-model",
    "--model-draft": "--spec-draft-model",
    "-fit": "--fit",
    "-lv": "--verbosity",
    "--log-verbosity": "--verbosity",
    "--webui": "--ui",
}
OURS_ALONE = frozenset(
    {"--host", "--port", "--api-key", "--api-key-file", "--model", "--alias", "--metrics"}
    | {"--slots", "--ssl-key-file", "--ssl-cert-file", "--api-prefix"}
    | {"--models-dir", "--models-preset", "--embedding", "--embeddings", "--rerank"}
)
SPECULATION_FLAGS = re.compile(
    r"--spec-.*|--.*draft.*|--lookup-cache-.*|--fim-.*-spec"
    r"|-(?:md|hfd|hfrd|td|tbd|Cd|Crd|Cbd|Crbd|otd|cmoed|ncmoed|devd|ngld|ctkd|ctvd|lcs|lcd)"
)
"""Every flag of speculation, short, old and new; those ending in `-spec` choose a draft model."""
SPECULATION_VARIABLES = re.compile(r"LLAMA_ARG_(?:SPEC_.*|.*DRAFT.*)")


def command(config: ArmConfig) -> Command:
    """The command line and environment of an arm, see Engine.command."""
    _check_speculation(config)
    taken = sorted(flags.flags_of(config.args, ALIASES) & OURS_ALONE)
    if taken:
        raise UserError(
            f"engines.{config.engine}: args: {', '.join(taken)} cannot be set: matrixrun chooses "
            "the model, where the server listens and what it reports",
            remedy="remove it from args",
        )
    ours = [
        *_server(),
        *_limits(config),
        *_numerics(config),
        *_placement(config),
        *_speculation(config),
    ]
    return Command(
        argv=(*program(config.recipe), *flags.merge(ours, config.args, ALIASES)),
        env={"LLAMA_API_KEY": "$KEY", **config.env},
    )


def _check_speculation(config: ArmConfig) -> None:
    given = sorted(flags.flags_of(config.args, ALIASES))
    for key, names in (
        ("args", [name for name in given if SPECULATION_FLAGS.fullmatch(name)]),
        ("env", [name for name in sorted(config.env) if SPECULATION_VARIABLES.fullmatch(name)]),
    ):
        if names:
            raise UserError(
                f"engines.{config.engine}: {key}: {', '.join(names)} cannot be set: {key} go to "
                "both arms, and the off arm would speculate too",
                remedy="name the method, its draft and its options on the `speculation` axis",
            )


def tokenizer_command(config: ArmConfig) -> Command:
    """A server that is only asked to tokenize: weights stay on disk, nothing is repacked."""
    ours: list[Flag] = [
        *_server(),
        ("--ctx-size", "512"),
        ("--parallel", "1"),
        ("--no-warmup",),
        ("--no-repack",),
        ("--n-gpu-layers", "0"),
        *_threads(config),
    ]
    argv = (*program(config.recipe), *(part for flag in ours for part in flag))
    return Command(argv=argv, env={"LLAMA_API_KEY": "$KEY", **config.env})


def program(recipe: Recipe) -> tuple[str, ...]:
    """A real `llama-server` where the recipe names one, else the one in a Python package."""
    return ("$BINARY",) if recipe.binary is not None else ("$PYTHON", str(LAUNCHER))


def method_of(speculation: Speculation) -> str:
    """The value of `--spec-type`: one of llama.cpp's own words, or a list of them."""
    return ",".join(METHODS.get(word, word) for word in speculation.method.split(","))


def _server() -> list[Flag]:
    return [
        ("--model", "$TARGET"),
        ("--host", "$HOST"),
        ("--port", "$PORT"),
        ("--alias", "matrixrun"),
        ("--seed", "0"),
        ("--metrics",),
        ("--slots",),
        ("--no-ui",),
        ("--offline",),
        # Unset, it changes context size and placement to what memory happens to be free.
        ("--fit", "off"),
        # Prompts parked in memory outlive an erased slot, and with it the end of a pass.
        ("--cache-ram", "0"),
        # Slots can be erased only where they could be saved; nothing ever is.
        ("--slot-save-path", "."),
    ]


def _limits(config: ArmConfig) -> list[Flag]:
    limits = config.limits
    slots = limits.max_num_seqs or 1
    found: list[Flag] = [("--parallel", str(slots)), ("--no-kv-unified",)]
    if limits.max_model_len is not None:
        # The context is divided by the slots, each share rounded up to whole cells of 256.
        share = -(-limits.max_model_len // 256) * 256
        found.append(("--ctx-size", str(share * slots)))
    if limits.max_num_batched_tokens is not None:
        size = str(limits.max_num_batched_tokens)
        found += [("--batch-size", size), ("--ubatch-size", size)]
    if config.prefix_caching is not None:
        found.append(("--cache-prompt" if config.prefix_caching else "--no-cache-prompt",))
    return found


def _numerics(config: ArmConfig) -> list[Flag]:
    if config.kv_cache_dtype is None:
        return []
    kind = config.kv_cache_dtype
    found: list[Flag] = [("--cache-type-k", kind), ("--cache-type-v", kind)]
    if re.match(r"i?q\d", kind):  # quantized values need it, and `auto` may decide otherwise
        found.append(("--flash-attn", "on"))
    return found


def _placement(config: ArmConfig) -> list[Flag]:
    tensor, pipeline = config.tensor_parallel_size, config.pipeline_parallel_size
    found = _threads(config)
    if config.accelerator is not None:
        found.append(("--n-gpu-layers", "all"))
    if tensor * pipeline == 1:
        # A server takes every device it sees unless it is told to stay on one.
        return found if config.accelerator is None else [*found, ("--split-mode", "none")]
    mode, parts = ("tensor", tensor) if tensor > 1 else ("layer", pipeline)
    return [*found, ("--split-mode", mode), ("--tensor-split", ",".join(["1"] * parts))]


def _threads(config: ArmConfig) -> list[Flag]:
    if config.accelerator is not None:
        return []
    # Threads wait for one another by spinning: two on shared cores give a tenth of one's speed.
    return [("--threads", "1"), ("--threads-batch", "1")]


def _speculation(config: ArmConfig) -> list[Flag]:
    speculation = config.speculation
    if speculation is None:
        return []
    method = method_of(speculation)
    found: list[Flag] = [("--spec-type", method)]
    if config.draft is not None:
        found.append(("--spec-draft-model", "$DRAFT"))
    found += _draft_length(method.split(","), speculation.num_speculative_tokens)
    options = [_option(name, value) for name, value in speculation.options.items()]
    given = {flag[0] for flag in options}
    return [flag for flag in found if flag[0] not in given] + options


def _draft_length(methods: list[str], length: int | None) -> list[Flag]:
    if length is None:
        return []
    found: dict[str, Flag] = {}
    for method in methods:
        name = LENGTH_FLAGS.get(method, "--spec-draft-n-max")
        found[name] = (name, str(length))
        if method == "ngram-mod" and length < NGRAM_MOD_SHORTEST:
            found["n-min"] = ("--spec-ngram-mod-n-min", str(length))
    return list(found.values())


def _option(name: str, value: object) -> Flag:
    """`spec_draft_p_min: 0.5` -> `--spec-draft-p-min 0.5`; true is the flag, false its `--no-`."""
    body = name.removeprefix("--").replace("_", "-")
    if value is True:
        return (f"--{body}",)
    if value is False:
        return (f"--no-{body}",)
    text = ",".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
    return (f"--{body}", text)
