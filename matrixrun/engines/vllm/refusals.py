"""What must not be launched, and how vLLM says no. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from matrixrun.engines import flags, tracebacks
from matrixrun.engines.tracebacks import Raised
from matrixrun.engines.vllm.command import ALIASES, OBSERVATION_FLAGS
from matrixrun.evidence.launches import ArmConfig

_LOSSY_METHODS = {
    "synthetic": "it accepts draft tokens at random, at a rate that was asked for",
    "typical": "it accepts what is merely likely, not what the target would have emitted",
    "typical_acceptance_sampler": "it accepts what is merely likely",
    "relaxed": "it accepts draft tokens outside the target's own choice",
}
_LOSSY_PREFIXES = ("synthetic_", "typical_", "relaxed_", "posterior_", "use_relaxed_")

_USAGE = re.compile(r"^\S*(?:main|vllm|serve)\S*(?: serve)?: error: (?P<words>.+)$")
_TYPES = frozenset({"ValueError", "NotImplementedError", "ImportError"})
_LOADING = re.compile(r"/model_loader/|/models/utils\.py$|/kv_cache_utils\.py$")
_NO_REFUSAL = re.compile(
    r"\bmemory\b|Assertion failed|failed to be inspected|"
    r"Invalid repository ID|Repository Not Found|local (?:folder|directory)|offline mode",
    re.IGNORECASE,
)


def refuse(config: ArmConfig) -> str | None:
    """Why this arm is not launched, see Engine.refuse. Methods unknown here are the engine's to
    judge."""
    installs = " ".join((*config.recipe.install, *config.recipe.no_deps))
    on_gpu = config.accelerator is not None and config.endpoint is None
    if on_gpu and re.search(r"\bvllm-cpu\b", installs):
        return (
            f"resources ask for {config.accelerator}, but engine {config.engine!r} installs "
            "vLLM's CPU build: give it `install: [vllm==VERSION]`, `python:` or `image:`"
        )
    if config.nodes > 1 and config.data_parallel_size > 1:
        return (
            f"data_parallel_size {config.data_parallel_size} over {config.nodes} nodes cannot be "
            "expressed here: replicas that span nodes start by other rules"
        )
    for settings in _speculative_settings(config):
        reason = _lossy(settings)
        if reason is not None:
            return f"lossy by design, so equal output cannot be asked for: {reason}"
    return None


def _speculative_settings(config: ArmConfig) -> list[Mapping[str, Any]]:
    found: list[Mapping[str, Any]] = []
    if config.speculation is not None:
        found.append(config.speculation.options)
    for position, argument in enumerate(config.args):
        name, equals, value = argument.partition("=")
        head, dot, key = name.partition(".")
        if dot and flags.canonical(head, ALIASES) == "--speculative-config":
            following = config.args[position + 1 : position + 2]
            given = value if equals else "".join(following)
            found.append({key.replace("-", "_"): given})
    text = flags.value_of(config.args, "--speculative-config", ALIASES)
    try:
        whole = json.loads(text) if text else None
    except json.JSONDecodeError:
        whole = None  # the engine's own parser has the word on this
    if isinstance(whole, dict):
        found.append({key.replace("-", "_"): value for key, value in whole.items()})
    return found


def _lossy(settings: Mapping[str, Any]) -> str | None:
    for key, value in settings.items():
        method = str(value).lower()
        if key in ("rejection_sample_method", "acceptance_method") and method in _LOSSY_METHODS:
            return f"{key}={value}: {_LOSSY_METHODS[method]}"
        if key.startswith(_LOSSY_PREFIXES) and value not in (None, False):
            return f"{key} makes acceptance depart from the target's own choice"
    return None


def recognise(log: str) -> str | None:
    """vLLM's own words when it ended on purpose, see Engine.recognise_refusal.

    A refusal is a message of its argument parser, or an exception of validation that vLLM's own
    code raised on purpose. The first exception of a log is the cause, those after it pass it on.
    Crashes, lack of memory and checkpoints that cannot be read are none.
    """
    lines = [tracebacks.process_and_line(line) for line in log.splitlines()]
    for _, line in lines:
        usage = _USAGE.search(line)
        if usage:
            return None if _only_ours(usage["words"]) else usage["words"]
    for exception in tracebacks.raised(lines):
        if not tracebacks.PASSED_ON.search(exception.message):
            return _words(exception) if _on_purpose(exception) else None
    return None


def _only_ours(words: str) -> bool:
    """An older vLLM that does not know the flags we observe with: nobody's setting was refused."""
    named = {flags.canonical(word, ALIASES) for word in words.split() if word.startswith("--")}
    return "unrecognized arguments" in words and bool(named) and named <= OBSERVATION_FLAGS


def _on_purpose(exception: Raised) -> bool:
    if _NO_REFUSAL.search(exception.message):
        return False
    if exception.type in ("ValidationError", "VLLMValidationError"):
        return True
    own = "/vllm/" in exception.path and exception.source.startswith("raise ")
    if exception.type == "TypeError":
        return own and exception.path.endswith("/cli_args.py")
    return own and exception.type in _TYPES and not _LOADING.search(exception.path)


def _words(exception: Raised) -> str:
    """The message; of pydantic's many lines only what the validators themselves said."""
    if exception.type != "ValidationError":
        return exception.message
    said = [
        line.removeprefix("Value error, ").partition(" [type=")[0]
        for line in exception.message.splitlines()[1:]
        if " [type=" in line or line.startswith("Value error, ")
    ]
    return "; ".join([exception.message.splitlines()[0], *said])
