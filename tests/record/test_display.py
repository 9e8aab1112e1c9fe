"""What a person sees while a sweep runs and at its end."""

from __future__ import annotations

import io
from pathlib import Path

import msgspec
import pytest
from rich.console import Console
from small_sweeps import FINDING, make_cell, make_result

from matrixrun.evidence.verdicts import CellResult, Severity, Verdict
from matrixrun.record import Display, SweepHead, choose
from matrixrun.record.display import LiveDisplay, PlainDisplay, QuietDisplay, duration

HEAD = SweepHead(
    sweep="small-1", root=Path("r"), cells=4, launches=3, naive_launches=8, seconds=200, resumed=1
)
COMMAND = "mlflow ui --backend-store-uri sqlite:////a/rather/long/folder/that/has/no/end/mlflow.db"
ROOT = Path("/a/results/folder/with/a/name/that/is/longer/than/eighty/characters/in/all/small-1")


def results() -> list[CellResult]:
    return [
        make_result(make_cell(1)),
        make_result(make_cell(8), Verdict.FAIL, findings=(FINDING,), reason="one wrong token"),
        *(
            make_result(cell, Verdict.REFUSED, reason="no head for [bold]mtp[/bold]", expected=True)
            for cell in (make_cell(1, method="mtp"), make_cell(8, method="mtp"))
        ),
    ]


def shown(display: Display) -> str:
    return display.console.file.getvalue()  # type: ignore[attr-defined, no-any-return]


def console(width: int = 80, *, terminal: bool = False) -> Console:
    file = io.StringIO()
    return Console(file=file, width=width, height=24, force_terminal=terminal, highlight=False)


def test_the_display_suits_the_output() -> None:
    assert isinstance(choose(console=console(terminal=True)), LiveDisplay)
    assert isinstance(choose(console=console()), PlainDisplay)
    assert type(choose(console=console(terminal=True), quiet=True)) is QuietDisplay


def test_a_job_log_gets_one_line_an_event() -> None:
    with choose(console=console()) as display:
        display.started(HEAD)
        display.progress("collecting vllm")
        display.launch("on.small", "starting")
        display.launch("on.small", "answering", detail="equality.b8")
        display.launch("A.small", "died", detail="first line\n[red]second[/red] line")
        display.cell(results()[1])
    lines = shown(display).splitlines()
    assert len(lines) == 7
    assert all(line[2] == line[5] == ":" for line in lines)
    assert "4 cells in 3 launches (one server an arm would be 8), about 3 min 20 s" in lines[1]
    assert lines[1].endswith("; done already: 1 cell")
    assert "launch on.small answering after 0.0 s: equality.b8" in lines[4]
    assert lines[5].endswith("died after 0.0 s: first line [red]second[/red] line")
    assert lines[6].endswith("cell vllm.tiny-dense.ngram-k4.b8 ✗ FAIL: one wrong token")


@pytest.mark.parametrize("width", [80, 120])
def test_the_end_fits_its_width_and_breaks_no_path_or_command(width: int) -> None:
    display = choose(console=console(width))
    display.final(
        results(), 1, root=ROOT, where=f"{COMMAND}\nand open http://x", pending=("later",)
    )
    lines = shown(display).splitlines()
    unbroken = [line for line in lines if line.startswith(("results: ", "look: "))]
    assert unbroken == [f"results: {ROOT}", f"look:    {COMMAND}"]
    assert all(len(line) <= width for line in lines if line not in unbroken)
    text = "\n".join(lines)
    assert "✗ FAIL  vllm.tiny-dense.ngram-k4.b8\n  one wrong token\n  fault unexplained" in text
    assert "- REFUSED  2 cells\n  vllm.tiny-dense.mtp-k4.b1\n" in text
    assert "no head for [bold]mtp[/bold]" in text
    assert "* the matrix file expects this verdict" in text
    assert "without a verdict\n  later" in text
    assert "5 cells: 1 FAIL, 2 REFUSED, 1 PASS, 1 without a verdict" in text
    assert "exit 1: a FAIL or an ERROR" in text
    assert lines[-1] == "matrixrun: exit 1"


def test_the_matrix_of_verdicts_names_rows_and_columns() -> None:
    display = choose(console=console(120))
    display.final(results(), 1, root=ROOT)
    lines = shown(display).splitlines()
    head = next(line for line in lines if "tiny-dense" in line)
    assert " ".join(head.split()) == ("vllm tiny-dense ngram-k4 b1 ngram-k4 b8 mtp-k4 b1 mtp-k4 b8")
    row = next(line for line in lines if line.startswith("verdict"))
    assert " ".join(row.split()) == "verdict ✓ PASS ✗ FAIL - REFUSED* - REFUSED*"


