"""`plan --simulate`: how long a sweep takes on given nodes, and how good that is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from matrixrun.evidence.launches import Launch
from matrixrun.matrix import Matrix
from matrixrun.plan.arms import batch_size
from matrixrun.plan.bound import lower_bound
from matrixrun.plan.cost import answers_each, launch_seconds
from matrixrun.plan.nodes import Node, holds
from matrixrun.plan.order import Queue, first_come
from matrixrun.plan.render import duration
from matrixrun.plan.sharing import Server
from matrixrun.plan.simulate import simulate
from matrixrun.plan.types import Plan


class Forecast(msgspec.Struct, frozen=True, kw_only=True):
    """A sweep on given nodes, times in seconds.

    `bound` is what no order can beat, `first_come` what the same launches take in the order of
    the matrix, `naive` what one server per arm takes in that order (`one_server_per_arm`), and
    `naive_launches` their number. `rounds` says how often each accelerator (core) is used.
    `held_hours` are accelerator (core) hours in launches, `node_hours` those of all nodes until
    the end. `impossible` launches are left out.
    """

    nodes: str
    accelerator: str | None
    launches: int
    naive_launches: int
    rounds: float
    makespan: float
    bound: float
    first_come: float
    naive: float
    held_hours: float
    node_hours: float
    impossible: tuple[str, ...] = ()


def forecast(matrix: Matrix, plan: Plan, nodes: Sequence[Node], *, named: str) -> Forecast:
    """Simulate a plan on `nodes`, `named` as the user did."""
    launches = [launch for launch in plan.launches if holds(nodes, launch.gang)]
    naive = [x for x in one_server_per_arm(matrix, plan) if holds(nodes, x.gang)]
    listed = sorted(launches, key=_by_cell(plan))
    makespan = simulate(Queue(launches), nodes).makespan
    size = sum(node.accelerators or node.cpus for node in nodes)
    work = sum(x.seconds * (x.gang.accelerators or x.gang.cpus) for x in launches)
    mean = sum(x.seconds for x in launches) / len(launches) if launches else 1.0
    return Forecast(
        nodes=named,
        accelerator=matrix.resources.accelerator,
        launches=len(launches),
        naive_launches=len(naive),
        rounds=work / size / mean,
        makespan=makespan,
        bound=lower_bound(launches, nodes),
        first_come=simulate(Queue(listed, priority=first_come, reserve=False), nodes).makespan,
        naive=simulate(Queue(naive, priority=first_come, reserve=False), nodes).makespan,
        held_hours=work / 3600,
        node_hours=makespan * size / 3600,
        impossible=tuple(x.id for x in plan.launches if not holds(nodes, x.gang)),
    )


def one_server_per_arm(matrix: Matrix, plan: Plan) -> list[Launch]:
    """The launches of a plan that shares nothing: for each pair an on and an off server, and those
    that the cell's probes need for themselves, each with one batch size. Of what the plan does,
    control launches alone are missing."""
    by_id = {launch.id: launch for launch in plan.launches}
    sizes = {cell.id: batch_size(cell) for cell in plan.cells}
    found = []
    for pair in plan.pairs:
        own = [by_id[name] for name in (pair.on, pair.forced, pair.traced) if name is not None]
        scored = sum(answers_each(matrix, x.role) for x in own if x.id != pair.traced)
        for launch in (*own, by_id[pair.off]):
            alone = Server(
                launch.role,
                launch.config,
                launch.command,
                launch.gang,
                launch.id,
                launch.fingerprint,
                cells=[pair.cell],
                batch_sizes={sizes[pair.cell]},
            )
            found.append(
                msgspec.structs.replace(
                    launch,
                    id=f"{launch.id}/{pair.cell}",
                    cells=(pair.cell,),
                    seconds=launch_seconds(matrix, alone, scored),
                )
            )
    return found


def _by_cell(plan: Plan) -> Callable[[Launch], int]:
    first = {cell.id: position for position, cell in reversed(list(enumerate(plan.cells)))}
    return lambda launch: min(first[cell] for cell in launch.cells)


def forecast_text(found: Forecast) -> str:
    """A forecast for a terminal."""
    unit = found.accelerator or "core"
    over = max(0.0, found.makespan / found.bound - 1) if found.bound else 0.0
    fewer = found.naive_launches / found.launches if found.launches else 1.0

    def time(seconds: float) -> str:
        return duration(seconds, like=found.makespan)

    rows = [
        f"on {found.nodes} ({unit}), {found.rounds:.1f} rounds (launches of mean length that each"
        f" {unit} serves in turn):",
        f"  this order             {time(found.makespan)}",
        f"  no order can beat      {time(found.bound)}; this one is {over:.1%} above",
        f"  as the matrix lists    {time(found.first_come)}, what fits first",
        f"  one server per arm     {time(found.naive)}, in {found.naive_launches} launches"
        f" instead of {found.launches} ({fewer:.1f} times as many)",
        f"  {unit + ' hours':22} {found.held_hours:.1f} in launches,"
        f" {found.node_hours:.1f} until the nodes are free",
    ]
    if found.impossible:
        rows.append(f"  left out, since no node holds them: {', '.join(found.impossible)}")
    return "\n".join(rows) + "\n"


def forecast_json(found: Forecast) -> str:
    """A forecast for programs."""
    return msgspec.json.format(msgspec.json.encode(found), indent=2).decode() + "\n"
