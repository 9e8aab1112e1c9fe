"""Why a results folder cannot be resumed: which cells are stale in it, and what has changed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import matrixrun
from matrixrun.evidence.errors import MatrixError, UserError
from matrixrun.matrix.yaml12 import parse
from matrixrun.plan import Plan
from matrixrun.record import Store
from matrixrun.record.files import sha256

SHOWN = 5


def require_same_matrix(store: Store, file: Path, plan: Plan) -> None:
    """Refuse to go on with the sweep of another matrix file than `file`, whose plan this is.

    Raises:
        UserError: names the keys that differ, and what would happen to the cells.
    """
    text = file.read_text(encoding="utf-8")
    if store.info.matrix_sha256 == sha256(text.encode()):
        return
    changed = list(differing(_data(store.matrix_text()), _data(text)))
    what = _listed(changed) if changed else "only comments or the way it is written"
    raise UserError(
        f"{store.where} holds a sweep of another matrix file than {file} as it is now;"
        f" what differs: {what}. {_cells(store, plan)}",
        remedy=f"choose another --results, or restore the file from {store.where}/matrix.yaml",
    )


def require_same_cells(store: Store, plan: Plan) -> None:
    """Refuse to go on with a sweep whose cells mean something else now.

    The matrix file is the same then, but a prompts file, an overlay or the program has changed.

    Raises:
        UserError: names the cells that the folder holds under other settings.
    """
    stale = _stale(store, plan)
    if not stale:
        return
    old, now = store.info.program, matrixrun.__version__
    same = "a prompts file, an overlay or an engine's recipe in matrixrun itself has changed"
    why = same if old == now else f"matrixrun was {old} and is {now}"
    raise UserError(
        f"{store.where}: {len(stale)} of {len(plan.cells)} cells were begun with other settings"
        f" than they have now: {_listed(stale)}; the matrix file is the same, but {why}",
        remedy="choose another --results, or put back what it was begun with",
    )


def differing(old: Any, new: Any, key: str = "") -> Iterator[str]:
    """The keys at which two documents differ, dotted; values may be secrets and are not named."""
    if isinstance(old, dict) and isinstance(new, dict):
        for name in sorted({*old, *new}):
            yield from differing(old.get(name), new.get(name), f"{key}.{name}" if key else name)
    elif old != new:
        yield key


def _data(text: str) -> Any:
    try:
        return parse(text, "matrix.yaml").data
    except MatrixError:
        return None


def _stale(store: Store, plan: Plan) -> list[str]:
    now = {cell.id: cell.fingerprint for cell in plan.cells}
    known = {cell.id: cell for cell in store.cells()}
    known |= {evidence.cell.id: evidence.cell for evidence in store.evidences()}
    return [
        name for name, cell in known.items() if now.get(name, cell.fingerprint) != cell.fingerprint
    ]


def _cells(store: Store, plan: Plan) -> str:
    """What of the finished cells would still hold under the file as it is now."""
    now = {cell.id: cell.fingerprint for cell in plan.cells}
    finished = [evidence.cell for evidence in store.evidences()]
    valid = [cell for cell in finished if now.get(cell.id) == cell.fingerprint]
    gone = [cell.id for cell in finished if cell.id not in now]
    stale = [c.id for c in finished if c.id in now and now[c.id] != c.fingerprint]
    parts = [f"Of {len(finished)} finished cells {len(valid)} would be the same"]
    if stale:
        parts.append(f"stale: {_listed(stale)}")
    if gone:
        parts.append(f"no longer in the file: {_listed(gone)}")
    return "; ".join(parts)


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
