"""What scheduling itself costs: 10,000 cells over 1,000 accelerators, launches of 5 minutes.

    python benchmarks/schedule.py

The plan is the driver's, the queue is the driver's, nodes and launches are simulated. Printed for
each shape: the makespan against the least possible, the seconds that deciding took in all and for
each decision, their share of the makespan, and the most memory that the process held.
"""

from __future__ import annotations

import random
import resource
from typing import Any

import msgspec

from matrixrun.evidence.launches import Launch
from matrixrun.matrix import Matrix, expand
from matrixrun.plan import Plan, Queue, build, lower_bound, parse_nodes, simulate

NODES = "125x8"
LAUNCH_SECONDS = 300.0
SPREAD = 0.3  # launches take 0.7 to 1.3 times as long as estimated

SHAPES: dict[str, dict[str, Any]] = {
    "a launch for each cell, TP 1 and 2": {"drafts": 625, "batches": 1, "widths": [1, 2]},
    "25 cells a launch, TP 1 and 2": {"drafts": 25, "batches": 25, "widths": [1, 2]},
    "a launch for each cell, TP 1, 2, 4 and 8": {"drafts": 312, "batches": 1,
                                                 "widths": [1, 2, 4, 8]},
}  # fmt: skip


def plan_of(drafts: int, batches: int, widths: list[int]) -> Plan:
    """The plan of some 10,000 cells, every launch estimated at five minutes."""
    engines = {f"vllm-{i}": {"kind": "vllm", "install": [f"vllm==0.3{i}.0"]} for i in range(2)}
    matrix = Matrix.model_validate(
        {
            "name": "ten-thousand",
            "engines": engines,
            "models": {"dense": {"target": {"path": "Qwen/Qwen3-8B"}}},
            "grid": {
                "engine": list(engines),
                "model": "dense",
                "quantization": ["none", "fp8"],
                "tensor_parallel_size": widths,
                "prefix_caching": [True, False],
                "batch_size": list(range(1, batches + 1)),
                "speculation": [
                    {"method": "ngram", "num_speculative_tokens": k + 1} for k in range(drafts)
                ],
            },
            "resources": {"accelerator": "H100"},
        }
    )
    plan = build(matrix, expand(matrix, file="benchmark"))
    launches = tuple(msgspec.structs.replace(x, seconds=LAUNCH_SECONDS) for x in plan.launches)
    return msgspec.structs.replace(plan, launches=launches)


def main() -> None:
    """Print a line for each shape."""
    nodes = parse_nodes(NODES, "H100")
    for name, shape in SHAPES.items():
        plan = plan_of(**shape)
        chance = random.Random(0)
        took = {
            x.id: LAUNCH_SECONDS * chance.uniform(1 - SPREAD, 1 + SPREAD) for x in plan.launches
        }

        def seconds(launch: Launch, took: dict[str, float] = took) -> float:
            return took[launch.id]

        ran = simulate(Queue(plan.launches), nodes, seconds)
        real = [msgspec.structs.replace(x, seconds=took[x.id]) for x in plan.launches]
        bound = lower_bound(real, nodes)
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
        print(
            f"{name}: {len(plan.cells)} cells, {len(plan.launches)} launches; "
            f"makespan {ran.makespan:.0f} s, {ran.makespan / bound - 1:.1%} above the bound; "
            f"deciding {ran.deciding_seconds:.1f} s in all, "
            f"{1e3 * ran.deciding_seconds / len(plan.launches):.2f} ms a launch, "
            f"{ran.deciding_seconds / ran.makespan:.2%} of the makespan; {memory:.2f} GiB"
        )


if __name__ == "__main__":
    main()
