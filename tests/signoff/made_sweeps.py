"""Results folders as a run leaves them, made from a toy target whose cells end as a test wants.

Verdicts are the judge's own: a test says what the on arm does, never what is found.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from matrixrun.evidence.cells import Cell, Speculation
from matrixrun.evidence.launches import LaunchEnd, LaunchOutcome
from matrixrun.evidence.requests import Evaluation, Observation, Score
from matrixrun.evidence.verdicts import CellEvidence
from matrixrun.judge import JudgeSettings, exit_code
from matrixrun.judge.suspicions import want_id
from matrixrun.matrix.cell_identity import cell_id
from matrixrun.record import Store, SweepState, new_sweep
from matrixrun.record.replay import judge_store
from matrixrun.workloads.prompts import Prompt, workload_of

MATRIX = "name: made\n"
TOKENS = 24
PROMPT = (1, 2, 3)
WORDS = ("the", "river", "runs", "blue", "under", "a", "stone", "bridge", "while", "birds", "sing")
DEFAULTS: dict[str, Any] = {
    "engine": "vllm",
    "model": "tiny-dense",
    "quantization": "none",
    "dtype": None,
    "kv_cache_dtype": None,
    "tensor_parallel_size": 1,
    "pipeline_parallel_size": 1,
    "data_parallel_size": 1,
    "prefix_caching": None,
    "speculation": Speculation(method="ngram", num_speculative_tokens=3),
    "batch_size": 8,
}
DRAFTED = Speculation(method="draft_model", num_speculative_tokens=3, draft="draft")
MTP = Speculation(method="mtp", num_speculative_tokens=1)


@dataclass(frozen=True)
class Arm:
    """What an on arm does. `faults` requests emit a token 4 nats down, `ties` one at a near tie;
    `accept` is the acceptance at each draft position, None for an arm that never drafts; `ends` how
    its launch ended, in `words`; `slow` stretches its times; `off_tokens` changes the target."""

    faults: int = 0
    ties: int = 0
    accept: float | None = 0.6
    ends: LaunchEnd = LaunchEnd.SERVED
    words: str = ""
    slow: float = 0.7
    prompts: int = 40
    off_tokens: int = 0
    version: str = "0.32.0"
    draft_hash: str = "d" * 64
    text: str = ""
    engine: str = "vllm"


HEALTHY = Arm()
FAULTY = Arm(faults=3, ties=2)
REFUSED = Arm(ends=LaunchEnd.REFUSED, words="NotImplementedError: no speculation with pipelines")
CRASHED = Arm(ends=LaunchEnd.DIED, words="RuntimeError: CUDA error: an illegal memory access")
IDLE = Arm(accept=None)
SHORT = Arm(prompts=12)


def make_cell(**axes: Any) -> Cell:
    """A cell with every axis, and the id that the matrix room gives it."""
    whole = {**DEFAULTS, **axes}
    name = cell_id(whole)
    return Cell(id=name, axes=whole, fingerprint=hashlib.sha256(name.encode()).hexdigest()[:16])


def grid(**axes: Sequence[Any]) -> list[Cell]:
    """The cells of a full grid over the given axes."""
    return [
        make_cell(**dict(zip(axes, values, strict=True)))
        for values in itertools.product(*axes.values())
    ]


@dataclass
class Made:
    """A sweep under construction. `arms` says what each cell's on arm does."""

    root: Path
    arms: Sequence[tuple[Cell, Arm]]
    store_text: bool = True
    settings: JudgeSettings = field(
        default_factory=lambda: JudgeSettings(detect_rate=0.1, control="within-launch")
    )
    plan: dict[str, Any] = field(default_factory=dict)

    def write(self) -> Store:
        """Write the whole results folder, judged, and return it."""
        info = new_sweep("made", MATRIX, matrix_file="made.yaml", store_text=self.store_text)
        store = Store.create(self.root, info)
        store.write_matrix(MATRIX)
        store.write_plan({"cells": [cell for cell, _ in self.arms], **self.plan})
        store.write_settings(self.settings)
        most = max(arm.prompts for _, arm in self.arms)
        for model in {str(cell.axes["model"]) for cell, _ in self.arms}:
            prompts = tuple(Prompt(id=_id(i), category="natural", token_ids=(*PROMPT, i), text="p")
                            for i in range(most))  # fmt: skip
            store.write_workload(model, workload_of(prompts))
        # Cells whose arms do the same share their launches, as cells of one batch size do.
        shared: dict[Arm, CellEvidence] = {}
        for cell, arm in self.arms:
            if arm not in shared:
                shared[arm] = _evidence(store, cell, arm)
            store.write_evidence(msgspec.structs.replace(shared[arm], cell=cell))
        results = judge_store(store, self.settings)
        for result in results:
            store.write_result(result)
        code = exit_code(results, complete=True)
        store.write_summary(results, code)
        store.set_state(SweepState.COMPLETE, exit_code=code)
        return store


def make_store(root: Path, arms: Sequence[tuple[Cell, Arm]], **fields: Any) -> Store:
    """Write a sweep and return its folder."""
    return Made(root, arms, **fields).write()


def _id(number: int) -> str:
    return f"natural-{number:04d}"


