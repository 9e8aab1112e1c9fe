"""A decision in words: for a terminal, and as Markdown for a pull request."""

from __future__ import annotations

from collections.abc import Sequence

from matrixrun.signoff.comparison import Change, Direction
from matrixrun.signoff.decision import Decision

MOST_LINES = 20
MOST_ROWS = 200
MOST_CHARACTERS = 240


def headline(decision: Decision) -> str:
    """`NOT SIGNED: 3 reasons`, or `SIGNED`."""
    if decision.signed:
        return "SIGNED"
    count = len(decision.reasons)
    return f"NOT SIGNED: {count} reason{'' if count == 1 else 's'}"


def decision_text(decision: Decision) -> str:
    """Return a decision for a terminal, long lists cut short."""
    changed = [one for one in decision.changes if one.direction is not Direction.SAME]
    lines = [headline(decision), f"{decision.sweep} against {decision.against}, {decision.date}"]
    lines += _part("against it", decision.reasons)
    lines += _part("settings that bring it on", decision.causes if not decision.signed else ())
    lines += _part("let through", decision.accepted)
    lines += _part("remarks", decision.notes)
    told = "\n".join((*decision.reasons, *decision.accepted))
    left = [one for one in changed if f"{one.cell}: {'; '.join(one.what)}" not in told]
    lines += _part("changed", [_change_words(one) for one in left])
    if not changed:
        lines += ["", "every cell is as it was"]
    return "\n".join(lines)


def decision_markdown(decision: Decision) -> str:
    """Return a decision as Markdown: reasons, what was let through, a table of changes."""
    lines = [f"# {'✓' if decision.signed else '✗'} {headline(decision)}", ""]
    lines += [f"`{decision.sweep}` against `{decision.against}`, {decision.date}", ""]
    for title, texts in (
        ("Against it", decision.reasons),
        ("Settings that bring it on", decision.causes),
        ("Let through", decision.accepted),
        ("Remarks", decision.notes),
    ):
        if texts:
            lines += [f"## {title}", "", *(f"- {_escaped(text)}" for text in texts), ""]
    changed = [one for one in decision.changes if one.direction is not Direction.SAME]
    lines += ["## Changes, what matters most first", ""]
    if not changed:
        return "\n".join([*lines, "Every cell is as it was.", ""])
    lines += ["| | cell | old | new | what |", "| --- | --- | --- | --- | --- |"]
    for one in changed[:MOST_ROWS]:
        what = _escaped("; ".join(one.what))
        verdicts = f"{one.old or 'none'} | {one.new or 'none'}"
        lines.append(f"| {one.direction} | `{one.cell}` | {verdicts} | {what} |")
    if len(changed) > MOST_ROWS:
        lines += ["", f"... and {len(changed) - MOST_ROWS} more: see signoff.json"]
    return "\n".join([*lines, ""])


def _change_words(change: Change) -> str:
    return f"{change.direction}: {change.cell}: {'; '.join(change.what)}"


def _part(title: str, texts: Sequence[str]) -> list[str]:
    if not texts:
        return []
    shown = [f"  {shortened(text)}" for text in texts[:MOST_LINES]]
    left = len(texts) - len(shown)
    return ["", title, *shown, *([f"  ... and {left} more: see signoff.md"] if left > 0 else [])]


def shortened(text: str, most: int = MOST_CHARACTERS) -> str:
    """Return one line of at most so many characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= most else flat[: most - 3] + "..."


def _escaped(text: str) -> str:
    """Keep engines' and models' words from ending a table cell or becoming markup."""
    flat = " ".join(text.split())
    for mark in ("\\", "|", "<", "`", "*", "_", "["):
        flat = flat.replace(mark, "\\" + mark)
    return flat
