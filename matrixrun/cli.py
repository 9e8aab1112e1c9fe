"""The commands: parse, call, print, exit. Nothing is computed here."""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
import traceback
from pathlib import Path
from typing import Annotated, Any

import typer

from matrixrun import __version__, cluster_commands
from matrixrun.evidence.errors import (
    ClusterError,
    MatrixrunError,
    StoreError,
    TrackingError,
    UserError,
)
from matrixrun.evidence.verdicts import EXIT_CODES

EPILOG = "Exit codes: " + "; ".join(f"{code} {text}" for code, text in EXIT_CODES.items()) + "."

SIGNED = {0: "signed", 1: "not signed"}
SIGNOFF_EPILOG = (
    "Exit codes: "
    + "; ".join(f"{code} {(EXIT_CODES | SIGNED)[code]}" for code in (0, 1, 2, 3, 4))
    + "."
)

# Typer carries a click of its own, whose base of all usage errors has no public name.
CLICK_ERRORS: tuple[Any, ...] = tuple(
    kind for kind in typer.BadParameter.__mro__ if kind.__name__ == "ClickException"
)

FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

app = typer.Typer(
    name="matrixrun",
    help="Compare an engine with speculative decoding on against the same engine with it off,"
    " over a matrix of settings, and say whether an upgrade may ship.",
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
models_app = typer.Typer(help="Small checkpoints that matrixrun builds itself.", epilog=EPILOG)
app.add_typer(models_app, name="models", no_args_is_help=True)
baseline_app = typer.Typer(help="What an approved sweep showed, as a file.", epilog=EPILOG)
app.add_typer(baseline_app, name="baseline", no_args_is_help=True)
cluster_commands.add(app, EPILOG)

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


@app.command(epilog=EPILOG)
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
    no_tracking: Annotated[
        bool, typer.Option("--no-tracking", help="Do not log to MLflow.")
    ] = False,
    deadline: Annotated[
        float | None,
        typer.Option(
            min=0,
            metavar="MINUTES",
            callback=cluster_commands.finite,
            help="Stop then; what is done stays done.",
        ),
    ] = None,
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


@app.command(epilog=EPILOG)
def support() -> None:
    """Show, engine by engine, which methods and settings can be asked for and which ran here."""
    from matrixrun.plan.support import render

    sys.stdout.write(render())


@app.command(epilog=EPILOG)
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


@app.command(epilog=EPILOG)
def judge(sweep: SweepRef, results_root: ResultsRoot = Path("results")) -> None:
    """Judge a sweep again from its stored observations; the same evidence, the same verdicts."""
    from matrixrun.record import choose, opened
    from matrixrun.record.replay import rejudge

    with opened(sweep, results_root) as store:
        results, code = rejudge(store, lambda line: typer.echo(line, err=True))
    choose().final(results, code, root=store.where, pending=store.pending())
    raise typer.Exit(code)


@app.command(epilog=EPILOG)
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


@app.command(epilog=EPILOG)
def schema() -> None:
    """Print the JSON Schema of matrix files, for editors."""
    from matrixrun.matrix import json_schema

    typer.echo(json.dumps(json_schema(), indent=2))


@app.command(epilog=EPILOG)
def gc(
    older_than: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="DAYS",
            callback=cluster_commands.finite,
            help="Only what was not used for so many days.",
        ),
    ] = 30.0,
    results_root: ResultsRoot = Path("results"),
    delete: Annotated[
        bool, typer.Option("--delete", help="Delete; without it, only list.")
    ] = False,
) -> None:
    """List or delete old environments, checkpoints and results, and end orphaned engines."""
    from matrixrun.record.cleanup import clean

    clean(older_than * 86400, results_root=results_root, delete=delete, say=typer.echo)


@app.command(epilog=EPILOG)
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
            require_place(path, named)
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


@baseline_app.command("accept", epilog=EPILOG)
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


@app.command(epilog=SIGNOFF_EPILOG)
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
    from matrixrun.evidence.errors import UserError
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


@models_app.command("list", epilog=EPILOG)
def list_models() -> None:
    """List the `builtin:` checkpoints."""
    from matrixrun import models

    for name in models.names():
        typer.echo(name)


@models_app.command("build", epilog=EPILOG)
def build_model(
    name: Annotated[str, typer.Argument(help="A `builtin:` name.")],
    python: Annotated[
        Path | None,
        typer.Option(
            help="An interpreter with torch; by default that of the vLLM CPU environment."
        ),
    ] = None,
) -> None:
    """Build a small checkpoint into the cache, and print its folder."""
    from matrixrun import engines, models
    from matrixrun.record.cache import cache_folder

    def say(line: str) -> None:
        typer.echo(line, err=True)

    models.find(name)
    cache = cache_folder()
    if python is None:
        recipe = engines.get("vllm").default_recipe
        python = engines.prepare(recipe, cache=cache, timeout=3600.0, on_line=say).python
    typer.echo(models.build(name, python, cache, say))


@app.command(epilog=EPILOG)
def faultbench(
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="NAME", help="Only this fault; may be repeated."),
    ] = None,
    json_file: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write every trial there.")
    ] = None,
    seeds: Annotated[int, typer.Option(min=1, help="Trials of each, on prompts of their own.")] = 3,
) -> None:
    """Put known faults into a real engine and say which of them the judge catches."""
    from matrixrun.faultbench import BenchOptions, run_bench, show
    from matrixrun.record.cache import cache_folder
    from matrixrun.record.files import require_place

    if json_file is not None:
        require_place(json_file, "--json")

    def say(line: str) -> None:
        typer.echo(line, err=True)

    options = BenchOptions(only=tuple(only or ()), seeds=seeds, json_file=json_file)
    result = run_bench(options, cache=cache_folder(), say=say)
    show(result)
    raise typer.Exit(0 if result.good else 1)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"matrixrun {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    del version


def main() -> None:
    """The console command: every mistake becomes one message and a documented exit code."""
    code = _main()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # the interpreter would try again at its end, and put its own exit code
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    sys.exit(code)


def _main() -> int:  # noqa: PLR0911 (one line for each class of error)
    try:
        outcome = app(standalone_mode=False)
    except typer.Exit as error:
        return error.exit_code
    except CLICK_ERRORS as error:
        error.show()
        return 4
    except (typer.Abort, KeyboardInterrupt):
        _say("interrupted")
        return 2
    except UserError as error:
        _say(str(error))
        return 4
    except (ClusterError, StoreError, TrackingError) as error:
        _say(str(error))
        return 2
    except MatrixrunError as error:
        _say(str(error))
        return 1
    except BrokenPipeError:
        return 0
    except Exception as error:
        if isinstance(error, OSError) and error.errno in FULL:
            _say(f"output cannot be written: {error}\n  remedy: make room, run the same again")
            return 2
        with contextlib.suppress(OSError):
            traceback.print_exc()
        _say("internal error; please report it with the lines above")
        return 3
    return outcome if isinstance(outcome, int) else 0


def _say(text: str) -> None:
    """Tell the user, unless nothing can be written there either."""
    with contextlib.suppress(OSError):
        typer.echo(f"matrixrun: {text}", err=True)
