"""Matrices for the tests of plan and probes."""

from typing import Any

from matrixrun.matrix import Matrix, expand
from matrixrun.plan import Plan, build

NGRAM = {"method": "ngram", "num_speculative_tokens": 4}
DRAFT = {"method": "draft_model", "draft": "small", "num_speculative_tokens": 3}
GRID: dict[str, Any] = {
    "engine": "vllm",
    "model": "dense",
    "prefix_caching": [True, False],
    "batch_size": [1, 8],
    "speculation": [NGRAM, DRAFT],
}


def matrix(**changes: Any) -> Matrix:
    """Return a small valid matrix with these sections replaced."""
    sections: dict[str, Any] = {
        "name": "small",
        "engines": {"vllm": {"kind": "vllm"}},
        "models": {"dense": {"target": {"path": "org/target"}, "drafts": {"small": {"path": "d"}}}},
        "grid": GRID,
        "control": "within-launch",
    }
    return Matrix.model_validate({**sections, **changes})


def plan(**changes: Any) -> Plan:
    """Return the plan of `matrix(**changes)`."""
    made = matrix(**changes)
    return build(made, expand(made, file="small.yaml"))
