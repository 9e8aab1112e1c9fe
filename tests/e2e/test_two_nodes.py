"""Launches over two nodes, for real: two raylets on this machine, a process group of the engine on
each. One case after another:

    python -m pytest -m long tests/e2e/test_two_nodes.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import psutil
import pytest
import yaml

from matrixrun.fanout.cluster import PACKAGE_PARENT

pytestmark = pytest.mark.long

MATRICES = Path(__file__).parents[2] / "matrices"
DRAFT = {"method": "draft_model", "draft": "draft", "num_speculative_tokens": 3}
NGRAM = {
    "method": "ngram", "num_speculative_tokens": 3, "prompt_lookup_min": 2, "prompt_lookup_max": 4
}  # fmt: skip
CORES = 2  # of a node, all of them one launch's
RUN_SECONDS = 900


def engine_of(file: str, name: str) -> dict[str, Any]:
    """An engine as an example has it."""
    engine: dict[str, Any] = yaml.safe_load((MATRICES / file).read_text())["engines"][name]
    if not engine["overlay"].startswith("builtin:"):
        engine["overlay"] = str((MATRICES / engine["overlay"]).resolve())
    return engine


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A head that holds nothing, and two nodes."""
    from ray_nodes import PatientCluster

    wanted = {"RAY_AUTH_MODE": "disabled", "PYTHONPATH": PACKAGE_PARENT}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ |= wanted
    made = PatientCluster()
    try:
        made.add_node(num_cpus=0, include_dashboard=False)
        for _ in range(2):
            made.add_node(num_cpus=CORES)
        yield made.address
    finally:
        made.shutdown()
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


def process_groups() -> dict[int, str]:
    """The raylet under which each process group of an engine runs, by its node's rank."""
    found = {}
    for process in psutil.process_iter():
        try:
            words, env = process.cmdline(), process.environ()
        except psutil.Error:
            continue
        if "--node-rank" in words:
            rank = int(words[words.index("--node-rank") + 1])
            found[rank] = env.get("RAY_RAYLET_PID", "")
    return found


def sweep(
    folder: Path, address: str, engine: Mapping[str, Any], parallel: Mapping[str, int], **grid: Any
) -> dict[str, Any]:
    """Run one pair over the two nodes; returns its cell, once it is known that both nodes ran it
    and that nothing is left there."""
    ranks = parallel.get("tensor_parallel_size", 1) * parallel.get("pipeline_parallel_size", 1)
    matrix = {
        "name": "two-nodes",
        "engines": {engine["kind"]: engine},
        "models": {
            "tiny-dense": {
                "target": {"path": "builtin:tiny-dense"},
                "drafts": {"draft": {"path": "builtin:tiny-dense/draft"}},
            }
        },
        "grid": {
            "engine": engine["kind"],
            "model": "tiny-dense",
            "prefix_caching": True,
            "batch_size": 4,
            **parallel,
            **grid,
        },
        "workload": {"prompts": 30, "max_tokens": 24},
        "detect": {"request_fault_rate": 0.1},
        "control": "within-launch",
        "resources": {"ranks_per_node": ranks // 2, "cpus_per_rank": CORES * 2 / ranks},
    }
    (folder / "two.yaml").write_text(yaml.safe_dump(matrix))
    words = ["run", "two.yaml", "--results", "out", "--address", address, "--no-tracking"]
    with (folder / "stdout").open("w") as output:
        driver = subprocess.Popen(
            [sys.executable, "-m", "matrixrun", *words],
            cwd=folder, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
    seen: dict[int, str] = {}
    until = time.monotonic() + RUN_SECONDS
    try:
        while driver.poll() is None and time.monotonic() < until:
            seen |= {rank: raylet for rank, raylet in process_groups().items() if raylet}
            time.sleep(2)
    finally:
        driver.terminate()
    said = (folder / "stdout").read_text()
    driver.wait(60)
    assert set(seen) == {0, 1}, said
    assert len(set(seen.values())) == 2, seen
    assert process_groups() == {}
    for outcome in (folder / "out" / "launches").glob("*/outcome.json"):
        assert "--nnodes" in json.loads(outcome.read_text())["argv"]
    (cell,) = json.loads((folder / "out" / "summary.json").read_text())["cells"]
    return cell | {"said": said}


@pytest.mark.parametrize(
    ("file", "name", "env"),
    [
        pytest.param("cpu-upgrade.yaml", "vllm-new", {}, id="vllm"),
        # Its ranks are bound to cores: a machine with fewer NUMA nodes than ranks has to be told
        # which. The kernels are stand-ins.
        pytest.param(
            "sglang-cpu.yaml", "sglang", {"SGLANG_CPU_OMP_THREADS_BIND": "0|1"}, id="sglang"
        ),
    ],
)
def test_a_pair_whose_ranks_stand_on_two_nodes_passes(
    file: str, name: str, env: dict[str, str], address: str, tmp_path: Path
) -> None:
    engine = engine_of(file, name)
    engine["env"] = engine.get("env", {}) | env
    cell = sweep(tmp_path, address, engine, {"tensor_parallel_size": 2}, speculation=DRAFT)
    assert cell["verdict"] == "PASS", cell
    assert cell["metrics"]["acceptance/draft_acceptance_rate"] > 0.3


def test_what_an_engine_says_of_stages_over_two_nodes_is_quoted(
    address: str, tmp_path: Path
) -> None:
    """vLLM 0.31 serves two stages on two nodes and dies of the first draft that it is to verify."""
    engine = engine_of("cpu-upgrade.yaml", "vllm-old")
    cell = sweep(tmp_path, address, engine, {"pipeline_parallel_size": 2}, speculation=NGRAM)
    assert cell["verdict"] == "ERROR", cell
    assert "no attribute 'drafter'" in cell["reason"]
