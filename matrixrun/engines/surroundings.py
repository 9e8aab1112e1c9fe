"""What an engine inherits, and what of its command, environment and log may be shown.

The rule for what is a secret stands here, for plans, results and MLflow alike.
"""

from __future__ import annotations

import functools
import json
import os
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

MASK = "***"
SHORTEST_SECRET = 6  # shorter values would blank out ordinary words of a log

# A variable is hidden rather than shown: MAX_TOKENS is masked too. A flag is judged by the end of
# its name, so that `--max-num-batched-tokens` and `--tokenizer` can be read.
_SECRET_NAME = re.compile(
    r"KEY|TOKEN(?!IZER)|SECRET|PASSW|CREDENTIAL|(^|_)AUTH(_|$)|COOKIE", re.IGNORECASE
)
_SURELY_SECRET = re.compile(
    r"(^|[._-])(api_?key|key|token|secret|password|passwd|credentials?)$", re.IGNORECASE
)
_SECRET_SHORT_FLAGS = frozenset({"-hft"})  # llama.cpp's short form of --hf-token
_USERINFO = re.compile(r"(?<=://)[^/@\s]+(?=@)")
_PLACEHOLDER = re.compile(r"\$[A-Z]+")
_HARMLESS = frozenset({"TOKENIZERS_PARALLELISM"})
_DROPPED = frozenset(
    {"PYTHONDONTWRITEBYTECODE", "PYTHONHOME", "VIRTUAL_ENV", "__PYVENV_LAUNCHER__"}
)
_TELLING = ("VLLM_", "HF_", "CUDA_", "NCCL_", "OMP_", "TORCH_", "NVIDIA_", "ROCR_", "HIP_")
# Ray's workers find matrixrun by this entry of PYTHONPATH. Where matrixrun is installed it is a
# whole site-packages: an engine would import this program's numpy before its own.
PACKAGE_PARENT = Path(__file__).resolve().parents[2]


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
    own = _without_matrixrun(env.pop("PYTHONPATH", ""))
    if own:
        env["PYTHONPATH"] = own
    env |= command
    if overlay is not None:
        rest = env.get("PYTHONPATH")
        env["PYTHONPATH"] = str(overlay) + (os.pathsep + rest if rest else "")
    return env


def _without_matrixrun(python_path: str) -> str:
    entries = python_path.split(os.pathsep)
    return os.pathsep.join(e for e in entries if not e or Path(e).resolve() != PACKAGE_PARENT)


def telling(env: Mapping[str, str]) -> dict[str, str]:
    """The variables that engines and their libraries read, by prefix."""
    return {name: value for name, value in env.items() if name.startswith(_TELLING)}


def is_secret(name: str) -> bool:
    """Whether a variable of this name may hold a secret, so that its value is not shown."""
    return name not in _HARMLESS and _SECRET_NAME.search(name) is not None


# Thousands of launches share a few dozen words, hence the caches.
@functools.lru_cache(maxsize=4096)
def is_surely_secret(name: str) -> bool:
    """Whether a flag or variable of this name holds a secret and nothing else, so that its value
    determines no result."""
    return _SURELY_SECRET.search(name) is not None


@functools.lru_cache(maxsize=4096)
def _is_secret_flag(word: str) -> bool:
    return word.startswith("-") and (word in _SECRET_SHORT_FLAGS or is_surely_secret(word))


def mask(env: Mapping[str, str]) -> dict[str, str]:
    """The same variables for showing: secrets and credentials inside addresses are `***`, while
    placeholders such as `$KEY` stay."""
    return {
        name: _masked(value) if is_secret(name) else _shown(value)
        for name, value in sorted(env.items())
    }


def mask_argv(argv: Sequence[str]) -> tuple[str, ...]:
    """The same command line for showing: the values of flags that are named like secrets, and
    credentials inside addresses, are `***`; placeholders stay."""
    shown: list[str] = []
    names_secret = False
    for word in argv:
        flag, equals, value = word.partition("=")
        if word.startswith("-"):
            names_secret = _is_secret_flag(word)
            joined = bool(equals) and _is_secret_flag(flag)
            shown.append(f"{flag}={_masked(value)}" if joined else _shown(word))
        else:  # a flag may take several values: vLLM's --api-key does
            shown.append(_masked(word) if names_secret else _shown(word))
    return tuple(shown)


def secret_values(env: Mapping[str, str], argv: Sequence[str] = ()) -> set[str]:
    """The values that `mask` and `mask_argv` hide, placeholders left out."""
    values = {value for name, value in env.items() if is_secret(name)}
    for word, shown in zip(argv, mask_argv(argv), strict=True):
        if shown == MASK:
            values.add(word)
        elif shown.endswith(f"={MASK}"):
            values.add(word.partition("=")[2])
    return {value for value in values if not _PLACEHOLDER.fullmatch(value)}


def mask_values(text: str, secrets: Collection[str]) -> str:
    """A text with these values blanked out wherever they stand, and credentials in addresses.

    Values of fewer than SHORTEST_SECRET characters stay: they are ordinary words.
    """
    spelled = {s for value in secrets if len(value) >= SHORTEST_SECRET for s in _spellings(value)}
    for secret in sorted(spelled, key=len, reverse=True):  # one may be a part of another
        text = text.replace(secret, MASK)
    return _shown(text)


def mask_text(text: str, env: Mapping[str, str], argv: Sequence[str] = ()) -> str:
    """A text, such as the end of a log, with the values of secret variables of `env` and of secret
    flags of `argv` blanked out, as `mask_values` does."""
    return mask_values(text, secret_values(env, argv))


def mask_log(data: bytes, env: Mapping[str, str], argv: Sequence[str] = ()) -> bytes:
    """A log as `mask_text` leaves it; bytes that are no UTF-8 stay as they are.

    Mask before cutting: of a secret that is cut in two, the rest would stay.
    """
    text = data.decode("utf-8", "surrogateescape")
    return mask_text(text, env, argv).encode("utf-8", "surrogateescape")


def _spellings(value: str) -> set[str]:
    """A value as programs print it: plain, in Python's and JSON's quotes, in an address."""
    in_address = quote(value, safe="", errors="surrogateescape")
    return {value, repr(value)[1:-1], json.dumps(value)[1:-1], in_address}


def _masked(value: str) -> str:
    return value if _PLACEHOLDER.fullmatch(value) else MASK


def _shown(text: str) -> str:
    return _USERINFO.sub(MASK, text)
