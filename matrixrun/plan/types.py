"""What a plan is made of."""

from __future__ import annotations

import msgspec

from matrixrun.evidence.cells import Cell, Excluded
from matrixrun.evidence.launches import Launch, Role
from matrixrun.matrix import Interactions


class PlannedPair(msgspec.Struct, frozen=True, kw_only=True):
    """The launches of a cell, by id. `null` is launch B; None when A is its own control. `forced`
    and `traced` are the extra launches with planned drafts and with a ledger; None when there is
    none."""

    cell: str
    on: str
    off: str
    null: str | None = None
    forced: str | None = None
    traced: str | None = None

    @property
    def roles(self) -> dict[str, str]:
        """The launches by role."""
        named = (self.on, self.off, self.null, self.forced, self.traced)
        roles = (Role.ON, Role.A, Role.B, Role.FORCED, Role.TRACED)
        return {str(role): name for role, name in zip(roles, named, strict=True) if name}

    @property
    def launches(self) -> tuple[str, ...]:
        """All of them, each once."""
        return tuple(self.roles.values())


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """All that is compared with one off launch: one target configuration.

    `scorer` is launch A, `null` launch B or None, `on` the speculating launches, `forced` and
    `traced` the extra ones with planned drafts and with a ledger, all by id.
    """

    id: str
    scorer: str
    null: str | None
    on: tuple[str, ...]
    cells: tuple[str, ...]
    forced: tuple[str, ...] = ()
    traced: tuple[str, ...] = ()

    @property
    def others(self) -> tuple[str, ...]:
        """Every launch but the scorer, which runs last."""
        return (*self.on, *self.forced, *self.traced, *(() if self.null is None else (self.null,)))


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """What a sweep will do.

    `cells` are all cells, the refused ones too; `refused` maps a cell's id to the reason why it
    is not launched, and such a cell has no pair. `launches` stand in the order in which they are
    started. `naive_launches` counts one server per arm: two a pair, and no null arm.
    `accelerators_at_once` and `cpus_at_once` are what the largest gang holds. `seconds` is a rough
    estimate with room for that gang alone. `confirmation_launches_at_most` bounds the second wave.
    `interactions` says what a covering array holds; None for the full grid, and for a part.
    """

    name: str
    cells: tuple[Cell, ...]
    excluded: tuple[Excluded, ...]
    refused: dict[str, str]
    launches: tuple[Launch, ...]
    pairs: tuple[PlannedPair, ...]
    groups: tuple[Group, ...]
    naive_launches: int
    accelerators_at_once: int
    cpus_at_once: float
    seconds: float
    confirmation_launches_at_most: int
    notes: tuple[str, ...] = ()
    interactions: Interactions | None = None
