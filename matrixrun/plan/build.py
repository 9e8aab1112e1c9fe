"""From a matrix and its cells to a plan."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matrixrun.evidence.launches import Launch, Role
from matrixrun.matrix import Expansion, Matrix
from matrixrun.plan.cost import answers_each, launch_seconds, total_seconds
from matrixrun.plan.methods import method_notes
from matrixrun.plan.notes import attach_notes, capacity_notes, strength_notes, surface_notes
from matrixrun.plan.order import in_order
from matrixrun.plan.power import power_notes
from matrixrun.plan.sharing import Server, share
from matrixrun.plan.types import Group, Plan, PlannedPair
from matrixrun.workloads import check_categories


def build(matrix: Matrix, expansion: Expansion) -> Plan:
    """Return the plan of a sweep: the same for every order of the grid.

    Raises:
        UserError: the matrix asks for something that no launch could do.
    """
    if matrix.workload.path is None:
        check_categories(matrix.workload.categories)
    shared = share(matrix, expansion.cells)
    groups = group(shared.pairs)
    launches = _launches(matrix, shared.servers, groups)
    ordered = in_order(groups, launches)
    accelerators = max((launch.gang.accelerators for launch in ordered), default=0)
    cpus = max((launch.gang.cpus for launch in ordered), default=0.0)
    return Plan(
        name=matrix.name,
        cells=expansion.cells,
        excluded=expansion.excluded,
        refused=shared.refused,
        launches=ordered,
        pairs=shared.pairs,
        groups=groups,
        naive_launches=2 * len(shared.pairs),
        accelerators_at_once=accelerators,
        cpus_at_once=cpus,
        seconds=total_seconds(ordered, accelerators=accelerators, cpus=cpus),
        confirmation_launches_at_most=len(groups),
        notes=(
            *power_notes(matrix, len(shared.pairs)),
            *method_notes(ordered),
            *capacity_notes(ordered),
            *attach_notes(matrix, ordered),
            *surface_notes(matrix, ordered),
            *strength_notes(matrix, expansion),
            *(
                f"{rule} matches nothing in the grid, so it excludes nothing."
                for rule in expansion.idle
            ),
            *(f"{rule} matches no cell, so it expects nothing." for rule in expansion.unmet),
        ),
        interactions=expansion.interactions,
    )


def group(pairs: Sequence[PlannedPair]) -> tuple[Group, ...]:
    """Return the pairs by the off launch that they are compared with."""
    members: dict[str, list[PlannedPair]] = {}
    for pair in pairs:
        members.setdefault(pair.off, []).append(pair)
    return tuple(
        Group(
            id=off.removeprefix(f"{Role.A}."),
            scorer=off,
            null=found[0].null,
            on=tuple(dict.fromkeys(pair.on for pair in found)),
            forced=tuple(dict.fromkeys(pair.forced for pair in found if pair.forced)),
            traced=tuple(dict.fromkeys(pair.traced for pair in found if pair.traced)),
            cells=tuple(pair.cell for pair in found),
        )
        for off, found in members.items()
    )


def _launches(
    matrix: Matrix, servers: Mapping[str, Server], groups: Sequence[Group]
) -> dict[str, Launch]:
    """Return the servers as launches, by id."""
    scored = {
        one.scorer: sum(
            len(servers[name].batch_sizes) * answers_each(matrix, servers[name].role)
            for name in one.others
            if name not in one.traced  # their answers are compared with nobody's
        )
        for one in groups
    }
    return {
        name: Launch(
            id=name,
            role=server.role,
            config=server.config,
            command=server.command,
            follower=server.follower,
            gang=server.gang,
            cells=tuple(server.cells),
            fingerprint=server.fingerprint,
            seconds=launch_seconds(matrix, server, scored.get(name, 0)),
        )
        for name, server in servers.items()
    }
