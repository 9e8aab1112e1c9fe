"""The Ray cluster: start a local one or connect, and say what it can hold."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import ray

from matrixrun.evidence.errors import UserError
from matrixrun.evidence.launches import Gang

PACKAGE_PARENT = str(Path(__file__).resolve().parents[2])


@dataclass(frozen=True)
class Node:
    """One node's total resources, in Ray's own units (memory in bytes)."""

    id: str
    cpus: float
    accelerators: int
    accelerator: str | None
    memory_bytes: int = 0


def connect(address: str | None = None) -> None:
    """Connect to the cluster at `address` (or RAY_ADDRESS; `auto` is the one on this machine), or
    start one of our own that ends with this process.

    A local cluster has no dashboard: job submission needs a real one, and it costs a gigabyte.

    Raises:
        UserError: the cluster cannot be reached.
    """
    if ray.is_initialized():
        return
    wanted = address or os.environ.get("RAY_ADDRESS")
    # Workers import this very package; an installed copy on the nodes is used where there is one.
    runtime_env = {"env_vars": {"PYTHONPATH": _python_path()}}
    options: dict[str, Any] = {
        "logging_level": logging.ERROR,
        "log_to_driver": False,
        "runtime_env": runtime_env,
    }
    if wanted is None:
        # Without an address Ray would join whatever cluster was last started on this machine.
        options |= {"address": "local", "include_dashboard": False}
    else:
        options["address"] = wanted
    try:
        ray.init(**options)
    except (ConnectionError, RuntimeError, ValueError, TimeoutError) as error:
        where = wanted or "a local cluster"
        raise UserError(
            f"Ray: cannot connect to {where}: {error}",
            remedy="check --address and that `ray status` works there; a cluster that requires a"
            " token needs RAY_AUTH_MODE=token in this shell too",
        ) from error


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


def bundle(gang: Gang) -> dict[str, float]:
    """The one bundle that a gang within a node holds."""
    held: dict[str, float] = {"CPU": gang.cpus}
    if gang.accelerators:
        held["GPU"] = float(gang.accelerators)
        if gang.accelerator is not None:
            held[f"accelerator_type:{gang.accelerator}"] = 0.001
    if gang.memory_bytes:
        held["memory"] = float(gang.memory_bytes)
    return held


def infeasible(gang: Gang, available: list[Node]) -> str | None:
    """Say why no living node could ever hold the gang, or None if one can.

    Ray itself raises nothing for an infeasible placement group and waits for ever.
    """
    typed = [n for n in available if gang.accelerator in (None, n.accelerator)]
    if gang.accelerators and not typed:
        seen = sorted({n.accelerator or "none" for n in available})
        return f"no node has accelerators of type {gang.accelerator} (found: {', '.join(seen)})"
    if any(_holds(node, gang) for node in typed):
        return None
    largest = "; ".join(
        f"{n.accelerators} accelerators, {n.cpus:g} cores, {n.memory_bytes / 2**30:.0f} GiB"
        for n in sorted(typed, key=lambda n: (-n.accelerators, -n.cpus))[:3]
    )
    return (
        f"needs {gang.accelerators} accelerators, {gang.cpus:g} cores and"
        f" {gang.memory_bytes / 2**30:.0f} GiB on one node; the largest nodes have"
        f" {largest or 'nothing: no node is alive'}"
    )


def _holds(node: Node, gang: Gang) -> bool:
    enough_memory = gang.memory_bytes <= node.memory_bytes
    return node.cpus >= gang.cpus and node.accelerators >= gang.accelerators and enough_memory
