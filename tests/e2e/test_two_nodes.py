"""A launch of vLLM over two nodes, for real: two raylets on this machine, a process group on each,
tensor parallel over them. Eight processes that import vLLM; eight minutes on two cores at a load of
13 to 25:

    python -m pytest -m long tests/e2e/test_two_nodes.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from matrixrun.fanout.cluster import PACKAGE_PARENT

pytestmark = pytest.mark.long

MATRIX = """\
name: two-nodes
engines: {vllm: {kind: vllm, limits: {block_size: 32}}}
models:
  tiny-dense:
    target: {path: "builtin:tiny-dense"}
    drafts: {draft: {path: "builtin:tiny-dense/draft"}}
grid:
  engine: vllm
  model: tiny-dense
  tensor_parallel_size: 2
  prefix_caching: true
  batch_size: 4
  speculation: {method: draft_model, draft: draft, num_speculative_tokens: 3}
workload: {prompts: 30, max_tokens: 24}
detect: {request_fault_rate: 0.1}
control: within-launch
resources: {ranks_per_node: 1}
"""
CELL = "vllm.tiny-dense.tp2.pc-on.draft_model-k3.b4"
RUN_SECONDS = 800


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A head that holds nothing, and two nodes of one core."""
    from ray.cluster_utils import Cluster

    wanted = {"RAY_AUTH_MODE": "disabled", "PYTHONPATH": PACKAGE_PARENT}
    before = {name: os.environ.get(name) for name in wanted}
    os.environ |= wanted
    made = Cluster()
    try:
        made.add_node(num_cpus=0, include_dashboard=False)
        for _ in range(2):
            made.add_node(num_cpus=1)
        yield made.address
    finally:
        made.shutdown()
        for name, value in before.items():
            os.environ.pop(name, None) if value is None else os.environ.update({name: value})


def process_groups() -> dict[str, str]:
    """The raylet under which each process group of an engine runs: `head`, `follower`."""
    found = {}
    for process in psutil.process_iter():
        try:
            words, env = process.cmdline(), process.environ()
        except psutil.Error:
            continue
        if words[1:3] == ["-m", "vllm.entrypoints.cli.main"] and "--nnodes" in words:
            name = "follower" if "--headless" in words else "head"
            found[name] = env.get("RAY_RAYLET_PID", "")
    return found


def test_a_pair_whose_ranks_stand_on_two_nodes_passes(address: str, tmp_path: Path) -> None:
    (tmp_path / "two.yaml").write_text(MATRIX)
    words = ["run", "two.yaml", "--results", "out", "--address", address, "--no-tracking"]
    with (tmp_path / "stdout").open("w") as output:
        driver = subprocess.Popen(
            [sys.executable, "-m", "matrixrun", *words],
            cwd=tmp_path, stdout=output, stderr=subprocess.STDOUT,
        )  # fmt: skip
    seen: dict[str, str] = {}
    until = time.monotonic() + RUN_SECONDS
    try:
        while driver.poll() is None and time.monotonic() < until:
            seen |= {name: raylet for name, raylet in process_groups().items() if raylet}
            time.sleep(2)
    finally:
        driver.terminate()
    said = (tmp_path / "stdout").read_text()
    assert driver.wait(60) == 0, said
    assert set(seen) == {"head", "follower"}
    assert len(set(seen.values())) == 2, seen
    (cell,) = json.loads((tmp_path / "out" / "summary.json").read_text())["cells"]
    assert (cell["id"], cell["verdict"]) == (CELL, "PASS"), cell
    assert cell["metrics"]["acceptance/draft_acceptance_rate"] > 0.3
    for outcome in (tmp_path / "out" / "launches").glob("*/outcome.json"):
        assert "--nnodes" in json.loads(outcome.read_text())["argv"]
    assert process_groups() == {}
