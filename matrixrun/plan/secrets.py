"""Commands that may be shown: what looks like a secret is masked, by the rule that engines keep."""

from __future__ import annotations

from matrixrun import engines
from matrixrun.evidence.launches import Command


def mask(command: Command) -> Command:
    """Return `command` for showing: the values of flags and variables that are named like secrets
    are masked, and so are credentials in URLs. Placeholders stay."""
    return Command(argv=engines.mask_argv(command.argv), env=engines.mask(command.env))


def without_secrets(command: Command) -> Command:
    """Return `command` for fingerprints: as `mask`, but only what is surely a secret is left out,
    since a variable such as MAX_TOKENS determines results."""
    env = {
        name: engines.MASK if engines.is_surely_secret(name) else value
        for name, value in command.env.items()
    }
    return Command(argv=engines.mask_argv(command.argv), env=env)
