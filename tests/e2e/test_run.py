"""`matrixrun run` on a real engine: what a user sees, finds and can rely on."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.engine

SECRET = "hf_e2e_secret_value"
MATRIX = """\
name: e2e
engines:
  vllm: {kind: vllm, limits: {block_size: 32}, env: {HF_TOKEN: hf_e2e_secret_value}}
  wrong: {kind: vllm, limits: {block_size: 32}, on: {args: ["--no-such-flag"]}}
models:
  tiny-dense:
    target: {path: "builtin:tiny-dense"}
    drafts: {draft: {path: "builtin:tiny-dense/draft"}}
grid:
  engine: [vllm, wrong]
  model: tiny-dense
  prefix_caching: true
  batch_size: [1, 4]
  speculation: {method: draft_model, draft: draft, num_speculative_tokens: 3}
exclude:
  - {engine: wrong, batch_size: 1}
include:
  # Lossy by design: refused before anything is launched.
  - engine: vllm
    batch_size: 1
    speculation:
      {method: ngram, num_speculative_tokens: 3, rejection_sample_method: synthetic,
       synthetic_acceptance_length: 2}
workload: {prompts: 30, max_tokens: 32}
detect: {request_fault_rate: 0.1}
control: within-launch
"""


def matrixrun(
    *arguments: str, cwd: Path, timeout: float = 1500
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "matrixrun", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )


def engine_processes() -> list[str]:
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
            except OSError:
                continue
            if "vllm.entrypoints" in words or "VLLM::" in words:
                found.append(f"{entry.name} {words}")
    return found


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the matrix ran once, into `out`."""
    folder = tmp_path_factory.mktemp("e2e")
    (folder / "e2e.yaml").write_text(MATRIX)
    done = matrixrun("run", "e2e.yaml", "--results", "out", cwd=folder)
    (folder / "stdout").write_text(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def summary(sweep: Path) -> dict[str, dict[str, object]]:
    cells = json.loads((sweep / "out" / "summary.json").read_text())["cells"]
    return {cell["id"]: cell for cell in cells}


def test_a_healthy_pair_passes_with_acceptance_and_coverage(summary: dict) -> None:
    for size in (1, 4):
        cell = summary[f"vllm.tiny-dense.pc-on.draft_model-k3.b{size}"]
        assert cell["verdict"] == "PASS", cell
        assert cell["metrics"]["same/exact_match"] == 1.0
        assert 0.4 <= cell["metrics"]["acceptance/draft_acceptance_rate"] <= 0.95


def test_an_engine_that_says_no_is_refused_in_its_own_words(summary: dict) -> None:
    cell = summary["wrong.tiny-dense.pc-on.draft_model-k3.b4"]
    assert cell["verdict"] == "REFUSED"
    assert "--no-such-flag" in cell["reason"]


def test_a_lossy_setting_is_refused_without_a_launch(summary: dict, sweep: Path) -> None:
    (cell,) = [c for name, c in summary.items() if "ngram" in name]
    assert cell["verdict"] == "REFUSED"
    assert "synthetic" in cell["reason"]
    assert not list((sweep / "out" / "launches").glob("on.*ngram*"))


def test_the_same_command_again_runs_nothing_and_says_the_same(sweep: Path) -> None:
    before = (sweep / "out" / "summary.json").read_bytes()
    again = matrixrun("run", "e2e.yaml", "--results", "out", cwd=sweep, timeout=120)
    assert again.returncode == 0, again.stdout + again.stderr
    assert not re.search(r"^[0-9:]{8} launch ", again.stdout, re.MULTILINE)
    assert re.search(r"^[0-9:]{8} launch ", (sweep / "stdout").read_text(), re.MULTILINE)
    assert (sweep / "out" / "summary.json").read_bytes() == before


def test_judging_again_gives_the_same_bytes(sweep: Path) -> None:
    files = sorted((sweep / "out" / "cells").glob("*/result.json"))
    before = [file.read_bytes() for file in files]
    assert matrixrun("judge", "out", cwd=sweep, timeout=120).returncode == 0
    assert [file.read_bytes() for file in files] == before


def test_mlflow_holds_a_flat_run_for_each_cell_and_one_for_the_sweep(
    sweep: Path, summary: dict
) -> None:
    import mlflow

    client = mlflow.MlflowClient(f"sqlite:///{sweep}/mlflow.db")
    experiment = client.get_experiment_by_name("e2e")
    runs = client.search_runs([experiment.experiment_id], max_results=100)
    kinds = [run.data.tags["matrixrun.kind"] for run in runs]
    assert sorted(kinds) == ["cell"] * len(summary) + ["sweep"]
    assert {run.data.tags["sweep"] for run in runs} == {"out"}


def test_no_engine_is_left_and_no_secret_is_written_down(sweep: Path) -> None:
    """The matrix gives the engine a token; only the verbatim matrix.yaml may hold it."""
    assert engine_processes() == []
    assert SECRET in (sweep / "out" / "matrix.yaml").read_text()
    written = [f for f in (sweep / "out").rglob("*") if f.is_file() and f.name != "matrix.yaml"]
    logged = [f for f in (sweep / "mlruns").rglob("*") if f.is_file()]
    assert any(f.name == "engine.log" for f in written)
    for file in (*written, *logged, sweep / "stdout"):
        assert SECRET.encode() not in file.read_bytes(), file


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_killed_driver_leaves_no_engine_and_says_where_it_stood(
    number: signal.Signals, tmp_path: Path
) -> None:
    (tmp_path / "e2e.yaml").write_text(MATRIX)
    only = "vllm.tiny-dense.pc-on.draft_model-k3.b4"
    driver = subprocess.Popen(
        [sys.executable, "-m", "matrixrun", "run", "e2e.yaml", "--results", "out", "--only", only],
        cwd=tmp_path,
        stdout=(tmp_path / "stdout").open("w"),
        stderr=subprocess.STDOUT,
    )
    try:
        wait_for(lambda: bool(engine_processes()), 600, (tmp_path / "stdout"))
        os.kill(driver.pid, number)
        code = driver.wait(300)
    finally:
        driver.kill()
    wait_for(lambda: not engine_processes(), 120, (tmp_path / "stdout"))
    if number is signal.SIGTERM:
        assert code == 2
        assert json.loads((tmp_path / "out" / "summary.json").read_text())["exit_code"] == 2
    state = json.loads((tmp_path / "out" / "sweep.json").read_text())["state"]
    assert state == ("running" if number is signal.SIGKILL else "interrupted")


def wait_for(condition, seconds: float, log: Path) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, log.read_text()[-3000:]
        time.sleep(0.5)
