"""Commands that take a matrix file: run it, or plan what running it takes."""

from __future__ import annotations

import json
import sys
from typing import Annotated

import typer

from matrixrun.cli.options import CostsFrom, Deadline, File, NoTracking, Only, TrackingUri
from matrixrun.evidence.errors import UserError


def run(  # noqa: PLR0917 (typer passes by name)
    file: File,
    results: Annotated[
        str | None,
        typer.Option(
            "--results",
            metavar="DIR",
            help="The sweep's own folder, or a URL such as s3://BUCKET/SWEEP; an existing one is"
            " resumed.",
        ),
    ] = None,
    only: Only = None,
    address: Annotated[
        str | None,
        typer.Option(
            help="A Ray cluster to connect to (`auto`: this machine's); by default a new local one."
        ),
    ] = None,
    tracking_uri: TrackingUri = None,
    no_tracking: NoTracking = False,
    deadline: Deadline = None,
    localize: Annotated[
        int | None,
        typer.Option(
            min=1,
            metavar="CELLS",
            help="Where cells fail, run at most so many further ones to find out which settings"
            " it takes.",
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Only the final table.")] = False,
    costs: CostsFrom = None,
) -> None:
    """Run a matrix and say the verdict of every cell."""
    from matrixrun import signoff as signing
    from matrixrun.fanout import RunOptions, run_matrix
    from matrixrun.record import folder_of, place_of

    options = RunOptions(
        results=None if results is None else place_of(results),
        only=tuple(only or ()),
        address=address,
        tracking_uri=tracking_uri,
        track=not no_tracking,
        deadline_seconds=None if deadline is None else deadline * 60,
        quiet=quiet,
        costs=tuple(map(folder_of, costs or ())),
    )
    report = signing.write_report if no_tracking else signing.report_with_plots
    end = run_matrix(file, options, report)
    if localize is not None and end.store is not None and end.code != 2:
        told = signing.follow_up(file, end.store, options, most=localize)
        typer.echo("\n".join(signing.follow_up_lines(told)))
    raise typer.Exit(end.code)


def plan(  # noqa: PLR0917 (typer passes by name)
    file: File,
    only: Only = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    simulate: Annotated[
        bool, typer.Option("--simulate", help="Only say how long it takes on --nodes.")
    ] = False,
    nodes: Annotated[
        str | None,
        typer.Option(
            metavar="NxM",
            help="With --simulate: nodes and accelerators (or cores) of each, such as 16x8"
            " [default: 1x8].",
        ),
    ] = None,
    costs: CostsFrom = None,
) -> None:
    """Show what `run` would do: cells, pairs, launches, and what the plan cannot see."""
    from matrixrun import plan as planning
    from matrixrun.record import folder_of, with_expectations
    from matrixrun.record.costs import read_costs

    if nodes is not None and not simulate:
        remedy = "add --simulate, or leave --nodes out"
        raise UserError("--nodes has no effect without --simulate", remedy=remedy)
    matrix, whole = planning.plan_file(file)
    known = read_costs(map(folder_of, costs or ()))
    learned = planning.with_costs(with_expectations(matrix, whole, file=str(file)), known)
    made = planning.select(learned, tuple(only or ()))
    if simulate:
        named = "1x8" if nodes is None else nodes
        there = planning.parse_nodes(named, matrix.resources.accelerator)
        found = planning.forecast(matrix, made, there, named=named)
        text = planning.forecast_json(found) if as_json else planning.forecast_text(found)
        typer.echo(text, nl=False)
        if found.impossible:
            raise UserError(
                f"--nodes {named}: no node holds {len(found.impossible)} of the "
                f"{len(made.launches)} launches, such as {found.impossible[0]}",
                remedy="name larger nodes or more of them, or lower `resources` or the parallel"
                " sizes",
            )
    elif as_json:
        sys.stdout.write(json.dumps(planning.to_json(made), indent=2) + "\n")
    else:
        typer.echo(planning.render_text(made))
    if not made.cells:
        typer.echo("nothing to run: no cell is left after exclude and constraints", err=True)
        raise typer.Exit(5)
