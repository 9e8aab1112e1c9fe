"""What MLflow is told of a cell and of a sweep: pure, so that it can be looked at without MLflow.

MLflow cuts parameters and tags that are too long without a word, refuses some characters in
metric names, and turns infinities into the largest float. Here long texts are cut visibly,
names are made valid, and figures that are no numbers are named in the note instead.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

import msgspec

from matrixrun.evidence.cells import Cell
from matrixrun.evidence.verdicts import CellEvidence, CellResult, Severity, Verdict
from matrixrun.record.grid import ORDER, SIGNS, counts
from matrixrun.record.naming import params, reading_order
from matrixrun.record.summary import cell_markdown, counted
from matrixrun.record.sweep import SweepInfo, SweepState, parse_utc

# MLflow 3.17: longer ones are cut without a word (parameters, tags) or refused (names).
LONGEST_PARAM = 6000
LONGEST_TAG = 8000
LONGEST_NAME = 250

KIND = "matrixrun.kind"
FINGERPRINT = "fingerprint"
SWEEP = "sweep"
REVISION = "matrixrun.revision"
NOTE = "mlflow.note.content"

CUT = "\n\n... cut here; the whole text is in the artifacts and in the results folder"


class RunContent(msgspec.Struct, frozen=True, kw_only=True):
    """One MLflow run. Times are milliseconds since 1970 and fixed by the sweep, so that sending
    a run again changes nothing. `status` is MLflow's own word."""

    key: str
    name: str
    params: dict[str, str]
    metrics: dict[str, float]
    tags: dict[str, str]
    status: str
    start: int
    end: int


def cell_run(result: CellResult, evidence: CellEvidence | None, sweep: SweepInfo) -> RunContent:
    """The run of a cell. Its key is the cell's fingerprint."""
    cell = result.cell
    start = _milliseconds(sweep.created)
    seconds = sum(record.seconds for record in evidence.all_records().values()) if evidence else 0.0
    metrics, unplottable = _metrics(result)
    faults = [f.kind for f in result.findings if f.severity is Severity.FAULT]
    notices = [f.kind for f in result.findings if f.severity is not Severity.FAULT]
    tags = {
        SWEEP: sweep.id,
        KIND: "cell",
        FINGERPRINT: cell.fingerprint,
        "cell": cell.id,
        "verdict": str(result.verdict),
        "expected": "yes" if result.expected else "no",
        "reason": result.reason,
        "faults": ", ".join(dict.fromkeys(faults)) or "none",
        "notices": ", ".join(dict.fromkeys(notices)) or "none",
        NOTE: _cell_note(result, sweep, unplottable),
    }
    return RunContent(
        key=cell.fingerprint,
        name=cell_run_name(cell, result.verdict),
        params={
            k: shorten(v, LONGEST_PARAM) for k, v in (params(cell) | _versions(evidence)).items()
        },
        metrics=metrics,
        tags={k: shorten(v, LONGEST_TAG) for k, v in tags.items()} | _source(sweep),
        status=_cell_status(result),
        start=start,
        end=start + round(1000 * seconds),
    )


def _versions(evidence: CellEvidence | None) -> dict[str, str]:
    """Which engine ran in each arm, as it said itself: `engine.on` "vllm 0.9.1"."""
    outcomes = evidence.outcomes if evidence is not None else {}
    return {
        f"engine.{arm}": f"{facts.get('engine', '')} {facts['version']}".strip()
        for arm, role in (("on", "on"), ("off", "A"))
        if role in outcomes and (facts := outcomes[role].facts).get("version")
    }


def _cell_status(result: CellResult) -> str:
    """MLflow's green tick is for what speaks for shipping, or is expected, or is only refused."""
    if result.expected or result.verdict in (Verdict.PASS, Verdict.REFUSED):
        return "FINISHED"
    return "FAILED" if result.verdict in (Verdict.FAIL, Verdict.ERROR) else "KILLED"


def cell_run_name(cell: Cell, verdict: Verdict) -> str:
    """What a reviewer reads in MLflow's tables and legends: verdict first, then the axes."""
    return f"{SIGNS[verdict]} {verdict} {reading_order(cell.axes)}"[:LONGEST_NAME]


def sweep_run(
    sweep: SweepInfo, results: Sequence[CellResult], summary: str, pending: Sequence[str] = ()
) -> RunContent:
    """The one run that sums a sweep up; `summary` is its summary.md."""
    start = _milliseconds(sweep.created)
    found = counts(results)
    tags = {
        SWEEP: sweep.id,
        KIND: "sweep",
        "state": str(sweep.state),
        "exit_code": "" if sweep.exit_code is None else str(sweep.exit_code),
        NOTE: summary,
    }
    return RunContent(
        key=sweep.id,
        name=f"SWEEP {sweep.id} · {counted(results, pending)}"[:LONGEST_NAME],
        params={"matrix": sweep.matrix_name, "matrix_sha256": sweep.matrix_sha256},
        metrics={f"cells/{verdict}": float(found.get(verdict, 0)) for verdict in reversed(ORDER)},
        tags={k: shorten(v, LONGEST_TAG) for k, v in tags.items()} | _source(sweep),
        status=_sweep_status(sweep),
        start=start,
        end=start if sweep.finished is None else _milliseconds(sweep.finished),
    )


def _sweep_status(sweep: SweepInfo) -> str:
    if sweep.state is SweepState.RUNNING:
        return "RUNNING"
    if sweep.state is SweepState.INTERRUPTED:
        return "KILLED"
    return "FINISHED" if sweep.exit_code == 0 else "FAILED"


def _source(sweep: SweepInfo) -> dict[str, str]:
    return {"mlflow.source.name": f"matrixrun {sweep.program}", "mlflow.source.type": "JOB"}


def _milliseconds(utc: str) -> int:
    return round(1000 * parse_utc(utc).timestamp())


def _metrics(result: CellResult) -> tuple[dict[str, float], list[str]]:
    """Metrics that MLflow can hold, and in words those that it cannot."""
    counted_findings = {
        "findings/faults": sum(f.severity is Severity.FAULT for f in result.findings),
        "findings/notices": sum(f.severity is not Severity.FAULT for f in result.findings),
    }
    figures: dict[str, float] = {
        **result.metrics,
        **{f"coverage/{name}": float(value) for name, value in result.coverage.items()},
        **{name: float(value) for name, value in counted_findings.items()},
    }
    finite = {metric_name(k): float(f"{v:.6g}") for k, v in figures.items() if math.isfinite(v)}
    words = [f"`{k}` is {v}" for k, v in figures.items() if not math.isfinite(v)]
    return finite, words


def metric_name(name: str) -> str:
    """A name that MLflow takes: letters, digits, `_ - . : /` and spaces."""
    return re.sub(r"[^\w\-. :/]", "_", name)[:LONGEST_NAME]


def shorten(text: str, limit: int) -> str:
    """`text`, or as much of it as fits with a remark that it was cut."""
    return text if len(text) <= limit else text[: limit - len(CUT)] + CUT


def _cell_note(result: CellResult, sweep: SweepInfo, unplottable: Sequence[str]) -> str:
    lines = [cell_markdown(result), ""]
    if unplottable:
        lines += ["Without a number to plot: " + ", ".join(unplottable) + ".", ""]
    lines.append(f"Cell `{result.cell.id}` of sweep `{sweep.id}`.")
    return "\n".join(lines)
