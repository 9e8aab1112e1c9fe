"""A reproduction bundle, run as a stranger would: its own scripts against a real, faulty vLLM."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from matrixrun import models
from matrixrun.faultbench.catalogue import Injection
from matrixrun.faultbench.control import INJECTION, Switch

pytestmark = pytest.mark.engine

MATRIX = """\
name: faulty
engines:
  vllm:
    kind: vllm
    limits: {block_size: 32}
    on: {env: {PYTHONPATH: "INJECTION", FAULTBENCH_CONTROL: "CONTROL"}}
models:
  tiny-dense:
    target: {path: "builtin:tiny-dense"}
    drafts: {draft: {path: "builtin:tiny-dense/draft"}}
grid:
  engine: vllm
  model: tiny-dense
  prefix_caching: true
  batch_size: 4
  speculation: {method: draft_model, draft: draft, num_speculative_tokens: 3}
workload: {prompts: 12, max_tokens: 32}
detect: {request_fault_rate: 0.3}
control: within-launch
"""
START_SECONDS = 240


def matrixrun(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "matrixrun", *arguments]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=500, check=False
    )


@pytest.fixture(scope="module")
def switch(tmp_path_factory: pytest.TempPathFactory) -> Switch:
    """The fault: every first rejected token of a draft is let through. It can be switched off."""
    made = Switch(tmp_path_factory.mktemp("control"), "on")
    made.set(Injection(name="let-through", parameters={"share": 1.0}), seed=1)
    return made


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory, switch: Switch) -> Path:
    """The bundle of a cell that failed on that engine."""
    folder = tmp_path_factory.mktemp("faulty")
    control = switch.environment["FAULTBENCH_CONTROL"]
    text = MATRIX.replace("INJECTION", str(INJECTION)).replace("CONTROL", control)
    (folder / "m.yaml").write_text(text)
    done = matrixrun(folder, "run", "m.yaml", "--results", "out", "--no-tracking")
    assert done.returncode == 1, done.stdout + done.stderr
    assert matrixrun(folder, "report", "out", "--bundles", "bundles").returncode == 0
    (made,) = (folder / "bundles").iterdir()
    return made


@contextmanager
def served(script: Path, python: Path, cache: Path) -> Iterator[str]:
    """The address of a server that one of the bundle's scripts starts."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    built = {
        name: str(models.build(f"builtin:{path}", python, cache, print))
        for name, path in (("TARGET", "tiny-dense"), ("DRAFT", "tiny-dense/draft"))
    }
    given = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    log = script.with_suffix(".started.log")
    with log.open("wb") as output:
        server = subprocess.Popen(
            ["bash", script.name],
            cwd=script.parent,
            env=given | built | {"PYTHON": str(python), "PORT": str(port)},
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    try:
        until = time.monotonic() + START_SECONDS
        while not answers(f"http://127.0.0.1:{port}/health"):
            ended = server.poll() is not None or time.monotonic() > until
            assert not ended, log.read_text(errors="replace")[-4000:]
            time.sleep(1)
        yield f"http://127.0.0.1:{port}"
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except (urllib.error.URLError, OSError):
        return False


def test_the_bundle_shows_the_fault_minimises_it_and_falls_silent_without_it(
    bundle: Path, switch: Switch, vllm_python: Path, cache: Path
) -> None:
    with (
        served(bundle / "off.sh", vllm_python, cache) as off,
        served(bundle / "on.sh", vllm_python, cache) as on,
    ):

        def reproduce(*more: str) -> subprocess.CompletedProcess[str]:
            command = [sys.executable, "-I", "-S", "reproduce.py", "--off", off, "--on", on, *more]
            return subprocess.run(command, cwd=bundle, capture_output=True, text=True, check=False)

        shown = reproduce("--minimise", "smallest.json")
        again = reproduce("--requests", "smallest.json")
        switch.set(None, seed=0)
        healthy = reproduce()

    assert shown.returncode == 1, shown.stdout + shown.stderr
    assert re.search(r"FAULT: request \S+, token \d+: on \d+, off \d+", shown.stdout)
    whole = json.loads((bundle / "requests.json").read_text())["requests"]
    smallest = json.loads((bundle / "smallest.json").read_text())["requests"]
    assert len(whole) == 12
    assert len(smallest) == 1
    original = next(one for one in whole if one["id"] == smallest[0]["id"])
    assert len(smallest[0]["prompt"]) < len(original["prompt"])
    assert smallest[0]["max_tokens"] <= original["max_tokens"]
    assert again.returncode == 1, again.stdout + again.stderr
    assert healthy.returncode == 0, healthy.stdout + healthy.stderr


def test_the_bundle_needs_nothing_of_matrixrun(bundle: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(bundle, tmp_path / "elsewhere")

    for script in ("on.sh", "off.sh"):
        outside = (copy / script).read_text().replace(str(INJECTION), "")
        assert "/matrixrun/" not in outside
    assert (copy / "overlay").is_dir()
