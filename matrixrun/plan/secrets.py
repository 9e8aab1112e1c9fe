"""Commands that may be shown: what looks like a secret is masked."""

from __future__ import annotations

import functools
import re

from matrixrun.evidence.launches import Command

MASK = "***"
_NAME = re.compile(
    r"(^|[_-])(api_?key|key|token|secret|password|passwd|credentials?)$", re.IGNORECASE
)
_IN_URL = re.compile(r"(://)[^/@\s]+@")
_PLACEHOLDER = re.compile(r"\$[A-Z]+")


def mask(command: Command) -> Command:
    """Return `command` with the values of variables and flags that are named like secrets masked,
    and credentials in URLs too. Placeholders stay."""
    argv: list[str] = []
    names_secret = False
    for item in command.argv:
        is_value = names_secret and not item.startswith("-")
        argv.append(_masked(item) if is_value else _shown(item))
        names_secret = _is_secret_flag(item)
    env = {
        name: _masked(value) if _is_secret(name) else _shown(value)
        for name, value in command.env.items()
    }
    return Command(argv=tuple(argv), env=env)


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
