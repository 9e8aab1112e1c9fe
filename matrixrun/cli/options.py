"""Arguments and options that several commands take, each with its help."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Annotated

import typer

File = Annotated[Path, typer.Argument(metavar="FILE", help="The matrix file.")]
SweepRef = Annotated[
    str, typer.Argument(metavar="SWEEP", help="A results folder, a sweep's id, or its URL.")
]
Only = Annotated[
    list[str] | None,
    typer.Option("--only", metavar="CELL", help="Only this cell (or glob); may be repeated."),
]
TrackingUri = Annotated[
    str | None,
    typer.Option(
        "--tracking-uri",
        help="MLflow tracking URI; by default MLFLOW_TRACKING_URI, or SQLite in this folder.",
    ),
]
NoTracking = Annotated[bool, typer.Option("--no-tracking", help="Do not log to MLflow.")]
CostsFrom = Annotated[
    list[str] | None,
    typer.Option(
        "--costs",
        metavar="RESULTS",
        help="Estimate by what earlier sweeps took: a results folder, or a folder of them.",
    ),
]
ResultsRoot = Annotated[
    Path, typer.Option("--results-root", help="Where sweeps are looked up by id.")
]


def finite(value: float | None) -> float | None:
    """What a number's bounds alone let through: `nan` and `inf` are no time."""
    if value is not None and not math.isfinite(value):
        raise typer.BadParameter(f"{value} is not a finite number")
    return value


Deadline = Annotated[
    float | None,
    typer.Option(
        min=0, metavar="MINUTES", callback=finite, help="Stop then; what is done stays done."
    ),
]
