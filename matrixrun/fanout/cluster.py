"""The Ray cluster: start a local one or connect, and say what it can hold."""

from __future__ import annotations

import logging
import os
import re
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import ray

from matrixrun.evidence.errors import ClusterError, UserError
from matrixrun.evidence.launches import Gang
from matrixrun.plan import Node, Placement, holds, share

RETURN_SECONDS = 600.0
"""How long what no living node holds may wait for nodes that were lost."""

LOCAL_ATTEMPTS = 2

PACKAGE_PARENT = str(Path(__file__).resolve().parents[2])


def connect(address: str | None = None) -> None:
    """Connect to the cluster at `address` (or RAY_ADDRESS; `auto` is the one on this machine), or
    start one of our own that ends with this process.

    A local cluster has no dashboard: job submission needs a real one, and it costs a gigabyte.

    Raises:
        UserError: the cluster cannot be reached.
        ClusterError: a local one did not start, twice.
    """
    if ray.is_initialized():
        return
    check_address(address)
    wanted = address or os.environ.get("RAY_ADDRESS")
    # Workers import this very package; an installed copy on the nodes is used where there is one.
    runtime_env = {"env_vars": {"PYTHONPATH": _python_path()}}
    options: dict[str, Any] = {
        "logging_level": logging.ERROR,
        "log_to_driver": False,
        "runtime_env": runtime_env,
    }
    if is_local(address):
        # Without an address Ray would join whatever cluster was last started on this machine.
        options |= {"address": "local", "include_dashboard": False}
        _start_local(options)
        return
    try:
        ray.init(address=wanted, **options)
    except Exception as error:  # Ray raises bare ones too
        raise UserError(
            f"Ray: cannot connect to {wanted}: {_first_line(error)}",
            remedy="check --address and that `ray status` works there; a cluster that requires a"
            " token needs RAY_AUTH_MODE=token in this shell too",
        ) from error


def _start_local(options: dict[str, Any]) -> None:
    """Start a Ray of our own; where it does not come up in its own time, once more."""
    for attempt in range(1, LOCAL_ATTEMPTS + 1):
        try:
            ray.init(**options)
            return
        except Exception as error:  # one that is too slow is a bare Exception
            ray.shutdown()
            if attempt == LOCAL_ATTEMPTS:
                raise ClusterError(
                    f"Ray did not start on this machine in {attempt} attempts: "
                    f"{_first_line(error)}",
                    remedy="the machine is mostly too busy, or short of memory or of room in /tmp:"
                    " let other work end, then run the same again (with --results, the folder is"
                    " resumed)",
                ) from error


def _first_line(error: Exception) -> str:
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def is_local(given: str | None) -> bool:
    """Whether `connect(given)` starts a Ray of our own: launches run on this machine then."""
    return not given and not os.environ.get("RAY_ADDRESS")


def check_address(given: str | None) -> None:
    """Refuse an address (`--address`, or RAY_ADDRESS without it) that the driver cannot work with:
    Ray would try for half a minute first.

    A client's connection (`ray://`) has neither placement on chosen nodes nor what is free on each;
    `http://` is the dashboard's, which takes jobs.

    Raises:
        UserError: it is no address of a cluster's head as seen from its nodes.
    """
    address, named = given or os.environ.get("RAY_ADDRESS"), "--address" if given else "RAY_ADDRESS"
    if not address or address in ("auto", "local"):
        return
    scheme = address.partition("://")[0].lower()
    if scheme == address.lower():
        if not re.fullmatch(r"\S+:\d+", address):
            raise UserError(
                f"{named} {address}: is not the address of a cluster",
                remedy="write HOST:6379, the port of the head node's Ray, or `auto` for the cluster"
                " that this machine is part of",
            )
        return
    dashboard = address if scheme.startswith("http") else "http://HEAD:8265"
    raise UserError(
        f"{named} {address}: the driver has to run inside the cluster",
        remedy=f"from elsewhere, `matrixrun submit FILE --address {dashboard}` runs it there; on a"
        " node of the cluster, name HOST:6379 or `auto`",
    )


def _python_path() -> str:
    old = os.environ.get("PYTHONPATH", "")
    return os.pathsep.join(part for part in (PACKAGE_PARENT, old) if part)


