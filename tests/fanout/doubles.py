"""A double of launches on a cluster: no Ray, no engine, answers made from the prompt alone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from matrixrun.evidence.launches import Launch, LaunchEnd, LaunchOutcome, Role
from matrixrun.evidence.requests import Observation, Pass, Request, Score, ScoreRequest
from matrixrun.fanout.actor import Finished, LaunchSettings, PassAnswer
from matrixrun.fanout.sweep import Sweep
from matrixrun.judge import settings_for
from matrixrun.matrix import Matrix, expand
from matrixrun.plan import Plan, build, select
from matrixrun.record import Store, new_sweep
from matrixrun.workloads import Prompt
from matrixrun.workloads.prompts import workload_of

TOKENS = 16
TEXT = "name: double\n"
# Raised or returned by a launch at `start`, by launch id; each is taken once.
Trouble = dict[str, list[Exception | LaunchEnd]]


def matrix() -> Matrix:
    """Two methods at two batch sizes against one off launch."""
    return Matrix.model_validate(
        {
            "name": "double",
            "engines": {"vllm": {"kind": "vllm"}},
            "models": {"dense": {"target": {"path": "org/target"}}},
            "grid": {
                "engine": "vllm",
                "model": "dense",
                "batch_size": [1, 4],
                "speculation": [
                    {"method": "ngram", "num_speculative_tokens": 2},
                    {"method": "suffix", "num_speculative_tokens": 2},
                ],
            },
            "workload": {"prompts": 12, "max_tokens": TOKENS},
            "detect": {"request_fault_rate": 0.3},
            "control": "within-launch",
        }
    )


def plan(only: tuple[str, ...] = ()) -> Plan:
    made = matrix()
    return select(build(made, expand(made, file="double.yaml")), only)


def new_store(folder: Path) -> Store:
    store = Store.create(folder, new_sweep("double", TEXT))
    store.write_matrix(TEXT)
    return store


# A scheduler that leaks a block in step 3.
LEDGER = (
    b'{"event":"start","blocks":9,"block_size":16}\n'
    b'{"event":"closed","step":3,"in_use":1,"requests":0}\n'
)


class Display:
    """Takes everything and shows nothing."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_, **__: None


def sweep(store: Store, part: Plan) -> Sweep:
    """A sweep of `part` of the plan, ready to run."""
    made = matrix()
    workload = workload_of(
        tuple(
            Prompt(id=f"p-{i}", category="decided", token_ids=tuple(range(10 + i, 20 + i)))
            for i in range(12)
        )
    )
    if not store.has_workload("dense"):
        store.write_workload("dense", workload)
    return Sweep(
        matrix=made,
        plan=part,
        store=store,
        display=Display(),  # type: ignore[arg-type]
        launching=LaunchSettings(Path("cache"), 1.0, 1.0, 1.0),
        judging=settings_for(made),
        workloads={"dense": workload},
    )


def launches(trouble: Trouble, started: list[str]) -> type:
    """A class that stands in for RunningLaunch, with `trouble` at the start of some launches."""

    class FakeLaunch:
        def __init__(self, launch: Launch, settings: LaunchSettings, *_: object) -> None:
            self.launch = launch
            self._end = LaunchEnd.SERVED

        async def place(self) -> None:
            started.append(self.launch.id)
            await asyncio.sleep(0)

        async def start(self) -> LaunchOutcome:
            waiting = trouble.get(self.launch.id)
            if waiting:
                what = waiting.pop(0)
                if isinstance(what, Exception):
                    raise what
                self._end = what
            return self._outcome()

        async def run(self, pass_: Pass) -> PassAnswer:
            await asyncio.sleep(0)
            drafting = self.launch.role is Role.ON
            return PassAnswer(
                observations=tuple(_observe(r, drafting=drafting) for r in pass_.requests),
                scores=tuple(_score(s) for s in pass_.scores),
                counters_before={},
                counters_after={},
                seconds=float(len(started)),  # no two runs of a launch give the same bytes
            )

        async def finish(self) -> Finished:
            ledger = LEDGER if self.launch.role.extra else b""
            return Finished(self._outcome(), b"log\n", ledger)

        async def identities(self) -> dict[str, str]:
            return {"target": "5" * 64}

        async def state(self) -> tuple[str, str]:
            return "ready", ""

        def release(self) -> None:
            return None

        def _outcome(self) -> LaunchOutcome:
            return LaunchOutcome(
                launch=self.launch.id,
                fingerprint=self.launch.fingerprint,
                end=self._end,
                message="" if self._end is LaunchEnd.SERVED else "in its own words",
                facts={"dtype": "float32"},
                hardware={"cpu": "double"},
            )

    return FakeLaunch


def _observe(request: Request, *, drafting: bool) -> Observation:
    first = request.token_ids[0]
    tokens = np.array([first * 7 + 3 * i for i in range(TOKENS)], np.int32)
    steps = np.array([0, 1, 2] * 3, np.int32) if drafting else np.zeros(0, np.int32)
    return Observation(
        request=request.id,
        prompt=request.prompt,
        category=request.category,
        token_ids=tokens,
        logprobs=np.full(TOKENS, -0.1, np.float32),
        top_ids=tokens.reshape(-1, 1),
        top_logprobs=np.full((TOKENS, 1), -0.1, np.float32),
        accepted=steps,
        drafted=np.full(steps.size, 2, np.int32),
        prompt_tokens=len(request.token_ids),
        finish_reason="length",
        started=0.0,
        finished=1.0,
    )


def _score(request: ScoreRequest) -> Score:
    count = len(request.token_ids) - request.start
    values: Any = np.full(count, -0.1, np.float32)
    return Score(
        request=request.id,
        evaluation=request.evaluation,
        start=request.start,
        token_logprobs=values,
        best_logprobs=values,
        best_ids=np.array(request.token_ids[request.start :], np.int32),
    )
