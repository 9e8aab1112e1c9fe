"""The environment variables an engine gets, and what of them may be shown."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path

_SECRET_NAME = re.compile(
    r"KEY|TOKEN(?!IZER)|SECRET|PASSW|CREDENTIAL|(^|_)AUTH(_|$)|COOKIE", re.IGNORECASE
)
_USERINFO = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_HARMLESS = frozenset({"TOKENIZERS_PARALLELISM"})
_DROPPED = frozenset(
    {"PYTHONDONTWRITEBYTECODE", "PYTHONHOME", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__"}
)
_TELLING = ("VLLM_", "HF_", "CUDA_", "NCCL_", "OMP_", "TORCH_", "NVIDIA_", "ROCR_", "HIP_")
MASK = "***"
SHORTEST_SECRET = 6  # shorter values would blank out ordinary words of a log


def engine_environment(
    command: Mapping[str, str], overlay: Path | None, inherited: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The whole environment of an engine: the user's own, less what belongs to matrixrun and to
    this interpreter, then the command's; the overlay is first on PYTHONPATH.

    Hub tokens of the user are passed on.
    """
    source = os.environ if inherited is None else inherited
    env = {
        name: value
        for name, value in source.items()
        if name not in _DROPPED and not name.startswith("MATRIXRUN_")
    }
    env |= command
    if overlay is not None:
        rest = env.get("PYTHONPATH")
        env["PYTHONPATH"] = str(overlay) + (os.pathsep + rest if rest else "")
    return env


def telling(env: Mapping[str, str]) -> dict[str, str]:
    """The variables that engines and their libraries read, by prefix."""
    return {name: value for name, value in env.items() if name.startswith(_TELLING)}


def mask(env: Mapping[str, str]) -> dict[str, str]:
    """The same variables for showing: secrets and credentials inside addresses are `***`."""
    return {
        name: MASK if _secret(name) else _USERINFO.sub(MASK, value)
        for name, value in sorted(env.items())
    }


def mask_text(text: str, env: Mapping[str, str]) -> str:
    """A log with the values of every secret variable of `env` blanked out."""
    for name, value in env.items():
        if _secret(name) and len(value) >= SHORTEST_SECRET:
            text = text.replace(value, MASK)
    return _USERINFO.sub(MASK, text)


def _secret(name: str) -> bool:
    return name not in _HARMLESS and _SECRET_NAME.search(name) is not None
