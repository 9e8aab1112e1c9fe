"""A plan for people and for programs."""

from __future__ import annotations

import functools
import re
import shlex
import textwrap
from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec

from matrixrun.engines import mask_values
from matrixrun.evidence.launches import ArmConfig, Command, Launch, Recipe, Role
from matrixrun.matrix import Interactions
from matrixrun.plan.secrets import mask
from matrixrun.plan.types import Plan

MOST_IMPOSSIBLE = 12
_PLACEHOLDER = re.compile(r"\$[A-Z]+")


def to_json(plan: Plan) -> dict[str, Any]:
    """Return the plan as plain lists, mappings, texts and numbers; secrets are masked.

    `cells`, `pairs`, `launches`, `excluded`, `refused` and `groups` are lists, the rest numbers
    and texts.
    """
    plain: dict[str, Any] = msgspec.to_builtins(
        msgspec.structs.replace(plan, launches=(), refused={})
    )
    plain["launches"] = [_launch_json(launch) for launch in plan.launches]
    plain["refused"] = [{"cell": c, "reason": reason} for c, reason in plan.refused.items()]
    return plain


def _launch_json(launch: Launch) -> dict[str, Any]:
    shown = mask(launch.command)
    return {
        "id": launch.id,
        "role": launch.role.value,
        "kind": launch.config.kind,
        "engine": launch.config.engine,
        "model": launch.config.model,
        "fingerprint": launch.fingerprint,
        "cells": list(launch.cells),
        "command": _typed(shown, launch.config),
        "argv": list(shown.argv),
        "env": dict(shown.env),
        "recipe": _recipe_json(launch.config.recipe),
        "target": msgspec.to_builtins(launch.config.target),
        "draft": msgspec.to_builtins(launch.config.draft),
        "limits": msgspec.to_builtins(launch.config.limits),
        "gang": msgspec.to_builtins(launch.gang),
        "seconds": launch.seconds,
    }


def _recipe_json(recipe: Recipe) -> dict[str, Any]:
    """Return a recipe as plain values; credentials within addresses are masked."""
    plain: dict[str, Any] = msgspec.to_builtins(recipe)
    return {key: _masked(value) for key, value in plain.items()}


