"""Estimates corrected by what launches really took in earlier sweeps."""

from __future__ import annotations

import statistics
from collections.abc import Iterable

import msgspec

from matrixrun.evidence.launches import Launch, Role
from matrixrun.plan.cost import total_seconds
from matrixrun.plan.types import Plan


class Measured(msgspec.Struct, frozen=True, kw_only=True):
    """What an earlier sweep expected of a launch, and what it took, in seconds."""

    fingerprint: str
    kind: str
    engine: str
    model: str
    role: Role
    expected: float
    took: float


class Costs(msgspec.Struct, frozen=True):
    """How many times longer than estimated launches took: the median over the same launch, where
    there is none over the same engine, model and role of a matrix, else over kind and role."""

    ratios: dict[tuple[str, ...], float]

    @classmethod
    def of(cls, measured: Iterable[Measured]) -> Costs:
        """What these measurements teach."""
        found: dict[tuple[str, ...], list[float]] = {}
        for one in measured:
            if one.expected > 0 and one.took > 0:
                for key in _keys(one.fingerprint, one.engine, one.model, one.kind, one.role):
                    found.setdefault(key, []).append(one.took / one.expected)
        return cls({key: statistics.median(values) for key, values in found.items()})

    def seconds(self, launch: Launch) -> float:
        """The launch's estimate, corrected."""
        config = launch.config
        keys = _keys(launch.fingerprint, config.engine, config.model, config.kind, launch.role)
        ratio = next((self.ratios[key] for key in keys if key in self.ratios), 1.0)
        return round(launch.seconds * ratio, 1)


def _keys(
    fingerprint: str, engine: str, model: str, kind: str, role: Role
) -> tuple[tuple[str, ...], ...]:
    """From the most to the least alike."""
    return (fingerprint,), (engine, model, role.value), (kind, role.value)


def with_costs(plan: Plan, costs: Costs) -> Plan:
    """The plan with its estimates corrected; nothing else of it changes."""
    launches = tuple(
        msgspec.structs.replace(launch, seconds=costs.seconds(launch)) for launch in plan.launches
    )
    return msgspec.structs.replace(
        plan,
        launches=launches,
        seconds=total_seconds(
            launches, accelerators=plan.accelerators_at_once, cpus=plan.cpus_at_once
        ),
    )
