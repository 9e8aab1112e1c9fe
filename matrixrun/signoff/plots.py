"""A cell's evidence as an image, for MLflow: regret against the control, acceptance by position."""

from __future__ import annotations

import io
from pathlib import Path
from typing import TYPE_CHECKING, Any

from matrixrun.evidence.errors import StoreError
from matrixrun.record import Store
from matrixrun.record.artifacts import PLOT
from matrixrun.record.files import write_bytes
from matrixrun.record.grid import worst_first
from matrixrun.record.replay import Reader
from matrixrun.signoff.detail import CellDetail, Rate, detail_of
from matrixrun.signoff.page import settings_of
from matrixrun.signoff.report import write_report

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_PLOTTED = 200
"""Cells that get an image, worst first: each costs a tenth of a second."""

# The Okabe-Ito palette, which colour-blind people tell apart; line styles differ as well.
ARMS = {
    "off": ("#009e73", ":", "off, by itself"),
    "null": ("#0072b2", "--", "control"),
    "on": ("#d55e00", "-", "on"),
}
BAND = "#cccccc"
FEW = 20  # tokens: up to here they are counted one by one
INCHES = (9.0, 3.6)
DOTS_PER_INCH = 110


def write_plots(store: Store) -> list[Path]:
    """Write an image into the folder of each of the worst cells that have observations.

    The same observations give the same bytes. Returns what was written.

    Raises:
        StoreError: the results cannot be read, or a file cannot be written. A cell whose
            observations are damaged gets no image: the report says so in their place.
    """
    reader, settings = Reader(store), settings_of(store)
    results = worst_first(store.results())
    evidences = {evidence.cell.id: evidence for evidence in store.evidences()}
    written = []
    for result in results[:MOST_PLOTTED]:
        evidence = evidences.get(result.cell.id)
        if evidence is None or not {"on", "off"} <= evidence.records.keys():
            continue
        try:
            detail = detail_of(reader.cell(evidence), result, settings, len(results))
        except StoreError:
            continue
        if detail.curves or detail.acceptance:
            path = store.cell_folder(result.cell.id) / PLOT
            write_bytes(path, plot(detail, f"{result.verdict} {result.cell.id}"))
            written.append(path)
    return written


def report_with_plots(store: Store) -> Path:
    """Write a sweep's images and its report, and return the report's path: for a run that logs to
    MLflow.

    Raises:
        StoreError: as `write_plots` and `write_report`.
    """
    write_plots(store)
    return write_report(store)


def plot(detail: CellDetail, title: str) -> bytes:
    """Return a cell's evidence as PNG."""
    # Not pyplot: it keeps every figure, and looks for a screen.
    from matplotlib.figure import Figure

    figure = Figure(figsize=INCHES, dpi=DOTS_PER_INCH, layout="constrained")
    left, right = figure.subplots(1, 2)
    figure.suptitle(title, fontsize=10)
    _regret(left, detail)
    _acceptance(right, detail)
    image = io.BytesIO()
    figure.savefig(image, format="png", metadata={"Software": None})
    return image.getvalue()


def _regret(axes: Axes, detail: CellDetail) -> None:
    """Draw how many tokens have at least a regret, in each arm."""
    from matplotlib.ticker import MaxNLocator

    axes.set_title("tokens with at least this regret", fontsize=9)
    most = 0
    for arm, (colour, style, name) in ARMS.items():
        curve = detail.curves.get(arm)
        if curve is None:
            continue
        if curve.points:
            nats, tokens = zip(*curve.points, strict=True)
            axes.step(nats, tokens, color=colour, linestyle=style, where="post", label=name)
            most = max(most, *tokens)
        else:
            axes.plot([], [], color=colour, linestyle=style, label=f"{name}: none")
    if detail.ceiling is not None:
        axes.axvline(detail.ceiling, color="black", linewidth=0.8)
        axes.annotate("ceiling", (detail.ceiling, 1), xycoords=("data", "axes fraction"),
                      xytext=(3, -10), textcoords="offset points", fontsize=8)  # fmt: skip
    axes.set_xscale("log")
    if most > FEW:
        axes.set_yscale("log")
    else:
        axes.set_ylim(0, most + 1)
        axes.yaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("regret in nats", fontsize=8)
    axes.tick_params(labelsize=8)
    if detail.curves:
        axes.legend(fontsize=8, frameon=False)


def _acceptance(axes: Axes, detail: CellDetail) -> None:
    """Draw acceptance at each draft position with its interval, in the band that is expected."""
    axes.set_title("acceptance at each draft position", fontsize=9)
    rates = [rate for rate in detail.acceptance if rate.position is not None]
    for rate in rates:
        place = (rate.position or 0) + 1
        if rate.expected is not None:
            axes.fill_between(
                [place - 0.4, place + 0.4], rate.expected.low, rate.expected.high, color=BAND
            )
        value = rate.estimate.value
        axes.errorbar(place, value, yerr=_errors(rate), fmt="o", color=ARMS["on"][0], capsize=4)
    axes.set_ylim(0, 1)
    axes.set_xlabel("draft position", fontsize=8)
    axes.set_xticks([(rate.position or 0) + 1 for rate in rates])
    axes.tick_params(labelsize=8)
    if not rates:
        axes.annotate("no drafts", (0.5, 0.5), xycoords="axes fraction", ha="center", fontsize=9)


def _errors(rate: Rate) -> Any:
    value, low, high = rate.estimate.value, rate.estimate.low, rate.estimate.high
    if low is None or high is None:
        return None
    return [[max(0.0, value - low)], [max(0.0, high - value)]]