def _masked(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return [_masked(entry) for entry in value]
    return mask_values(value, ()) if isinstance(value, str) else value


def command_line(launch: Launch) -> str:
    """Return a launch's command as it would be typed, secrets masked, checkpoints by name.

    `$PYTHON`, `$HOST`, `$PORT` and `$KEY` are known only where the process starts.
    """
    return _typed(mask(launch.command), launch.config)


def _typed(shown: Command, config: ArmConfig) -> str:
    names = {"$TARGET": config.target.path}
    if config.draft is not None:
        names["$DRAFT"] = config.draft.path

    def word(text: str) -> str:
        if "$" not in text:
            return _quoted(text)
        for placeholder, path in names.items():
            text = text.replace(placeholder, path)
        return text if _PLACEHOLDER.fullmatch(text) else _quoted(text)

    variables = [f"{name}={word(value)}" for name, value in sorted(shown.env.items())]
    return " ".join([*variables, *map(word, shown.argv)])


# Thousands of launches share a few dozen words.
_quoted = functools.lru_cache(maxsize=4096)(shlex.quote)


def render_text(plan: Plan) -> str:
    """Return the plan as text, for a terminal or a job's log.

    Commands are one line each, however long: they are there to be copied.
    """
    parts = [_summary(plan)]
    if plan.cells and not plan.pairs:
        parts.append(
            "nothing would run: every cell is refused before launch, with the reasons below"
        )
    if plan.interactions is not None:
        rows = interaction_lines(plan.interactions, len(plan.cells))
        parts.append(_section("covering array", rows))
    if plan.pairs:
        parts += [_pairs(plan), _launches(plan)]
    if plan.refused:
        rows = [f"{cell}: {reason}" for cell, reason in plan.refused.items()]
        parts.append(_section("refused before launch", rows))
    if plan.excluded:
        counts = Counter(item.reason for item in plan.excluded)
        rows = [f"{_count(number, 'cell')}: {reason}" for reason, number in counts.items()]
        parts.append(_section("excluded", rows))
    if plan.notes:
        parts.append(_section("what this sweep can and cannot see", plan.notes))
    return "\n\n".join(parts) + "\n"


def _summary(plan: Plan) -> str:
    launches, naive = len(plan.launches), plan.naive_launches
    saved = f", {1 - launches / naive:.0%} saved" if 0 < launches < naive else ""
    null = sum(launch.role is Role.B for launch in plan.launches)
    control = f"; {null} of the planned are null launches, which naive has not" if null else ""
    extra = sum(launch.role.extra for launch in plan.launches)
    probes = (
        f"; {extra} of the planned are the state probes' own, which naive has not "
        "(--simulate counts them)"
    )
    rows = [
        f"{plan.name}: {_count(len(plan.cells), 'cell')}, {_count(len(plan.pairs), 'pair')}, "
        f"{len(plan.refused)} refused, {len(plan.excluded)} excluded",
        f"launches: {launches} planned, {naive} naive "
        f"(one server per arm: 2 a pair{saved}{control}{probes if extra else ''})",
        f"confirmation: at most {_count(plan.confirmation_launches_at_most, 'launch')} "
        "(an off launch again, to value suspicious tokens in other ways)",
        f"needed at once: {_needs(plan)} (the largest launch)",
        f"time: about {duration(plan.seconds)} if the largest launch just fits, without building "
        "environments and fetching checkpoints",
    ]
    return "\n".join(rows)


def interaction_lines(held: Interactions, cells: int) -> list[str]:
    """Return in words what a covering array of so many cells holds, and what it cannot hold."""
    size = held.strength
    lines = [
        f"strength {size}: {cells} of the {_count(held.allowed_cells, 'allowed cell')} of the full "
        f"grid, with all {_count(held.combinations, 'combination')} of {_count(size, 'value')} on "
        f"{', '.join(held.axes)}"
    ]
    if held.larger:
        lines.append(
            f"combinations of {size + 1} values: {held.larger_covered} of {held.larger} are "
            f"covered ({held.larger_covered / held.larger:.0%}); a fault that needs {size + 1} "
            "settings at once can pass unseen"
        )
    shown = [
        " with ".join(f"{axis}={word}" for axis, word in combination)
        for combination in held.impossible[:MOST_IMPOSSIBLE]
    ]
    if shown:
        left = held.impossible_count - len(shown)
        more = f"; and {left} more" if left else ""
        lines.append(f"in no allowed cell: {'; '.join(shown)}{more}")
    return lines


def _needs(plan: Plan) -> str:
    if plan.accelerators_at_once:
        kind = next(g.accelerator for g in (x.gang for x in plan.launches) if g.accelerators)
        return f"{plan.accelerators_at_once} x {kind}, {plan.cpus_at_once:g} cores"
    return f"{plan.cpus_at_once:g} CPU cores"


def duration(seconds: float, *, like: float | None = None) -> str:
    """Return seconds as a person says them: `40 s`, `12 min`, `3.5 h`; in the unit of another time
    that it stands beside."""
    size = seconds if like is None else like
    if size < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if size < 5400 else f"{seconds / 3600:.1f} h"


def _pairs(plan: Plan) -> str:
    """List the cells under their on launch, and those under the off launches that they share."""
    by_off: dict[str, dict[str, list[str]]] = {}
    for pair in plan.pairs:
        by_off.setdefault(pair.off, {}).setdefault(pair.on, []).append(pair.cell)
    rows = ["pairs, under the off launches that they share"]
    for one in plan.groups:
        null = "its own control" if one.null is None else f"control {one.null}"
        shared = f"{_count(len(one.on), 'on launch')} and {_count(len(one.cells), 'cell')}"
        rows.append(f"  {one.scorer} ({null}), shared by {shared}")
        rows += [f"    {name} (extra: planned drafts)" for name in one.forced]
        rows += [f"    {name} (extra: keeps a ledger)" for name in one.traced]
        for on, cells in by_off[one.scorer].items():
            rows += [f"    {on}", *(f"      {cell}" for cell in cells)]
    return "\n".join(rows)


def _launches(plan: Plan) -> str:
    rows = ["launches, in order ($PYTHON $HOST $PORT $KEY are filled in where each starts)"]
    for launch in plan.launches:
        gang = launch.gang
        holds = f"{gang.accelerators} x {gang.accelerator}, " if gang.accelerators else ""
        holds += _count(gang.cpus, "core")
        serves = _count(len(launch.cells), "cell")
        rows.append(f"  {launch.id}: {serves}, {holds}, about {duration(launch.seconds)}")
        rows.append(f"    {command_line(launch)}")
    return "\n".join(rows)


def _section(title: str, rows: Iterable[str]) -> str:
    wrapped = (
        textwrap.fill(row, 98, initial_indent="  ", subsequent_indent="    ") for row in rows
    )
    return "\n".join([title, *wrapped])


def _count(number: float, word: str) -> str:
    plural = word + ("es" if word.endswith("ch") else "s")
    return f"{number:g} {word if number == 1 else plural}"
