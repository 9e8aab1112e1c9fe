"""Commands that say what a matrix file may ask for: its schema, and what each engine supports."""

from __future__ import annotations

import json
import sys

import typer


def schema() -> None:
    """Print the JSON Schema of matrix files, for editors."""
    from matrixrun.matrix import json_schema

    typer.echo(json.dumps(json_schema(), indent=2))


def support() -> None:
    """Show, engine by engine, which methods and settings can be asked for and which ran here."""
    from matrixrun.plan.support import render

    sys.stdout.write(render())
