"""Small sweeps to record: cells, evidence and results as a driver would hand them over."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from matrixrun.evidence.cells import Cell, Speculation
from matrixrun.evidence.launches import LaunchEnd, LaunchOutcome
from matrixrun.evidence.requests import Observation
from matrixrun.evidence.verdicts import CellEvidence, CellResult, Finding, Severity, Verdict
from matrixrun.record import Store, new_sweep

MATRIX = "name: small\n"

FINDING = Finding(
    kind="unexplained-token",
    severity=Severity.FAULT,
    text="request p3 emitted a token that the target prefers another to by 4.2 nats",
    numbers={"regret": 4.2, "position": 17},
)


def make_cell(
    batch_size: int = 8, k: int = 4, *, tensor_parallel_size: int = 1, method: str = "ngram"
) -> Cell:
    """A cell with every axis, as `expand` makes them."""
    speculation = Speculation(method=method, num_speculative_tokens=k)
    parallel = "" if tensor_parallel_size == 1 else f".tp{tensor_parallel_size}"
    name = f"vllm.tiny-dense{parallel}.{speculation.label}.b{batch_size}"
    return Cell(
        id=name,
        axes={
            "engine": "vllm",
            "model": "tiny-dense",
            "quantization": "none",
            "dtype": None,
            "kv_cache_dtype": None,
            "tensor_parallel_size": tensor_parallel_size,
            "pipeline_parallel_size": 1,
            "data_parallel_size": 1,
            "prefix_caching": None,
            "speculation": speculation,
            "batch_size": batch_size,
        },
        fingerprint=f"fingerprint of {name}",
    )


def make_result(cell: Cell, verdict: Verdict = Verdict.PASS, **fields: Any) -> CellResult:
    """A result with metrics of both arms."""
    defaults: dict[str, Any] = {
        "reason": "nothing that the off arm does not explain",
        "metrics": {"same/exact_match.on": 1.0, "acceptance/mean_length.on": 2.5},
    }
    return CellResult(cell=cell, verdict=verdict, **{**defaults, **fields})


def make_observation(request: str = "p0", tokens: int = 3, **fields: Any) -> Observation:
    """An observation of a few tokens with two top logprobs each."""
    defaults: dict[str, Any] = {
        "prompt": request,
        "category": "decided",
        "token_ids": np.arange(tokens, dtype=np.int32),
        "logprobs": np.full(tokens, -0.5, np.float32),
        "top_ids": np.zeros((tokens, 2), np.int32),
        "top_logprobs": np.full((tokens, 2), -0.5, np.float32),
        "text": "a private text",
    }
    return Observation(request=request, **{**defaults, **fields})


def make_store(folder: Path, *, store_text: bool = True, matrix: str = MATRIX) -> Store:
    """A sweep that has just begun."""
    store = Store.create(folder, new_sweep("small", matrix, store_text=store_text))
    store.write_matrix(matrix)
    return store


def run_cell(store: Store, cell: Cell, **fields: Any) -> CellEvidence:
    """Record a launch of each arm and the evidence of a cell; `fields` are of its observations."""
    records, outcomes = {}, {}
    for role, key in (("on", "on"), ("A", "off")):
        launch = f"{role}.{cell.id}"
        outcomes[role] = LaunchOutcome(
            launch=launch,
            fingerprint=f"fingerprint of {launch}",
            end=LaunchEnd.SERVED,
            log_tail="INFO: ready",
            argv=("vllm", "serve", "$TARGET"),
        )
        store.write_log(launch, b"INFO: starting\nINFO: ready\n")
        store.write_outcome(outcomes[role])
        records[key] = store.write_observations(launch, "equality.b8", [make_observation(**fields)])
    evidence = CellEvidence(
        cell=cell,
        outcomes=outcomes,
        records=records,
        workload_sha256="0" * 64,
        settings_sha256="1" * 64,
        program="0.1.0",
    )
    store.write_evidence(evidence)
    return evidence