def test_a_terminal_needs_no_exit_line_but_a_ray_job_does(monkeypatch: pytest.MonkeyPatch) -> None:
    display = choose(console=console(terminal=True))
    display.final(results(), 1, root=ROOT)
    assert "matrixrun: exit" not in shown(display)
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")
    display.final(results(), 1, root=ROOT)
    assert shown(display).splitlines()[-1].endswith("matrixrun: exit 1")


def test_quiet_says_only_the_end() -> None:
    display = choose(console=console(), quiet=True)
    display.started(HEAD)
    display.note("a warning")
    display.launch("on.small", "died")
    display.cell(results()[1])
    assert shown(display) == ""
    display.final(results(), 1, root=ROOT)
    assert "1 FAIL" in shown(display)


def test_a_terminal_shows_launches_at_work_and_keeps_what_went_wrong() -> None:
    display = choose(console=console(terminal=True))
    assert isinstance(display, LiveDisplay)
    with display:
        display.started(HEAD)
        display.launch("on.small", "answering", detail="equality.b8")
        display.launch("on.done", "starting")
        display.launch("on.done", "served")
        display.launch("on.broken", "died", detail="out of memory")
        display.progress("building an environment")
        display.cell(results()[1])
        table = console()
        table.print(display._draw())
    drawn = table.file.getvalue()  # type: ignore[attr-defined]
    assert "1/4 cells · 2 launches ended · 1 FAIL" in drawn
    assert "on.small" in drawn
    assert "answering" in drawn
    assert "building an environment" in drawn
    assert "on.done" not in drawn
    assert all(len(line) <= 80 for line in drawn.splitlines())
    assert "launch on.broken died: out of memory" in shown(display)


def test_many_launches_do_not_overflow_a_terminal() -> None:
    display = choose(console=console(terminal=True))
    assert isinstance(display, LiveDisplay)
    for number in range(100):
        display.launch(f"on.{number}", "queued")
    display.launch("on.busy", "starting")
    table = console()
    table.print(display._draw())
    lines = table.file.getvalue().splitlines()  # type: ignore[attr-defined]
    assert len(lines) <= 24
    assert "on.busy" in lines[1]
    assert "... and 82 more launches" in lines[-1]


def test_a_verdict_that_changes_is_said_again_and_one_that_stays_is_not() -> None:
    display = choose(console=console(terminal=True))
    for verdict in (Verdict.PASS, Verdict.PASS, Verdict.FAIL):
        display.cell(make_result(make_cell(), verdict))
    assert shown(display).count("vllm.tiny-dense.ngram-k4.b8") == 2


def test_a_log_in_ascii_does_not_end_the_sweep(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with (tmp_path / "log").open("w", encoding="ascii") as log:
        monkeypatch.setattr("sys.stdout", log)
        choose().final(results(), 1, root=ROOT)
    assert "? FAIL" in (tmp_path / "log").read_text()


def test_durations_are_read_at_a_glance() -> None:
    assert [duration(s) for s in (4.23, 200, 7500)] == ["4.2 s", "3 min 20 s", "2 h 05 min"]


def test_a_job_log_gives_the_final_verdict_only_where_it_changed() -> None:
    display = choose(console=console())
    kept, changed = results()[:2]
    for result in (kept, changed, kept, msgspec.structs.replace(changed, reason="two of them")):
        display.cell(result)
    lines = shown(display).splitlines()
    assert [line.rpartition(": ")[2] for line in lines[1:]] == ["one wrong token", "two of them"]
    assert len(lines) == 3


def test_a_table_of_one_cell_says_verdict_once() -> None:
    display = choose(console=console())
    display.final(results()[:1], 0, root=ROOT)
    assert shown(display).count("verdict") == 1


def test_a_notice_that_is_the_reason_itself_is_not_said_twice() -> None:
    reason = "lossy by design"
    notice = msgspec.structs.replace(FINDING, severity=Severity.NOTICE, text=reason)
    display = choose(console=console())
    display.final(
        [make_result(make_cell(1), Verdict.REFUSED, findings=(notice,), reason=reason)],
        0,
        root=ROOT,
    )
    assert shown(display).count(reason) == 1
