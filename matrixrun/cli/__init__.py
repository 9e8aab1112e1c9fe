"""The commands: parse, call, print, exit. Nothing is computed here.

Each module holds the commands of one purpose, as plain functions; here they get their names and
their order in the help.
"""

from __future__ import annotations

from typing import Annotated

import typer

from matrixrun import __version__
from matrixrun.cli import bench, cluster, reference, running, signing, sweeps, upkeep
from matrixrun.cli.exits import EPILOG, SIGNOFF_EPILOG, code_of, leave

app = typer.Typer(
    name="matrixrun",
    help="Compare an engine with speculative decoding on against the same engine with it off,"
    " over a matrix of settings, and say whether an upgrade may ship.",
    epilog=EPILOG,
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)
for command in (
    cluster.submit,
    cluster.status,
    cluster.logs,
    cluster.stop,
    cluster.resume,
    running.run,
    reference.support,
    running.plan,
    sweeps.judge,
    sweeps.sync,
    reference.schema,
    upkeep.gc,
    sweeps.report,
):
    app.command(epilog=EPILOG)(command)
app.command(epilog=SIGNOFF_EPILOG)(signing.signoff)
app.command(epilog=EPILOG)(bench.faultbench)

models_app = typer.Typer(help="Small checkpoints that matrixrun builds itself.", epilog=EPILOG)
models_app.command("list", epilog=EPILOG)(upkeep.list_models)
models_app.command("build", epilog=EPILOG)(upkeep.build_model)
app.add_typer(models_app, name="models", no_args_is_help=True)

baseline_app = typer.Typer(help="What an approved sweep showed, as a file.", epilog=EPILOG)
baseline_app.command("accept", epilog=EPILOG)(signing.accept_baseline)
app.add_typer(baseline_app, name="baseline", no_args_is_help=True)


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
    """The console command: it ends with a documented exit code, whatever happens."""
    leave(_main())


def _main() -> int:
    return code_of(lambda: app(standalone_mode=False))
