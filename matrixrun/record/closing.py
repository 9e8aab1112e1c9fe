"""The end of a sweep on a terminal: matrix of verdicts, findings in words, where to look."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from matrixrun.evidence.verdicts import CellResult, Severity, Verdict, exit_text
from matrixrun.record.grid import SIGNS, Grid, fit, verdict_words, worst_first
from matrixrun.record.summary import by_severity, counted

STYLES = {
    Verdict.PASS: "green",
    Verdict.FAIL: "bold red",
    Verdict.ERROR: "bold magenta",
    Verdict.INCONCLUSIVE: "yellow",
    Verdict.INACTIVE: "cyan",
    Verdict.REFUSED: "dim",
}

MOST_CELLS_NAMED = 12


def print_closing(
    console: Console,
    results: Sequence[CellResult],
    exit_code: int,
    *,
    root: Path | str,
    where: str,
    report: Path | None = None,
    pending: Sequence[str] = (),
) -> None:
    """Print all that a person needs at the end of a sweep, within the console's width."""
    console.print()
    if results:
        _print_grid(console, fit(results, console.width))
    if any(result.expected for result in results):
        console.print(Text("* the matrix file expects this verdict", style="dim"))
        console.print()
    for group in _alike(results):
        _print_group(console, group)
    if pending:
        console.print(Text("without a verdict", style="bold"))
        _print_cells(console, pending)
    console.print(Text(counted(results, pending), style="bold"))
    console.print(Text(f"exit {exit_code}: {exit_text(exit_code, results)}"))
    # Paths and commands are copied from here: they are never wrapped.
    console.print(Text(f"results: {root}"), soft_wrap=True)
    if report is not None:
        console.print(Text(f"report:  {report}"), soft_wrap=True)
    for number, line in enumerate(where.splitlines()):
        console.print(Text(("look:    " if number == 0 else "         ") + line), soft_wrap=True)


def _print_grid(console: Console, grid: Grid) -> None:
    for columns in grid.split(console.width):
        table = Table(box=box.SIMPLE_HEAD, padding=(0, 2, 0, 0), show_edge=False)
        table.add_column(Text(grid.constant, style="dim"), overflow="fold")
        for column in columns:
            table.add_column(Text(grid.columns[column]), min_width=grid.width(column))
        for row, results in grid.rows:
            cells = (results[column] for column in columns)
            table.add_row(Text(row), *(_verdict(result) for result in cells))
        console.print(table)
        console.print()


def _verdict(result: CellResult | None) -> Text:
    if result is None:
        return Text("")
    return Text(verdict_words(result), style=STYLES[result.verdict], no_wrap=True)


def _alike(results: Sequence[CellResult]) -> list[list[CellResult]]:
    """Results that need words, worst first; cells with the same words together."""
    groups: dict[tuple[object, ...], list[CellResult]] = {}
    for result in worst_first(results):
        if result.verdict is Verdict.PASS and not result.findings:
            continue
        texts = tuple(finding.text for finding in result.findings)
        groups.setdefault((result.verdict, result.reason, texts), []).append(result)
    return list(groups.values())


def _print_group(console: Console, group: Sequence[CellResult]) -> None:
    first = group[0]
    head = Text(f"{SIGNS[first.verdict]} {first.verdict}", style=STYLES[first.verdict])
    if len(group) == 1:
        head.append(f"  {first.cell.id}", style="bold")
        console.print(head, soft_wrap=True)
    else:
        head.append(f"  {len(group)} cells", style="bold")
        console.print(head)
        _print_cells(console, [result.cell.id for result in group])
    console.print(Padding(Text(first.reason), (0, 0, 0, 2), expand=False))
    for finding in by_severity(first.findings):
        if finding.text == first.reason and not _is_fault(finding.severity):
            continue  # said already
        line = Text(f"{finding.severity} ", style="red" if _is_fault(finding.severity) else "dim")
        line.append(f"{finding.kind}: {finding.text}", style="none")
        console.print(Padding(line, (0, 0, 0, 2), expand=False))
    console.print()


def _print_cells(console: Console, cells: Sequence[str]) -> None:
    for cell in cells[:MOST_CELLS_NAMED]:
        console.print(Text(f"  {cell}"), soft_wrap=True)
    if len(cells) > MOST_CELLS_NAMED:
        console.print(Text(f"  ... and {len(cells) - MOST_CELLS_NAMED} more: see summary.md"))


def _is_fault(severity: Severity) -> bool:
    return severity is Severity.FAULT
