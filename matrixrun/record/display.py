"""What a terminal or a job log shows of a sweep, behind one protocol.

LiveDisplay   a TTY: a table of the launches at work, verdicts above it
PlainDisplay  anything else: one line an event, with the time
QuietDisplay  nothing until the end
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Protocol, Self

import msgspec
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from matrixrun.evidence.verdicts import CellResult, Verdict
from matrixrun.record.closing import STYLES, print_closing
from matrixrun.record.grid import counts, verdict_words

# Set by Ray in the process of a job's entry point.
RAY_JOB_VARIABLE = "RAY_JOB_CONFIG_JSON_ENV_VAR"

# Launch states after which a launch needs no row any more.
ENDED = ("served", "stopped", "refused", "died", "hung", "unbuilt", "lost", "not needed")
TROUBLE = ("refused", "died", "hung", "unbuilt", "lost")


class SweepHead(msgspec.Struct, frozen=True, kw_only=True):
    """What is said when a sweep starts. `seconds` is the plan's estimate; `resumed` the number of
    cells that an earlier run has finished."""

    sweep: str
    root: Path | str
    cells: int
    launches: int
    naive_launches: int
    seconds: float | None = None
    accelerators: str = ""
    resumed: int = 0

    def lines(self) -> list[str]:
        """The head in two lines."""
        work = f"{_many(self.cells, 'cell')} in {_many(self.launches, 'launch', 'launches')}"
        work += f" (one server an arm would be {self.naive_launches})"
        if self.accelerators:
            work += f", {self.accelerators} at once"
        if self.seconds is not None:
            work += f", about {duration(self.seconds)}"
        if self.resumed:
            work += f"; done already: {_many(self.resumed, 'cell')}"
        return [f"sweep {self.sweep}", work]


class Display(Protocol):
    """Shows a sweep to a person. A context manager: what it drew is cleaned up at its end."""

    def __enter__(self) -> Self: ...

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None: ...

    def started(self, head: SweepHead) -> None:
        """The sweep begins."""

    def progress(self, text: str) -> None:
        """A line that matters only until the next one: what an environment's build says."""

    def note(self, text: str) -> None:
        """A line to keep: a warning, such as a tracking server that is away."""

    def launch(self, launch: str, state: str, *, detail: str = "") -> None:
        """A launch changed its state: `queued`, `building`, `starting`, `ready`, `answering`,
        `scoring 2/5`, or one of ENDED. `detail` says more (a pass, the engine's own words)."""

    def cell(self, result: CellResult) -> None:
        """A cell has a verdict."""

    def final(
        self,
        results: Sequence[CellResult],
        exit_code: int,
        *,
        root: Path | str,
        where: str = "",
        report: Path | None = None,
        pending: Sequence[str] = (),
    ) -> None:
        """The end: matrix of verdicts, findings, where to look (`where` is tracking's hint,
        `report` the file for a browser)."""


def _many(number: int, one: str, more: str = "") -> str:
    return f"{number} {one if number == 1 else more or one + 's'}"


def choose(*, quiet: bool = False, console: Console | None = None) -> Display:
    """The display for this output: live on a terminal, plain lines otherwise, or quiet."""
    if console is None:
        if hasattr(sys.stdout, "reconfigure"):  # a log in ASCII must not end a sweep
            sys.stdout.reconfigure(errors="replace")
        console = Console(highlight=False)
    if quiet:
        return QuietDisplay(console)
    return LiveDisplay(console) if console.is_terminal else PlainDisplay(console)


def duration(seconds: float) -> str:
    """`4.2 s`, `3 min 20 s`, `2 h 05 min`."""
    if seconds < 60:
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    if minutes < 60:
        return f"{minutes} min {rest:02d} s"
    return f"{minutes // 60} h {minutes % 60:02d} min"


class QuietDisplay:
    """Says nothing until the end; the base of the others."""

    def __init__(self, console: Console) -> None:
        self.console = console

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        return None

    def started(self, head: SweepHead) -> None:
        """Nothing."""

    def progress(self, text: str) -> None:
        """Nothing."""

    def note(self, text: str) -> None:
        """Nothing."""

    def launch(self, launch: str, state: str, *, detail: str = "") -> None:
        """Nothing."""

    def cell(self, result: CellResult) -> None:
        """Nothing."""

    def final(
        self,
        results: Sequence[CellResult],
        exit_code: int,
        *,
        root: Path | str,
        where: str = "",
        report: Path | None = None,
        pending: Sequence[str] = (),
    ) -> None:
        """The matrix of verdicts, the findings, where to look."""
        print_closing(
            self.console,
            results,
            exit_code,
            root=root,
            where=where,
            report=report,
            pending=tuple(pending),
        )
        if not self.console.is_terminal or RAY_JOB_VARIABLE in os.environ:
            self._say(f"matrixrun: exit {exit_code}")

    def _say(self, text: str, style: str = "") -> None:
        """One line as it is, never wrapped: logs are searched by line."""
        self.console.print(Text(text, style=style), soft_wrap=True)


