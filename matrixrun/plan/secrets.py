"""Commands that may be shown: what looks like a secret is masked."""

from __future__ import annotations

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
    for item in command.argv:
        name, equals, value = item.partition("=")
        if equals and name.startswith("-") and _NAME.search(name):
            argv.append(f"{name}={_masked(value)}")
        elif argv and argv[-1].startswith("-") and _NAME.search(argv[-1]):
            argv.append(item if item.startswith("-") else _masked(item))
        else:
            argv.append(_in_urls(item))
    env = {
        name: _masked(value) if _NAME.search(name) else _in_urls(value)
        for name, value in command.env.items()
    }
    return Command(argv=tuple(argv), env=env)


def _masked(value: str) -> str:
    return value if _PLACEHOLDER.fullmatch(value) else MASK


def _in_urls(value: str) -> str:
    return _IN_URL.sub(rf"\g<1>{MASK}@", value)
