"""Commands of the gate: accept a sweep as the baseline, and sign another off against it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from matrixrun.cli.options import ResultsRoot, SweepRef, TrackingUri
from matrixrun.evidence.errors import TrackingError, UserError


def accept_baseline(
    sweep: SweepRef,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where to write it; by default it is printed."),
    ] = None,
    tracking_uri: TrackingUri = None,
    no_tracking: Annotated[
        bool, typer.Option("--no-tracking", help="Do not tag the sweep's runs in MLflow.")
    ] = False,
    results_root: ResultsRoot = Path("results"),
) -> None:
    """Write what a sweep showed as a file for review: the expectations of those to come."""
    from matrixrun import signoff as signing
    from matrixrun.record import opened
    from matrixrun.record.files import require_place

    if out is not None:
        require_place(out, "--out")
    with opened(sweep, results_root) as store:
        text = signing.accept(store)
        if out is None:
            sys.stdout.write(text)
        else:
            typer.echo(signing.write_baseline(out, text))
        if not no_tracking:
            try:
                tagged = signing.tag_baseline(store, text, tracking_uri)
                typer.echo(f"MLflow: {tagged} runs are tagged `baseline: accepted`", err=True)
            except TrackingError as error:
                typer.echo(f"not tagged in MLflow: {error}", err=True)


def signoff(  # noqa: PLR0917 (typer passes by name)
    sweep: SweepRef,
    against: Annotated[
        str, typer.Option(metavar="BASELINE", help="A baseline file, or an approved sweep.")
    ],
    policy: Annotated[
        Path | None, typer.Option(metavar="FILE", help="What blocks, what is waived or known.")
    ] = None,
    upgrade: Annotated[
        list[str] | None,
        typer.Option(metavar="OLD=NEW", help="Engine NEW takes the place of the baseline's OLD."),
    ] = None,
    by: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="Who decides: record it in MLflow's model registry."),
    ] = None,
    tracking_uri: TrackingUri = None,
    results_root: ResultsRoot = Path("results"),
) -> None:
    """Say whether a sweep may be signed, and why not: 0 signed, 1 not signed."""
    from matrixrun import signoff as signing
    from matrixrun.record import opened

    if by is not None and not by.strip():
        raise UserError("--by names nobody", remedy="write who decides")
    options = signing.SignoffOptions(
        against=against, policy=policy, upgrades=tuple(upgrade or ()), results_root=results_root
    )
    with opened(sweep, results_root) as store:
        decision = signing.sign_off(store, options)
        typer.echo(signing.decision_text(decision))
        if by is not None:
            for one in signing.record(store, decision, by, tracking_uri):
                typer.echo(f"recorded: {one.model}, version {one.version}")
    raise typer.Exit(0 if decision.signed else 1)
