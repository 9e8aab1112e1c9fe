"""Commands that take a sweep's results: judge them again, report them, log them to MLflow."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from matrixrun.cli.options import ResultsRoot, SweepRef, TrackingUri


def judge(sweep: SweepRef, results_root: ResultsRoot = Path("results")) -> None:
    """Judge a sweep again from its stored observations; the same evidence, the same verdicts."""
    from matrixrun.record import choose, opened
    from matrixrun.record.replay import rejudge

    with opened(sweep, results_root) as store:
        results, code = rejudge(store, lambda line: typer.echo(line, err=True))
    choose().final(results, code, root=store.where, pending=store.pending())
    raise typer.Exit(code)


def report(
    sweep: SweepRef,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The HTML file; by default report.html in the folder."),
    ] = None,
    junit: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Also write JUnit XML, for CI.")
    ] = None,
    bundles: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Also write a reproduction for each FAIL, for upstream."),
    ] = None,
    results_root: ResultsRoot = Path("results"),
) -> None:
    """Write a sweep's report: one HTML file with the verdicts and all their evidence; 2 where the
    evidence is damaged, or does not give the verdicts."""
    from matrixrun import signoff as signing
    from matrixrun.evidence.verdicts import Verdict
    from matrixrun.record import opened
    from matrixrun.record.files import require_place

    for path, named in ((out, "--out"), (junit, "--junit"), (bundles, "--bundles")):
        if path is not None:
            require_place(path, named, folder=named == "--bundles")
    damage: list[str] = []
    with opened(sweep, results_root) as store:
        typer.echo(signing.write_report(store, out, say=damage.append))
        for line in damage:
            typer.echo(line, err=True)
        if junit is not None:
            typer.echo(signing.write_junit(store, junit))
        if bundles is not None and not any(r.verdict is Verdict.FAIL for r in store.results()):
            typer.echo("no cell is FAIL: nothing to reproduce", err=True)
        elif bundles is not None:
            for folder in signing.write_bundles(store, bundles):
                typer.echo(folder)
    if damage:
        raise typer.Exit(2)


def sync(
    sweep: SweepRef,
    tracking_uri: TrackingUri = None,
    results_root: ResultsRoot = Path("results"),
) -> None:
    """Fill MLflow from a results folder; what is there already is not logged twice."""
    from matrixrun.record import Tracking, opened
    from matrixrun.signoff import write_plots

    with opened(sweep, results_root) as store, store.writing():
        tracking = Tracking(tracking_uri, store.info.matrix_name)
        write_plots(store)
        tracking.sync(store, pending=store.pending(), say=lambda line: typer.echo(line, err=True))
    typer.echo(tracking.where())
