"""A part of a plan: what `--only` leaves."""

from __future__ import annotations

import difflib
import fnmatch
from collections.abc import Sequence

import msgspec

from matrixrun.evidence.errors import UserError
from matrixrun.plan.build import group
from matrixrun.plan.cost import total_seconds
from matrixrun.plan.types import Plan

GLOB = frozenset("*?[")


def select(plan: Plan, only: Sequence[str]) -> Plan:
    """Return the part of `plan` that its cells `only` need.

    Launches keep their ids, settings and fingerprints, so that a part's results fit the whole.

    Args:
        plan: the whole.
        only: cell ids, or patterns with `*`, `?` and `[...]`; empty for all.

    Raises:
        UserError: one of `only` names no cell.
    """
    if not only:
        return plan
    kept = _matching([cell.id for cell in plan.cells], only)
    pairs = tuple(pair for pair in plan.pairs if pair.cell in kept)
    needed = {name for pair in pairs for name in pair.launches}
    launches = tuple(
        msgspec.structs.replace(launch, cells=tuple(c for c in launch.cells if c in kept))
        for launch in plan.launches
        if launch.id in needed
    )
    groups = group(pairs)
    accelerators = max((launch.gang.accelerators for launch in launches), default=0)
    cpus = max((launch.gang.cpus for launch in launches), default=0.0)
    return msgspec.structs.replace(
        plan,
        cells=tuple(cell for cell in plan.cells if cell.id in kept),
        refused={cell: reason for cell, reason in plan.refused.items() if cell in kept},
        launches=launches,
        pairs=pairs,
        groups=groups,
        naive_launches=2 * len(pairs),
        accelerators_at_once=accelerators,
        cpus_at_once=cpus,
        seconds=total_seconds(launches, accelerators=accelerators, cpus=cpus),
        confirmation_launches_at_most=len(groups),
        interactions=None,
    )


def _matching(ids: Sequence[str], only: Sequence[str]) -> set[str]:
    """Return the ids that one of `only` names."""
    known = set(ids)
    kept: set[str] = set()
    for wanted in only:
        if wanted in known:
            found = {wanted}
        elif GLOB.isdisjoint(wanted):
            found = set()
        else:
            found = set(fnmatch.filter(ids, wanted))
        if not found:
            close = difflib.get_close_matches(wanted, ids, n=3, cutoff=0.5)
            cells = "the one cell" if len(ids) == 1 else f"the {len(ids)} cells"
            hint = f"did you mean {' or '.join(close)}? " if close else ""
            raise UserError(
                f"--only: no cell is named {wanted!r}",
                remedy=f"{hint}`matrixrun plan` lists {cells}; `*` matches any text",
            )
        kept |= found
    return kept
