"""The command that measures the judge itself, on known faults."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer


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
