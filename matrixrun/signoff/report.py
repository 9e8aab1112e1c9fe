"""`matrixrun report`: the page of a sweep, written as a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from matrixrun.record import Store, summary_markdown
from matrixrun.record.files import write_bytes
from matrixrun.record.naming import labels
from matrixrun.signoff.html import render
from matrixrun.signoff.junit import junit
from matrixrun.signoff.page import PlanView, build_page

REPORT_FILE = "report.html"


def write_report(
    store: Store,
    out: Path | None = None,
    *,
    decision: Any = None,
    say: Callable[[str], None] | None = None,
) -> Path:
    """Write a sweep's report and return its path: `report.html` in the results folder, or `out`.

    `say` is told of each cell whose evidence is damaged or gone, or gives another verdict than the
    one stored: the report then says that its verdicts are not supported.

    Raises:
        StoreError: the results cannot be read, or the file cannot be written.
    """
    page = build_page(store)
    if say is not None:
        for line in page.head.damage:
            say(line)
    results = store.results()
    damage = page.head.damage
    code = None if damage else page.head.exit_code
    summary = summary_markdown(results, store.info.id, code, pending=page.pending)
    if damage:
        summary = "\n".join([f"{page.head.exit_text}:", *damage, "", summary])
    path = store.root / REPORT_FILE if out is None else out
    write_bytes(path, render(page, summary=summary, decision=decision).encode("utf-8", "replace"))
    return path


def write_junit(store: Store, out: Path) -> Path:
    """Write a sweep as JUnit XML and return the path.

    Raises:
        StoreError: the results cannot be read, or the file cannot be written.
    """
    plan = store.plan(PlanView)
    document = junit(
        store.results(),
        store.info.id,
        timestamp=(store.info.finished or store.info.created).removesuffix("Z"),
        pending=store.pending(),
        excluded=[(labels(one.axes), one.reason) for one in plan.excluded],
    )
    write_bytes(out, document)
    return out
