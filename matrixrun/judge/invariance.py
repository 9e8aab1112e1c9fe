"""invariance: acceptance must not depend on batch size, prefix caching or topology.

With one launch a side a difference may be the launch's own, so it is a notice and no more.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec
from scipy import stats

from matrixrun.evidence.cells import Cell
from matrixrun.evidence.verdicts import Finding, Severity
from matrixrun.judge.statistics import Ratio

# The axes over which acceptance is compared; all others must be equal.
FREE_AXES = frozenset({
    "batch_size", "prefix_caching", "tensor_parallel_size", "pipeline_parallel_size",
    "data_parallel_size",
})  # fmt: skip
LEVEL = 0.001
LEAST_RELATIVE = 0.05


def acceptance_notices(
    cells: Sequence[Cell], lengths: Mapping[str, Ratio]
) -> dict[str, tuple[Finding, ...]]:
    """Return, by cell id, notices for cells whose mean acceptance length leaves its group's.

    `lengths` holds the mean acceptance length of each cell by id. Each cell is compared with the
    pooled value of the others in its group (two-sided normal test, corrected over the sweep).
    """
    compared = comparable_groups([
        cell for cell in cells if cell.id in lengths and math.isfinite(lengths[cell.id].error)
    ])  # fmt: skip
    total = max(1, sum(len(group) for group in compared))
    told: dict[str, tuple[Finding, ...]] = {}
    for group in compared:
        for name in group:
            others = [lengths[other] for other in group if other != name]
            finding = _compare(lengths[name], others, LEVEL / total)
            if finding is not None:
                told[name] = (finding,)
    return told


def comparable_groups(cells: Sequence[Cell]) -> list[list[str]]:
    """Return the ids of cells that differ in the free axes only, in groups of two and more."""
    groups: dict[bytes, set[str]] = {}
    for cell in cells:
        groups.setdefault(_key(cell), set()).add(cell.id)
    return [sorted(group) for group in groups.values() if len(group) > 1]


def _key(cell: Cell) -> bytes:
    fixed = {name: value for name, value in cell.axes.items() if name not in FREE_AXES}
    return msgspec.json.encode(fixed, order="deterministic")


def _compare(mine: Ratio, others: list[Ratio], level: float) -> Finding | None:
    values = sorted(other.value for other in others)
    pooled = math.fsum(values) / len(values)
    error = math.sqrt(
        mine.error**2 + math.fsum(sorted(o.error**2 for o in others)) / len(others) ** 2
    )
    difference = mine.value - pooled
    if abs(difference) < LEAST_RELATIVE * pooled:
        return None
    p_value = 0.0 if error == 0.0 else float(2.0 * stats.norm.sf(abs(difference) / error))
    if p_value >= level:
        return None
    text = (
        f"mean acceptance length is {mine.value:.3g}; cells that differ only in batch size, "
        f"caching or topology have {pooled:.3g} (p = {p_value:.2g}; one launch a side)"
    )
    numbers = {"value": mine.value, "others": pooled, "p_value": p_value}
    return Finding(
        kind="acceptance-invariance", severity=Severity.NOTICE, text=text, numbers=numbers
    )
