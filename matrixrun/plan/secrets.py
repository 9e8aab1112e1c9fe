"""Commands that may be shown: what looks like a secret is masked."""

from __future__ import annotations

import functools
import re

from matrixrun import engines
from matrixrun.evidence.launches import Command

MASK = "***"
# By the end of the name: `--max-num-batched-tokens` and `--tokenizer` are none.
_NAME = re.compile(
    r"(^|[_-])(api_?key|key|token|secret|password|passwd|credentials?)$", re.IGNORECASE
)
_IN_URL = re.compile(r"(://)[^/@\s]+@")
_PLACEHOLDER = re.compile(r"\$[A-Z]+")


def mask(command: Command) -> Command:
    """Return `command` for showing: the values of flags and variables that are named like secrets
    are masked, and so are credentials in URLs. Placeholders stay."""
    placeholders = {n: v for n, v in command.env.items() if _PLACEHOLDER.fullmatch(v)}
    return Command(argv=_arguments(command), env={**engines.mask(command.env), **placeholders})


def without_secrets(command: Command) -> Command:
    """Return `command` for fingerprints: as `mask`, but only what is surely a secret is left out,
    since a variable such as MAX_TOKENS determines results."""
    env = {name: MASK if _is_secret(name) else value for name, value in command.env.items()}
    return Command(argv=_arguments(command), env=env)


def _arguments(command: Command) -> tuple[str, ...]:
    argv: list[str] = []
    names_secret = False
    for item in command.argv:
        is_value = names_secret and not item.startswith("-")
        argv.append(_masked(item) if is_value else _shown(item))
        names_secret = _is_secret_flag(item)
    return tuple(argv)


# Thousands of launches share a few dozen words, hence the caches.
@functools.lru_cache(maxsize=4096)
def _is_secret(name: str) -> bool:
    return _NAME.search(name) is not None


@functools.lru_cache(maxsize=4096)
def _is_secret_flag(item: str) -> bool:
    return item.startswith("-") and _is_secret(item)


@functools.lru_cache(maxsize=4096)
def _shown(item: str) -> str:
    name, equals, value = item.partition("=")
    if equals and _is_secret_flag(name):
        return f"{name}={_masked(value)}"
    return _IN_URL.sub(rf"\g<1>{MASK}@", item)


def _masked(value: str) -> str:
    return value if _PLACEHOLDER.fullmatch(value) else MASK