class PlainDisplay(QuietDisplay):
    """One line an event, with the time of day and the seconds that a launch has taken so far."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._began: dict[str, float] = {}
        self._told: dict[str, str] = {}

    def started(self, head: SweepHead) -> None:
        """Two lines."""
        for line in head.lines():
            self.note(line)

    def progress(self, text: str) -> None:
        """A line like any other: a log has no place to draw over."""
        self.note(text)

    def note(self, text: str) -> None:
        """A line with the time."""
        self._say(f"{time.strftime('%H:%M:%S')} {one_line(text)}")

    def launch(self, launch: str, state: str, *, detail: str = "") -> None:
        """A line with the launch's age."""
        now = time.monotonic()
        age = now - self._began.setdefault(launch, now)
        told = f": {one_line(detail)}" if detail else ""
        self.note(f"launch {launch} {state} after {duration(age)}{told}")

    def cell(self, result: CellResult) -> None:
        """A line with verdict and reason; what is the same at the end is not said again."""
        line = f"cell {result.cell.id} {verdict_words(result)}: {result.reason}"
        if self._told.get(result.cell.id) != line:
            self._told[result.cell.id] = line
            self.note(line)


class LiveDisplay(QuietDisplay):
    """A table that redraws itself: launches at work, verdicts so far."""

    def __init__(self, console: Console) -> None:
        super().__init__(console)
        self._began = time.monotonic()
        self._head: SweepHead | None = None
        self._progress = ""
        self._launches: dict[str, tuple[str, str, float]] = {}
        self._ended = 0
        self._results: dict[str, CellResult] = {}
        self._live = Live(  # draws at once, so it comes after all that it draws
            console=console, get_renderable=self._draw, refresh_per_second=4, transient=True
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def started(self, head: SweepHead) -> None:
        """Two lines above the table."""
        self._head = head
        for line in head.lines():
            self.console.print(Text(line))

    def progress(self, text: str) -> None:
        """The table's last line."""
        self._progress = one_line(text)

    def note(self, text: str) -> None:
        """A line above the table."""
        self.console.print(Text(one_line(text), style="yellow"))

    def launch(self, launch: str, state: str, *, detail: str = "") -> None:
        """A row while it works, a line above the table when it ends in trouble."""
        began = self._launches.get(launch, ("", "", time.monotonic()))[2]
        self._progress = ""
        if state in ENDED:
            self._launches.pop(launch, None)
            self._ended += 1
            if state in TROUBLE:
                self.note(f"launch {launch} {state}: {detail}")
        else:
            self._launches[launch] = (state, one_line(detail), began)

    def cell(self, result: CellResult) -> None:
        """A line above the table; a verdict that is given again replaces the first."""
        known = self._results.get(result.cell.id)
        self._results[result.cell.id] = result
        if known is None or known.verdict is not result.verdict:
            line = Text(verdict_words(result).ljust(16), style=STYLES[result.verdict])
            line.append(result.cell.id, style="none")
            self.console.print(line, no_wrap=True, overflow="ellipsis")

    def final(
        self,
        results: Sequence[CellResult],
        exit_code: int,
        *,
        root: Path | str,
        where: str = "",
        report: Path | None = None,
        pending: Sequence[str] = (),
    ) -> None:
        """As the others; the table goes first."""
        self._live.stop()
        super().final(results, exit_code, root=root, where=where, report=report, pending=pending)

    def _draw(self) -> RenderableType:
        rows = sorted(self._launches.items(), key=lambda item: (item[1][0] == "queued", item[1][2]))
        space = max(3, self.console.height - 5)
        table = Table.grid(padding=(0, 2), expand=True)
        table.add_column(no_wrap=True, overflow="ellipsis", ratio=5)
        table.add_column(no_wrap=True, overflow="ellipsis", ratio=2)
        table.add_column(no_wrap=True, overflow="ellipsis", ratio=3, style="dim")
        table.add_column(no_wrap=True, justify="right", width=12)
        for launch, (state, detail, began) in rows[:space]:
            age = duration(time.monotonic() - began)
            table.add_row(Text(launch), Text(state), Text(detail), Text(age))
        parts: list[RenderableType] = [self._status(), table]
        if len(rows) > space:
            parts.append(Text(f"... and {len(rows) - space} more launches", style="dim"))
        if self._progress:
            parts.append(Text(self._progress, style="dim", no_wrap=True, overflow="ellipsis"))
        return Group(*parts)

    def _status(self) -> Text:
        done = len(self._results)
        total = f"/{self._head.cells}" if self._head else ""
        words = [f"{done}{total} cells", f"{_many(self._ended, 'launch', 'launches')} ended"]
        words += [f"{n} {verdict}" for verdict, n in self._tally().items()]
        words.append(duration(time.monotonic() - self._began))
        return Text(" · ".join(words), style="bold", no_wrap=True, overflow="ellipsis")

    def _tally(self) -> dict[Verdict, int]:
        return counts(list(self._results.values()))


def one_line(text: str) -> str:
    """`text` with every run of white space, line breaks included, as one space."""
    return " ".join(text.split())
