"""A sweep as a job on a real Ray head that demands a token. The engine is a double, a real process
under the real guard; it goes along with the matrix file, as its overlay."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
import pytest
from grounds import write_target
from heads import BIN, Head, ray_head

MATRIX = """\
name: submitted
engines:
  double: {{kind: vllm, python: "{python}", overlay: ./engine, limits: {{block_size: 16}},
           env: {{REQUEST_SECONDS: "{seconds}"}}}}
models: {{dense: {{target: {{path: ./target}}}}}}
grid:
  engine: double
  model: dense
  prefix_caching: [true, false]
  batch_size: 4
  speculation: {{method: ngram, num_speculative_tokens: 2}}
workload: {{prompts: {prompts}, max_tokens: 24}}
detect: {{request_fault_rate: 0.1}}
control: within-launch
"""
ENGINE = Path(__file__).parent / "engine"


@pytest.fixture(scope="module")
def head() -> Iterator[Head]:
    with ray_head(cpus=1) as made:  # one launch at a time
        yield made
    wait_for(lambda: of_the_head(made) == [], 60)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, prompts, seconds in (("m", 30, 0.01), ("few", 4, 0.01), ("slow", 30, 0.5)):
        text = MATRIX.format(python=sys.executable, prompts=prompts, seconds=seconds)
        (tmp_path / f"{name}.yaml").write_text(text)
    shutil.copytree(ENGINE, tmp_path / "engine", ignore=shutil.ignore_patterns("__pycache__"))
    write_target(tmp_path / "target")
    return tmp_path


def matrixrun(head: Head, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "matrixrun", *words, "--address", head.url],
        cwd=cwd, env=head.env, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip


def submit(head: Head, file: str, name: str, *more: str, cwd: Path):
    results = ("--results", str(cwd / "res" / name), "--no-tracking", "--with-code")
    return matrixrun(head, "submit", file, *results, *more, cwd=cwd)


def of_the_head(head: Head, words: str = "") -> list[str]:
    """What runs with this head's token in its environment: Ray's own, drivers and engines."""
    found = []
    for process in psutil.process_iter():
        try:
            line = " ".join(process.cmdline())
            if process.environ().get("RAY_AUTH_TOKEN") == head.env["RAY_AUTH_TOKEN"]:
                found.append(line)
        except psutil.Error:
            continue
    return [line for line in found if words in line]


def engines(head: Head) -> list[str]:
    return of_the_head(head, "vllm.entrypoints.cli.main")


def summary(folder: Path, name: str) -> dict:
    return json.loads((folder / "res" / name / "summary.json").read_text())


def wait_for(condition: Callable[[], bool], seconds: float = 300) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.5)


def test_waiting_for_a_submitted_sweep_ends_with_its_verdicts_exit_code(
    head: Head, folder: Path
) -> None:
    done = submit(head, "m.yaml", "passes", "--wait", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.rstrip().endswith("matrixrun: exit 0")
    assert {cell["verdict"] for cell in summary(folder, "passes")["cells"]} == {"PASS"}
    few = submit(head, "few.yaml", "few", "--wait", cwd=folder)
    assert few.returncode == 6, few.stdout + few.stderr
    said = matrixrun(head, "status", "few", cwd=folder).stdout
    assert "exit 6: INCONCLUSIVE" in said
    assert "failed" in said  # Ray's own word for every code but 0
    assert engines(head) == []


def test_a_stopped_sweep_leaves_no_engine_says_what_is_open_and_resumes(
    head: Head, folder: Path
) -> None:
    begun = submit(head, "slow.yaml", "stopped", cwd=folder)
    assert begun.returncode == 0, begun.stderr
    again = submit(head, "slow.yaml", "stopped", cwd=folder)
    assert again.returncode == 4
    assert "running already" in again.stderr
    evidence = folder / "res" / "stopped" / "cells"
    wait_for(lambda: len(list(evidence.glob("*/evidence.json"))) == 1 and bool(engines(head)))
    stopped = matrixrun(head, "stop", "stopped", cwd=folder)
    assert stopped.returncode == 0, stopped.stdout + stopped.stderr
    assert engines(head) == []
    assert "exit 2: interrupted or incomplete" in stopped.stdout
    assert len(summary(folder, "stopped")["pending"]) == 1
    (file,) = evidence.glob("*/evidence.json")
    kept = (file, file.read_bytes(), file.stat().st_mtime_ns)

    resumed = matrixrun(head, "resume", "stopped", "--wait", cwd=folder)
    assert resumed.returncode == 0, resumed.stdout + resumed.stderr
    assert "attempt 2" in resumed.stdout
    assert "done already: 1 cell" in resumed.stdout
    assert (kept[0], kept[0].read_bytes(), kept[0].stat().st_mtime_ns) == kept
    assert not summary(folder, "stopped")["pending"]


def test_rays_own_command_runs_a_matrix_too(head: Head, folder: Path) -> None:
    """`ray job submit` carries the whole folder, and knows only whether the job went well."""
    shutil.copytree(Path(__file__).parents[2] / "matrixrun", folder / "matrixrun")
    done = subprocess.run(
        [
            str(BIN / "ray"), "job", "submit", "--address", head.url, "--working-dir", ".", "--",
            "python", "-m", "matrixrun", "run", "few.yaml", "--results", str(folder / "res" / "r"),
            "--no-tracking",
        ],
        cwd=folder, env=head.env, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert "matrixrun: exit 6" in done.stdout
    assert len(summary(folder, "r")["cells"]) == 2
