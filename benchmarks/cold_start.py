"""Seconds to a first answer of vLLM on CPU, with what earlier launches left and without it.

    python benchmarks/cold_start.py

Five launches of the built-in checkpoint by the default CPU recipe, whose environment is built
first if the node lacks it. `nothing`: no compile cache, and the environment and the weights are
on disk but not in memory, as on a node that did something else meanwhile. `no caches`: no compile
cache. `kept`: what the launch before left. In eager mode, matrixrun's default on CPU, and with
torch.compile, as GPUs have it by default. Printed are wall seconds and the CPU seconds of all the
engine's processes; on a busy machine only the latter say something.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import psutil

from matrixrun import engines, models
from matrixrun.evidence.launches import Launch
from matrixrun.fanout.passes import WARM_UP
from matrixrun.matrix import Matrix, expand
from matrixrun.plan import build
from matrixrun.record.cache import cache_folder

# vLLM 0.32 cannot load again on CPU what it compiles ahead of time ("'function' object has no
# attribute 'finalize_loading'") and compiles anew: that is off here.
MODES: dict[str, dict[str, Any]] = {
    "eager": {},
    "compiled": {"args": ["--no-enforce-eager"], "env": {"VLLM_USE_AOT_COMPILE": "0"}},
}
NOTHING, NO_CACHES, KEPT = "nothing", "no caches", "kept"


def off_launch(settings: dict[str, Any]) -> Launch:
    """The off launch of a matrix of one cell."""
    matrix = Matrix.model_validate(
        {
            "name": "cold-start",
            "engines": {"vllm": {"kind": "vllm", "limits": {"block_size": 32}, **settings}},
            "models": {"tiny": {"target": {"path": "builtin:tiny-dense"}}},
            "grid": {
                "engine": "vllm",
                "model": "tiny",
                "speculation": {"method": "ngram", "num_speculative_tokens": 3},
            },
            "workload": {"max_tokens": 64},
            "control": "within-launch",
        }
    )
    plan = build(matrix, expand(matrix, file="benchmark"))
    return next(launch for launch in plan.launches if launch.role == "A")


def forget(folders: Iterable[Path]) -> None:
    """Have the page cache drop the files of these folders, as far as nobody uses them."""
    for file in (file for folder in folders for file in folder.rglob("*")):
        if file.is_file():
            handle = os.open(file, os.O_RDONLY)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(handle)


async def first_answer(server: engines.Server) -> None:
    """Ask for a few tokens: the first request compiles too."""
    client = server.client(request_timeout=600)
    try:
        await client.generate(WARM_UP, salt="first", logprobs=0)
    finally:
        await client.aclose()


def measure(
    launch: Launch, environment: engines.Environment, target: Path, work: Path
) -> tuple[float, float]:
    """Seconds to the first answer: of the clock, and of all processors for the engine."""
    began = time.monotonic()
    weights = models.Weights({"target": str(target)}, work)
    server = engines.Server(
        launch.command,
        environment,
        engine=engines.get("vllm"),
        target=str(target),
        log_path=work / "engine.log",
        ready_timeout=900,
        compiled=work / "compiled",
    )
    with server:
        asyncio.run(first_answer(server))
        wall = time.monotonic() - began
        assert server._held is not None
        family = psutil.Process(server._held.status()["keeper"]).children(recursive=True)
        times = [process.cpu_times() for process in family]
    assert weights.identities()
    return wall, sum(t.user + t.system + t.children_user + t.children_system for t in times)


def main() -> None:
    """Print a line for each launch, and what is saved."""
    cache = cache_folder()
    recipe = engines.get("vllm").default_recipe
    environment = engines.prepare(recipe, cache=cache, timeout=3600, on_line=print)
    target = models.build("builtin:tiny-dense", environment.python, cache, print)
    with tempfile.TemporaryDirectory(prefix="matrixrun-") as scratch:
        compare(environment, target, scratch)


def compare(environment: engines.Environment, target: Path, scratch: str) -> None:
    """Launch again and again."""
    assert environment.path is not None
    for mode, settings in MODES.items():
        launch = off_launch(settings)
        took: dict[str, tuple[float, float]] = {}
        for state in (NOTHING, NO_CACHES, KEPT) if mode == "eager" else (NO_CACHES, KEPT):
            if state != KEPT:
                work = Path(tempfile.mkdtemp(prefix="cold-", dir=scratch))
            if state == NOTHING:
                forget([environment.path, target])
            took[state] = measure(launch, environment, target, work)
            wall, processor = took[state]
            print(f"{mode:9} {state:10} {wall:6.1f} s, {processor:6.1f} s of CPU", flush=True)
        first = next(iter(took))
        ratios = [took[first][i] / took[KEPT][i] for i in range(2)]
        print(f"{mode:9} {first} takes {ratios[0]:.2f} times as long, {ratios[1]:.2f} of CPU")


if __name__ == "__main__":
    main()