def nodes() -> list[Node]:
    """Return the living nodes with their total resources."""
    listed: list[dict[str, Any]] = ray.nodes()  # type: ignore[no-untyped-call]
    return [_node(entry) for entry in listed if entry["Alive"]]


def _node(entry: dict[str, Any]) -> Node:
    resources: dict[str, float] = entry["Resources"]
    kinds = [name.partition(":")[2] for name in resources if name.startswith("accelerator_type:")]
    return Node(
        id=entry["NodeID"],
        cpus=float(resources.get("CPU", 0.0)),
        accelerators=int(resources.get("GPU", 0)),
        accelerator=kinds[0] if kinds else None,
        memory_bytes=int(resources.get("memory", 0)),
    )


class Lately:
    """The nodes that live, and those that were lost a short while ago: they may come back, as a
    preempted machine or a restarted container does."""

    def __init__(self) -> None:
        self._seen: dict[str, tuple[float, Node]] = {}

    def nodes(self) -> list[Node]:
        """All of them, with their total resources."""
        now = time.monotonic()
        for node in nodes():
            self._seen[node.id] = (now, node)
        return [node for at, node in self._seen.values() if now - at < RETURN_SECONDS]


def free(there: Sequence[Node], ours: Iterable[Placement]) -> list[Node]:
    """What is left of the nodes beside our own placements and what other jobs hold.

    Ray says what is available some moments late: what we hold is counted by ourselves.
    """
    from ray._private.state import available_resources_per_node  # there is no public one

    available: dict[str, dict[str, float]] = available_resources_per_node()  # type: ignore[no-untyped-call]
    held: dict[str, list[Node]] = {}
    for placement in ours:
        for name in placement.nodes:
            held.setdefault(name, []).append(share(placement.launch.gang))
    return [
        _left(node, held.get(node.id, []), available[node.id])
        for node in there
        if node.id in available
    ]


def _left(node: Node, ours: Sequence[Node], available: dict[str, float]) -> Node:
    def rest(total: float, mine: float, resource: str) -> float:
        others = max(0.0, total - available.get(resource, 0.0) - mine)
        return total - mine - others

    return Node(
        node.id,
        rest(node.cpus, sum(x.cpus for x in ours), "CPU"),
        int(rest(node.accelerators, sum(x.accelerators for x in ours), "GPU")),
        node.accelerator,
        rest(node.memory_bytes, sum(x.memory_bytes for x in ours), "memory"),
    )


def bundles(gang: Gang) -> list[dict[str, float]]:
    """What a gang holds, one bundle a node."""
    part = share(gang)
    held: dict[str, float] = {"CPU": part.cpus}
    if part.accelerators:
        held["GPU"] = float(part.accelerators)
        if part.accelerator is not None:
            held[f"accelerator_type:{part.accelerator}"] = 0.001
    if part.memory_bytes:
        held["memory"] = float(part.memory_bytes)
    return [dict(held) for _ in range(gang.nodes)]


def infeasible(gang: Gang, available: Sequence[Node]) -> str | None:
    """Say why the living nodes could never hold the gang, or None if they can.

    Ray itself raises nothing for an infeasible placement group and waits for ever.
    """
    if holds(available, gang):
        return None
    typed = [n for n in available if gang.accelerator in (None, n.accelerator)]
    if gang.accelerators and not typed:
        seen = sorted({n.accelerator or "none" for n in available})
        return f"no node has accelerators of type {gang.accelerator} (found: {', '.join(seen)})"
    part = share(gang)
    largest = "; ".join(
        f"{n.accelerators} accelerators, {n.cpus:g} cores, {n.memory_bytes / 2**30:.0f} GiB"
        for n in sorted(typed, key=lambda n: (-n.accelerators, -n.cpus))[:3]
    )
    where = "one node" if gang.nodes == 1 else f"each of {gang.nodes} nodes"
    return (
        f"needs {part.accelerators} accelerators, {part.cpus:g} cores and"
        f" {part.memory_bytes / 2**30:.0f} GiB on {where}; of the {len(available)} nodes the"
        f" largest have {largest or 'nothing: no node is alive'}"
    )
