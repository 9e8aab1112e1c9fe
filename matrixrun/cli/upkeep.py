"""Commands for what is kept on this machine: checkpoints built here, and old files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from matrixrun.cli.options import ResultsRoot, finite


def list_models() -> None:
    """List the `builtin:` checkpoints."""
    from matrixrun import models

    for name in models.names():
        typer.echo(name)


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


def gc(
    older_than: Annotated[
        float,
        typer.Option(
            min=0,
            metavar="DAYS",
            callback=finite,
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
