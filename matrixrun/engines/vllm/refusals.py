"""What must not be launched, and how vLLM says no. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from matrixrun.engines import flags
from matrixrun.engines.vllm.command import ALIASES
from matrixrun.evidence.launches import ArmConfig

_LOSSY_METHODS = {
    "synthetic": "it accepts draft tokens at random, at a rate that was asked for",
    "typical": "it accepts what is merely likely, not what the target would have emitted",
    "typical_acceptance_sampler": "it accepts what is merely likely",
    "relaxed": "it accepts draft tokens outside the target's own choice",
}
_LOSSY_PREFIXES = ("synthetic_", "typical_", "relaxed_", "posterior_", "use_relaxed_")


def refuse(config: ArmConfig) -> str | None:
    """Why this arm is not launched, see Engine.refuse. Methods unknown here are the engine's to
    judge."""
    installs = " ".join((*config.recipe.install, *config.recipe.no_deps))
    if config.accelerator is not None and re.search(r"\bvllm-cpu\b", installs):
        return (
            f"resources ask for {config.accelerator}, but engine {config.engine!r} installs "
            "vLLM's CPU build: give it `install: [vllm==VERSION]`, `python:` or `image:`"
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
    for argument in config.args:
        name, _, value = argument.partition("=")
        head, dot, key = name.partition(".")
        if dot and flags.canonical(head, ALIASES) == "--speculative-config":
            found.append({key.replace("-", "_"): value})
    text = flags.value_of(config.args, "--speculative-config", ALIASES)
    try:
        given = json.loads(text) if text else None
    except json.JSONDecodeError:
        given = None  # the engine's own parser has the word on this
    if isinstance(given, dict):
        found.append({key.replace("-", "_"): value for key, value in given.items()})
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
    return None