def _evidence(store: Store, cell: Cell, arm: Arm) -> CellEvidence:
    outcomes = {"on": _outcome(cell, "on", arm), "A": _outcome(cell, "A", replace(
        arm, ends=LaunchEnd.SERVED, words=""))}  # fmt: skip
    records = {}
    if arm.ends is LaunchEnd.SERVED:
        forks = _forks(arm)
        answers = {
            "on": [_answer(i, arm, forks.get(i), on=True) for i in range(arm.prompts)],
            "off": [_answer(i, arm, None, on=False) for i in range(arm.prompts)],
        }
        answers["null"] = answers["off"]
        for name, given in answers.items():
            launch = outcomes["on" if name == "on" else "A"].launch
            records[name] = store.write_observations(launch, f"equality.{name}", given, seconds=2.0)
            scores = [_score(one, forks if name == "on" else {}) for one in given]
            records[f"{name}.scores"] = store.write_scores(launch, f"score.{name}", scores)
        again = [_again(i, *fork, kind) for i, fork in forks.items() if fork[1] > 1
                 for kind in (Evaluation.DECODE, Evaluation.EXTEND)]  # fmt: skip
        if again:
            records["confirm"] = store.write_scores(outcomes["A"].launch, "confirm", again)
    return CellEvidence(
        cell=cell,
        outcomes=outcomes,
        records=records,
        workload_sha256=f"workload of {arm.prompts}",
        settings_sha256="settings",
        program="0.1.0",
    )


def _outcome(cell: Cell, role: str, arm: Arm) -> LaunchOutcome:
    served = arm.ends is LaunchEnd.SERVED
    argv = ("$PYTHON", "-m", "vllm", "serve", "$TARGET", "--port", "$PORT")
    speculation = ("--speculative-config", '{"method": "ngram"}') if role == "on" else ()
    drafts = {"draft": arm.draft_hash} if role == "on" else {}
    facts = {"engine": arm.engine, "version": arm.version, "torch_version": "2.13.0"}
    facts |= {"block_size": 32}
    return LaunchOutcome(
        launch=f"{role}.{cell.id}",
        fingerprint="f" * 16,
        end=arm.ends,
        message=arm.words,
        log_tail="" if served else f"INFO starting\nTraceback\n{arm.words}\n",
        argv=argv + speculation,
        env={"VLLM_API_KEY": "***"},
        facts=facts if served else {},
        hardware={"node": "n1", "cpu": "EPYC", "cores": 2, "accelerators": [], "driver": ""},
        checkpoints={"target": "a" * 64, **drafts} if served else {},
        ready_seconds=30.0 if served else None,
    )


def _forks(arm: Arm) -> dict[int, tuple[int, float]]:
    """Request -> position and regret of the token at which the on arm leaves the off arm."""
    faults = {3 * i + 1: (5 + i, 4.0) for i in range(arm.faults)}
    return faults | {3 * i + 2: (9 + i, 0.02) for i in range(arm.ties)}


def _answer(number: int, arm: Arm, fork: tuple[int, float] | None, *, on: bool) -> Observation:
    random = np.random.default_rng([number, 5])
    tokens = random.integers(10, 500, TOKENS).astype(np.int32) + arm.off_tokens
    margins = random.uniform(0.3, 5.0, TOKENS)
    others = tokens + 1
    if fork is not None:
        place, margins[fork[0]] = fork
        tokens[place:] += 1
        others[place] = tokens[place] - 1
    best = -np.log1p(np.exp(-margins))
    top_ids = np.stack([tokens, others], axis=1).astype(np.int32)
    top_logprobs = np.stack([best, best - margins], axis=1).astype(np.float32)
    if fork is not None and fork[1] > 1:
        # The on arm believes in its token; it is the target that does not.
        top_logprobs[fork[0]] = (-0.1, -3.0)
    words = [WORDS[token % len(WORDS)] for token in tokens]
    started = 0.02 * number
    seconds = (1.0 if on else arm.slow) * (1.0 + 0.1 * float(random.random()))
    steps = _steps(number, arm) if on else (np.zeros(0, np.int32), np.zeros(0, np.int32))
    return Observation(
        request=_id(number),
        prompt=_id(number),
        category="natural",
        token_ids=tokens,
        logprobs=top_logprobs[:, 0],
        top_ids=top_ids,
        top_logprobs=top_logprobs,
        accepted=steps[0],
        drafted=steps[1],
        prompt_tokens=len(PROMPT) + 1,
        cached_tokens=0,
        finish_reason="length",
        text=" ".join(words) + arm.text,
        started=started,
        first_token=started + 0.1 * seconds,
        finished=started + seconds,
    )


def _steps(number: int, arm: Arm) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng([number, 6])
    accepted: list[int] = []
    while arm.accept is not None and sum(accepted) + len(accepted) + 1 < TOKENS:
        misses = np.flatnonzero(random.random(3) >= arm.accept)
        accepted.append(int(misses[0]) if misses.size else 3)
    steps = np.array(accepted, dtype=np.int32)
    return steps, np.full(steps.size, 3, dtype=np.int32)


def _score(one: Observation, forks: Mapping[int, tuple[int, float]]) -> Score:
    number = int(one.request.rpartition("-")[2])
    best = one.top_logprobs[:, 0].copy()
    regret = np.zeros(TOKENS, np.float32)
    if number in forks:
        regret[forks[number][0]] = forks[number][1]
    return Score(
        request=one.request,
        evaluation=Evaluation.PREFILL,
        start=len(PROMPT) + 1,
        token_logprobs=best - regret,
        best_logprobs=best,
        best_ids=one.token_ids,
        rows=TOKENS,
    )


def _again(number: int, position: int, regret: float, kind: Evaluation) -> Score:
    return Score(
        request=want_id("on", _id(number), position, kind),
        evaluation=kind,
        start=len(PROMPT) + 1 + position,
        token_logprobs=np.array([-0.1 - regret], np.float32),
        best_logprobs=np.array([-0.1], np.float32),
        best_ids=np.array([1], np.int32),
        rows=1,
    )
