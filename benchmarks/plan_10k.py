"""Seconds to expand, plan and serialise a matrix of 10,000 cells.

    python benchmarks/plan_10k.py

Two shapes: `shared` sweeps the client's batch size in each launch, as a real matrix does;
`distinct` gives each cell an on launch of its own, the worst there is.
"""

from __future__ import annotations

import json
import time
from typing import Any

from matrixrun.matrix import Matrix, expand
from matrixrun.plan import build, to_json

SHAPES: dict[str, dict[str, int]] = {
    "shared": {"engines": 2, "drafts": 25, "batches": 25},
    "distinct": {"engines": 2, "drafts": 625, "batches": 1},
}


def matrix_of(engines: int, drafts: int, batches: int) -> Matrix:
    """Return a matrix of engines x drafts x batches x 2 topologies x 2 caches x 2 quantizations."""
    grid: dict[str, Any] = {
        "engine": [f"vllm-{i}" for i in range(engines)],
        "model": "dense",
        "quantization": ["none", "fp8"],
        "tensor_parallel_size": [1, 2],
        "prefix_caching": [True, False],
        "batch_size": list(range(1, batches + 1)),
        "speculation": [
            {"method": "ngram", "num_speculative_tokens": k + 1} for k in range(drafts)
        ],
    }
    return Matrix.model_validate(
        {
            "name": "ten-thousand",
            "engines": {name: {"kind": "vllm", "install": [f"vllm==0.3{i}.0"]}
                        for i, name in enumerate(grid["engine"])},
            "models": {"dense": {"target": {"path": "Qwen/Qwen3-8B"}}},
            "grid": grid,
            "resources": {"accelerator": "H100"},
        }
    )  # fmt: skip


def main() -> None:
    """Print the seconds of each stage for each shape."""
    for name, shape in SHAPES.items():
        cpu = time.process_time()
        matrix = matrix_of(**shape)
        start = time.perf_counter()
        expansion = expand(matrix, file="benchmark")
        expanded = time.perf_counter()
        plan = build(matrix, expansion)
        built = time.perf_counter()
        text = json.dumps(to_json(plan))
        done = time.perf_counter()
        print(
            f"{name}: {len(plan.cells)} cells, {len(plan.launches)} launches, "
            f"{len(text) / 1e6:.1f} MB; expand {expanded - start:.2f} s, "
            f"build {built - expanded:.2f} s, json {done - built:.2f} s, "
            f"total {done - start:.2f} s ({time.process_time() - cpu:.2f} s of CPU)"
        )


if __name__ == "__main__":
    main()
