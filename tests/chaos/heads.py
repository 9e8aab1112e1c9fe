"""A real Ray head on this machine, with a dashboard that takes jobs, for as long as a test runs."""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

BIN = Path(sys.executable).parent
READY_SECONDS = 240


@dataclass(frozen=True)
class Head:
    """Where the dashboard listens, and the environment with which its clients must run."""

    url: str
    env: dict[str, str]
    log: Path


def free_ports(count: int) -> list[int]:
    """So many ports that nobody listens on."""
    with ExitStack() as stack:
        probes = [stack.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind(("", 0))
        return [probe.getsockname()[1] for probe in probes]


@contextmanager
def ray_head(*, cpus: int = 2) -> Iterator[Head]:
    """A head that demands a token, as Ray's own default does where one exists."""
    gcs, dashboard, agent, grpc, metrics, client = free_ports(6)
    folder = Path(tempfile.mkdtemp(prefix="mr-", dir="/tmp"))  # sockets need a short path
    env = {
        **os.environ,
        "RAY_AUTH_MODE": "token",
        "RAY_AUTH_TOKEN": secrets.token_hex(16),
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_raylet_start_wait_time_s": str(READY_SECONDS),  # the default is too short when busy
    }
    for name in ("RAY_ADDRESS", "PYTHONDONTWRITEBYTECODE"):
        env.pop(name, None)
    words = [
        str(BIN / "ray"), "start", "--head", "--block", f"--num-cpus={cpus}",
        f"--port={gcs}", "--include-dashboard=true", "--dashboard-host=127.0.0.1",
        f"--dashboard-port={dashboard}", f"--dashboard-agent-listen-port={agent}",
        f"--dashboard-agent-grpc-port={grpc}", f"--metrics-export-port={metrics}",
        f"--ray-client-server-port={client}", f"--temp-dir={folder}", "--disable-usage-stats",
    ]  # fmt: skip
    log = folder / "head.log"
    with log.open("wb") as output:
        process = subprocess.Popen(words, stdout=output, stderr=subprocess.STDOUT, env=env)
    head = Head(f"http://127.0.0.1:{dashboard}", env, log)
    try:
        _until_it_takes_jobs(head, process)
        yield head
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
        shutil.rmtree(folder, ignore_errors=True)


def _until_it_takes_jobs(head: Head, process: subprocess.Popen[bytes]) -> None:
    """The dashboard answers some seconds before its agent takes jobs: try with a job."""
    until = time.monotonic() + READY_SECONDS
    while time.monotonic() < until and process.poll() is None:
        tried = subprocess.run(
            [str(BIN / "ray"), "job", "submit", "--address", head.url, "--", "true"],
            env=head.env, capture_output=True, text=True, timeout=READY_SECONDS, check=False,
        )  # fmt: skip
        if tried.returncode == 0:
            return
        time.sleep(1)
    raise AssertionError(f"no head within {READY_SECONDS} s: {head.log.read_text()[-3000:]}")
