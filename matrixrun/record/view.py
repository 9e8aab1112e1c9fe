"""A view of one sweep in MLflow's runs table: worst verdict first, the columns that matter.

MLflow's table shows no parameter, metric or tag before somebody picks columns. It keeps the views
that people share as JSON in a tag of the experiment, and a link names one of them; the same is
written here for each sweep. An MLflow that does not know such views ignores the tag.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from matrixrun.evidence.verdicts import CellResult
from matrixrun.record.naming import params
from matrixrun.record.runs import KIND, SWEEP, metric_name

# The figures a reviewer asks for first, without the arm.
HEADLINES = (
    "same/exact_match",
    "unexplained/tokens",
    "regret/max",
    "acceptance/mean_acceptance_length",
    "speed/speedup",
)
NAME = "attributes.`Run Name`"
MOST_COLUMNS = 20
PIXELS = {NAME: 380, "tags.`verdict`": 130, "tags.`faults`": 160}
PIXELS_A_LETTER = 6


def view_tag(sweep: str) -> str:
    """The experiment's tag that holds the view."""
    return f"mlflow.sharedViewState.{sweep}"


def view_page(experiment_id: str, sweep: str) -> str:
    """The path of the page that shows it, below the address of MLflow's server."""
    return f"/#/experiments/{experiment_id}/runs?viewStateShareKey={sweep}"


def view(results: Sequence[CellResult], sweep: str) -> str:
    """The view as MLflow's JSON: which runs, in which order, with which columns."""
    headlines = _headlines(results)
    columns = [*PIXELS, *headlines, *_differing(results)][1:MOST_COLUMNS]
    widths = {column: PIXELS_A_LETTER * len(column) for column in headlines}
    return json.dumps(
        {
            "searchFilter": f"tags.{SWEEP} = '{sweep}' and tags.`{KIND}` = 'cell'",
            "orderByKey": "tags.`verdict`",
            "orderByAsc": True,
            "selectedColumns": columns,
            "columnOrder": [NAME, *columns],
            "columnWidths": PIXELS | widths,
            "runsHiddenMode": "FIRST_20_RUNS",
        }
    )


def _differing(results: Sequence[CellResult]) -> list[str]:
    values: dict[str, set[str]] = {}
    for result in results:
        for name, value in params(result.cell).items():
            values.setdefault(name, set()).add(value)
    return [f"params.`{name}`" for name, seen in values.items() if len(seen) > 1]


def _headlines(results: Sequence[CellResult]) -> list[str]:
    names = {metric_name(name) for result in results for name in result.metrics}
    on_first = sorted(names, key=lambda name: (not name.endswith(".on"), name))
    return [
        f"metrics.`{name}`"
        for headline in HEADLINES
        for name in on_first
        if name.startswith(f"{headline}.") or (name == headline and f"{name}.on" not in names)
    ]
