"""Where chaos happens: a Ray cluster of several nodes on this machine, a matrix, a driver, and a
tracking server if asked for. Raylets, workers, guards and engine processes are real; the engine is
a double (`engine/`), which fails where a matrix wants it to, or llama.cpp's own server."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import psutil

from matrixrun.fanout.cluster import PACKAGE_PARENT

HERE = Path(__file__).parent
MARK = "CHAOS_GROUNDS"  # engines inherit it: no MATRIXRUN_ variable reaches them
NODES, CPUS = 3, 2

DOUBLE = """\
name: chaos
engines:
  double: &double
    {{kind: vllm, python: "{python}", overlay: "{overlay}", limits: {{block_size: 16}}}}
  broken: {{<<: *double, on: {{env: {{BREAK: "1"}}}}}}
models: {{dense: {{target: {{path: ./target}}}}}}
grid:
  engine: [double, broken]
  model: dense
  prefix_caching: [true, false]
  batch_size: 4
  speculation: {{method: ngram, num_speculative_tokens: 2}}
include:
  - engine: double
    prefix_caching: true
    speculation:
      {{method: ngram, num_speculative_tokens: 2, rejection_sample_method: synthetic}}
workload: {{prompts: 30, max_tokens: 24}}
detect: {{request_fault_rate: 0.1}}
control: within-launch
timeouts: {{ready: 60, request: 8}}
"""
EXPECTED = {
    "broken.dense.pc-off.ngram-k2.b4": "FAIL",
    "broken.dense.pc-on.ngram-k2.b4": "FAIL",
    "double.dense.pc-off.ngram-k2.b4": "PASS",
    "double.dense.pc-on.ngram-k2-2b2a.b4": "REFUSED",
    "double.dense.pc-on.ngram-k2.b4": "PASS",
}
"""The verdicts of the double's matrix: what it breaks is found, what it does not is passed."""

REAL = """\
name: chaos
engines: {{llamacpp: {{kind: llamacpp}}}}
models:
  gguf-dense:
    targets:
      none: {{path: "builtin:gguf-dense"}}
      q4_k_m: {{path: "builtin:gguf-dense/q4_k_m"}}
    drafts: {{near: {{path: "builtin:gguf-dense/draft"}}}}
grid:
  engine: llamacpp
  model: gguf-dense
  quantization: [none, q4_k_m]
  prefix_caching: false
  batch_size: 1
  speculation:
    - {{method: draft-simple, draft: near, num_speculative_tokens: 2}}
    - {{method: draft-simple, draft: near, num_speculative_tokens: 4}}
workload: {{prompts: 30, max_tokens: 48}}
detect: {{request_fault_rate: 0.1}}
control: within-launch
timeouts: {{ready: 120, request: 20}}
"""

# What the command lines of engines hold: the double answers to vLLM's name.
ENGINES = ("vllm.entrypoints.cli.main", "llamacpp/in_process.py")


