"""Command lines in which the user's own flags win over ours."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

Flag = tuple[str, ...]
"""One of our flags with its values: `("--seed", "0")`."""


def merge(
    ours: Iterable[Flag], theirs: tuple[str, ...], aliases: Mapping[str, str]
) -> tuple[str, ...]:
    """Our flags, less those that `theirs` sets too, then `theirs` untouched.

    `--flag value` and `--flag=value` count alike, so do `_` and `-`, a flag and its `--no-` form,
    and the short forms in `aliases`.
    """
    taken = flags_of(theirs, aliases)
    kept = [part for flag in ours if canonical(flag[0], aliases) not in taken for part in flag]
    return (*kept, *theirs)


def flags_of(arguments: Iterable[str], aliases: Mapping[str, str]) -> set[str]:
    """The canonical names of the flags that appear in a list of arguments."""
    return {canonical(a, aliases) for a in arguments if a.startswith("-") and not _number(a)}


def canonical(flag: str, aliases: Mapping[str, str]) -> str:
    """`--No_Enable-X=1` -> `--enable-x`: one name for every spelling of a flag."""
    name = flag.partition("=")[0]
    name = aliases.get(name, name)
    if not name.startswith("--"):
        return name
    body = name[2:].replace("_", "-").lower()
    return "--" + body.removeprefix("no-")


def value_of(arguments: tuple[str, ...], flag: str, aliases: Mapping[str, str]) -> str | None:
    """The last value given for `flag`, or None."""
    found = None
    for position, argument in enumerate(arguments):
        if not argument.startswith("-") or canonical(argument, aliases) != flag:
            continue
        _, equals, value = argument.partition("=")
        if equals:
            found = value
        elif position + 1 < len(arguments):
            found = arguments[position + 1]
    return found


def _number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
