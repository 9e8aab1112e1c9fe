"""A reproduction bundle, run as a stranger would: its own scripts against a real, faulty vLLM."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from made_sweeps import FAULTY, Made

from matrixrun import models
from matrixrun import plan as planning
from matrixrun.faultbench.control import INJECTION, Switch
from matrixrun.faultbench.specimen import Injection
from matrixrun.signoff import write_bundles

pytestmark = pytest.mark.engine

MATRIX = """\
name: faulty
engines:
  vllm:
    kind: vllm
    limits: {block_size: 32}
    on: {env: {PYTHONPATH: "INJECTION", FAULTBENCH_CONTROL: "WHERE"}}
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
LLAMACPP = """\
name: quantized
engines: {llamacpp: {kind: llamacpp}}
models:
  gguf-dense:
    target: {path: "builtin:gguf-dense"}
    drafts: {draft: {path: "builtin:gguf-dense/draft"}}
grid:
  engine: llamacpp
  model: gguf-dense
  prefix_caching: false
  batch_size: 1
  speculation: {method: draft-simple, draft: draft, num_speculative_tokens: 2}
workload: {prompts: 12, max_tokens: 32}
detect: {request_fault_rate: 0.3}
control: within-launch
"""
START_SECONDS = 400


@pytest.fixture(scope="module")
def switch(tmp_path_factory: pytest.TempPathFactory) -> Switch:
    """The fault: every first rejected token of a draft is let through. It can be switched off."""
    made = Switch(tmp_path_factory.mktemp("control"), "on")
    made.set(Injection(name="let-through", parameters={"share": 1.0}), seed=1)
    return made


@pytest.fixture(scope="module")
def bundle(tmp_path_factory: pytest.TempPathFactory, switch: Switch) -> Path:
    """The bundle of a failing cell with that engine's own launches. Its evidence is made: it only
    says that there are prompts, and that some failed."""
    folder = tmp_path_factory.mktemp("faulty")
    control = switch.environment["FAULTBENCH_CONTROL"]
    text = MATRIX.replace("INJECTION", str(INJECTION)).replace("WHERE", control)
    (folder / "m.yaml").write_text(text)
    return bundle_of(folder)


@pytest.fixture(scope="module")
def llamacpp_bundle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As above, of a cell of llama.cpp."""
    folder = tmp_path_factory.mktemp("quantized")
    (folder / "m.yaml").write_text(LLAMACPP)
    return bundle_of(folder, "llamacpp")


def bundle_of(folder: Path, engine: str = "vllm") -> Path:
    _, plan = planning.plan_file(folder / "m.yaml")
    (cell,) = plan.cells
    launches = [
        {**launch, "id": f"{launch['role']}.{cell.id}"}
        for launch in planning.to_json(plan)["launches"]
    ]
    arms = [(cell, replace(FAULTY, prompts=12, engine=engine))]
    store = Made(folder / "out", arms, plan={"launches": launches}).write()
    (made,) = write_bundles(store, folder / "bundles")
    return made


def built(python: Path, cache: Path, **names: str) -> dict[str, str]:
    """The folders or files of built-in checkpoints, by the variable of the scripts."""
    return {
        name: str(models.build(f"builtin:{path}", python, cache, print))
        for name, path in names.items()
    }


@contextmanager
def served(script: Path, python: Path, checkpoints: dict[str, str]) -> Iterator[str]:
    """The address of a server that one of the bundle's scripts starts."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    given = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    log = script.with_suffix(".started.log")
    with log.open("wb") as output:
        server = subprocess.Popen(
            ["bash", script.name],
            cwd=script.parent,
            env=given | checkpoints | {"PYTHON": str(python), "PORT": str(port)},
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


def reproduce(folder: Path, off: str, on: str, *more: str) -> subprocess.CompletedProcess[str]:
    """Run the bundle's program in an interpreter that has nothing but the standard library."""
    command = [sys.executable, "-E", "-s", "-S", "reproduce.py", "--off", off, "--on", on, *more]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def assert_shown_and_minimised(
    folder: Path,
    shown: subprocess.CompletedProcess[str],
    again: subprocess.CompletedProcess[str],
) -> None:
    assert shown.returncode == 1, shown.stdout + shown.stderr
    assert re.search(r"FAULT: request \S+, token \d+: on \d+, off \d+", shown.stdout)
    whole = json.loads((folder / "requests.json").read_text())["requests"]
    smallest = json.loads((folder / "smallest.json").read_text())["requests"]
    assert len(whole) == 12
    assert len(smallest) == 1
    original = next(one for one in whole if one["id"] == smallest[0]["id"])
    assert len(smallest[0]["prompt"]) < len(original["prompt"])
    assert smallest[0]["max_tokens"] <= original["max_tokens"]
    assert again.returncode == 1, again.stdout + again.stderr


def test_the_bundle_shows_the_fault_minimises_it_and_falls_silent_without_it(
    bundle: Path, switch: Switch, vllm_python: Path, cache: Path
) -> None:
    checkpoints = built(vllm_python, cache, TARGET="tiny-dense", DRAFT="tiny-dense/draft")
    with (
        served(bundle / "off.sh", vllm_python, checkpoints) as off,
        served(bundle / "on.sh", vllm_python, checkpoints) as on,
    ):
        shown = reproduce(bundle, off, on, "--minimise", "smallest.json")
        again = reproduce(bundle, off, on, "--requests", "smallest.json")
        switch.set(None, seed=0)
        healthy = reproduce(bundle, off, on)

    assert_shown_and_minimised(bundle, shown, again)
    assert healthy.returncode == 0, healthy.stdout + healthy.stderr


def test_so_does_one_of_llamacpp(llamacpp_bundle: Path, llamacpp_python: Path, cache: Path) -> None:
    """Another checkpoint under the on arm stands for a fault: it changes tokens by as much."""
    bundle = llamacpp_bundle
    right = built(llamacpp_python, cache, TARGET="gguf-dense", DRAFT="gguf-dense/draft")
    wrong = right | built(llamacpp_python, cache, TARGET="gguf-dense/q4_k_m")
    with served(bundle / "off.sh", llamacpp_python, right) as off:
        with served(bundle / "on.sh", llamacpp_python, wrong) as on:
            shown = reproduce(bundle, off, on, "--minimise", "smallest.json")
            again = reproduce(bundle, off, on, "--requests", "smallest.json")
        with served(bundle / "on.sh", llamacpp_python, right) as on:
            healthy = reproduce(bundle, off, on)

    assert_shown_and_minimised(bundle, shown, again)
    assert healthy.returncode == 0, healthy.stdout + healthy.stderr


def test_the_bundles_need_nothing_of_matrixrun(bundle: Path, llamacpp_bundle: Path) -> None:
    for folder in (bundle, llamacpp_bundle):
        for script in ("on.sh", "off.sh"):
            outside = (folder / script).read_text().replace(str(INJECTION), "")
            assert "/matrixrun/" not in outside
    assert (bundle / "overlay").is_dir()