class Grounds:
    """A context manager: all that it started has ended when it is left."""

    def __init__(self, folder: Path, *, tracking: bool = False, real: bool = False) -> None:
        self.folder = folder
        self.token = secrets.token_hex(8)
        self.driver: subprocess.Popen[bytes] | None = None
        self.outputs: list[Path] = []
        self._tracking: subprocess.Popen[bytes] | None = None
        self._with_tracking = tracking
        self._cluster: Any = None
        folder.mkdir(parents=True, exist_ok=True)
        overlay, python = HERE / "engine", sys.executable
        matrix = REAL if real else DOUBLE
        (folder / "m.yaml").write_text(matrix.format(python=python, overlay=overlay))
        write_target(folder / "target")

    def __enter__(self) -> Grounds:
        from ray_nodes import PatientCluster

        path = os.pathsep.join(p for p in (PACKAGE_PARENT, os.environ.get("PYTHONPATH")) if p)
        os.environ |= {
            MARK: self.token,
            "RAY_AUTH_MODE": "disabled",
            "PYTHONPATH": path,
        }
        self._cluster = PatientCluster()
        self._cluster.add_node(num_cpus=0, include_dashboard=False)
        for _ in range(NODES):
            self.add_node()
        if self._with_tracking:
            self.start_tracking()
        return self

    def __exit__(self, *_: object) -> None:
        for process in (self.driver, self._tracking):
            if process is not None:
                process.kill()
                process.wait()
        self._cluster.shutdown()
        os.environ.pop(MARK)

    # -- what can be hit ---------------------------------------------------------------------

    def add_node(self) -> None:
        """One more node."""
        self._cluster.add_node(num_cpus=CPUS)

    def worker_nodes(self) -> list[Any]:
        return sorted(self._cluster.worker_nodes, key=lambda node: node.node_id)

    def kill_raylet(self, node: Any) -> None:
        self._cluster.remove_node(node, allow_graceful=False)

    def launchers(self) -> list[psutil.Process]:
        return self._ours(lambda line: line[:1] != [] and line[0].startswith("ray::LaunchBody"))

    def engines(self) -> list[psutil.Process]:
        return self._ours(lambda line: any(part.endswith(ENGINES) for part in line[1:3]))

    def guards(self) -> list[psutil.Process]:
        return self._ours(lambda line: any(part.endswith("engines/guard.py") for part in line[:5]))

    def _ours(self, wanted: Any) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter():
            try:
                lives = process.status() != psutil.STATUS_ZOMBIE
                if lives and wanted(process.cmdline()) and self._is_ours(process):
                    found.append(process)
            except psutil.Error:
                continue
        return sorted(found, key=lambda one: one.pid)

    def _is_ours(self, process: psutil.Process) -> bool:
        return bool(process.environ().get(MARK) == self.token)

    # -- driver and tracking server ----------------------------------------------------------

    def start_driver(self, results: Path) -> None:
        output = results.with_name(f"{results.name}.{len(self.outputs)}.log")
        self.outputs.append(output)
        words = [
            sys.executable, "-m", "matrixrun", "run", "m.yaml", "--results", str(results),
            "--address", self._cluster.address,
        ]  # fmt: skip
        words += ["--tracking-uri", self.tracking_uri] if self._with_tracking else ["--no-tracking"]
        with output.open("wb") as file:
            self.driver = subprocess.Popen(
                words, cwd=self.folder, stdout=file, stderr=subprocess.STDOUT,
                env={**os.environ, "PYTHONFAULTHANDLER": "1"},
            )  # fmt: skip

    def words(self) -> str:
        """What a driver that does not end has said so far, and where each of its threads is."""
        assert self.driver is not None
        self.driver.send_signal(signal.SIGABRT)  # with PYTHONFAULTHANDLER, as `start_driver` sets
        self.driver.wait(timeout=60)
        return "\n".join(f"{one.name}:\n{one.read_text()[-6000:]}" for one in self.outputs[-2:])

    tracking_uri = ""

    def start_tracking(self) -> None:
        if not self.tracking_uri:
            from socket import create_server

            with create_server(("127.0.0.1", 0)) as probe:
                self.tracking_uri = f"http://127.0.0.1:{probe.getsockname()[1]}"
        words = [
            sys.executable, "-m", "mlflow", "server", "--workers", "1", "--host", "127.0.0.1",
            "--port", self.tracking_uri.rpartition(":")[2],
            "--backend-store-uri", f"sqlite:///{self.folder}/mlflow.db",
            "--artifacts-destination", str(self.folder / "artifacts"),
        ]  # fmt: skip
        with (self.folder / "mlflow.log").open("ab") as log:
            self._tracking = subprocess.Popen(
                words, stdout=log, stderr=subprocess.STDOUT, cwd=self.folder,
                env={**os.environ, "MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false"},
            )  # fmt: skip

    def tracking_answers(self) -> bool:
        try:
            with urllib.request.urlopen(f"{self.tracking_uri}/health", timeout=2) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def kill_tracking(self) -> None:
        assert self._tracking is not None
        family = psutil.Process(self._tracking.pid).children(recursive=True)
        self._tracking.kill()
        self._tracking.wait()
        for process in family:
            if process.is_running():
                process.kill()

    def undisturbed(self) -> dict[str, str]:
        """The verdicts of a run that nobody disturbs."""
        results = self.folder / "undisturbed"
        self.start_driver(results)
        assert self.driver is not None
        self.driver.wait(timeout=900)
        return verdicts(results)


def verdicts(results: Path) -> dict[str, str]:
    """Each cell's verdict in a results folder's summary."""
    cells = json.loads((results / "summary.json").read_text())["cells"]
    return {cell["id"]: cell["verdict"] for cell in cells}


def wait_for(condition: Any, seconds: float) -> bool:
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            return False
        time.sleep(0.1)
    return True


def write_target(folder: Path) -> None:
    """A checkpoint's folder as far as a workload needs it: a tokenizer, and something to hash."""
    import tokenizers
    from tokenizers import decoders, models, pre_tokenizers, trainers

    folder.mkdir(exist_ok=True)
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=1000,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    made.train_from_iterator([(HERE / "grounds.py").read_text()], trainer)
    made.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text('{"vocab_size": 1000}')
