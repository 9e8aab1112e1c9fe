"""What launches took in earlier sweeps, read from their results folders."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from matrixrun.evidence.errors import UserError
from matrixrun.evidence.launches import LaunchEnd, Role
from matrixrun.plan import Costs, Measured
from matrixrun.record.store import Store
from matrixrun.record.sweep import is_sweep, list_sweeps


class _Planned(msgspec.Struct, frozen=True):
    """What of a stored launch matters here."""

    id: str
    role: Role
    fingerprint: str
    seconds: float
    kind: str = ""
    engine: str = ""
    model: str = ""


class _PlannedLaunches(msgspec.Struct, frozen=True):
    launches: tuple[_Planned, ...]


def read_costs(folders: Iterable[Path]) -> Costs:
    """What the sweeps in these folders teach: results folders, or folders of them.

    Only launches that served to their end at the first attempt count.

    Raises:
        UserError: a folder holds no sweep.
        StoreError: what lies there is damaged.
    """
    return Costs.of(one for folder in folders for one in _measured(folder))


def _measured(folder: Path) -> Iterator[Measured]:
    sweeps = [folder] if is_sweep(folder) else list(list_sweeps(folder).values())
    if not sweeps:
        raise UserError(
            f"--costs: {folder} holds no sweep",
            remedy="name a results folder, or the folder that holds several",
        )
    for root in sweeps:
        store = Store.open(root)
        if not (root / "plan.json").exists():
            continue
        for launch in store.plan(_PlannedLaunches).launches:
            outcome = store.outcome(launch.id)
            if outcome is None or outcome.end is not LaunchEnd.SERVED:
                continue
            if outcome.attempts == 1 and outcome.seconds is not None:
                yield Measured(
                    fingerprint=launch.fingerprint,
                    kind=launch.kind,
                    engine=launch.engine,
                    model=launch.model,
                    role=launch.role,
                    expected=launch.seconds,
                    took=outcome.seconds,
                )
