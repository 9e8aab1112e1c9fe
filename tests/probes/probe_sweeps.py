"""A small sweep for the tests of the probes."""

from typing import Any

import numpy as np

from matrixrun.evidence.requests import Observation
from matrixrun.matrix import Matrix, expand
from matrixrun.plan import Plan, build
from matrixrun.workloads import Prompt, Workload

PROMPTS = 5


def matrix(**changes: Any) -> Matrix:
    """Return a matrix of one target with two draft lengths at two batch sizes."""
    speculation = [{"method": "ngram", "num_speculative_tokens": k} for k in (2, 4)]
    sections: dict[str, Any] = {
        "name": "small",
        "engines": {"vllm": {"kind": "vllm"}},
        "models": {"dense": {"target": {"path": "org/target"}}},
        "grid": {
            "engine": "vllm",
            "model": "dense",
            "batch_size": [1, 8],
            "speculation": speculation,
        },
    }
    return Matrix.model_validate({**sections, **changes})


def plan(made: Matrix) -> Plan:
    """Return the plan of `made`."""
    return build(made, expand(made, file="small.yaml"))


def workload() -> Workload:
    """Return prompts `p-0` to `p-4`; prompt i has i + 1 tokens."""
    prompts = tuple(
        Prompt(id=f"p-{i}", category="decided", token_ids=tuple(range(100, 101 + i)))
        for i in range(PROMPTS)
    )
    return Workload(prompts=prompts, sha256="")


def observation(index: int, *tokens: int) -> Observation:
    """Return what an arm emitted for prompt `index`."""
    return Observation(
        request=f"p-{index}",
        prompt=f"p-{index}",
        category="decided",
        token_ids=np.array(tokens, np.int32),
    )
