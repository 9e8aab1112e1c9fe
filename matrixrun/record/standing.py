"""Where a sweep stands, read from its results folder alone: nobody is asked."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

from matrixrun.evidence.errors import StoreError
from matrixrun.evidence.launches import LaunchEnd, LaunchOutcome
from matrixrun.evidence.verdicts import Verdict, exit_text
from matrixrun.record.files import locked, read_json
from matrixrun.record.store import Store
from matrixrun.record.sweep import SweepState, is_sweep, list_sweeps

RESULTS = Path("results")
ADDRESSES = ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS")  # by which a cluster is meant


def here(reference: str, address: str | None) -> Path | None:
    """The results folder on this machine that is meant; None where a cluster is to be asked.

    A folder is taken as it is, unless an address is given with it; an id is looked up in `results/`
    where no cluster is named in any way.
    """
    if address is not None:
        return None
    if is_sweep(Path(reference)):
        return Path(reference)
    if any(os.environ.get(name) for name in ADDRESSES):
        return None
    return list_sweeps(RESULTS).get(reference)


def standing_text(folder: Path) -> str:
    """A sweep in a few lines.

    Raises:
        StoreError: the folder is damaged.
    """
    store = Store.open(folder)
    info, results = store.info, store.results()
    planned = len(store.cells())
    counts = Counter(result.verdict for result in results)
    found = ", ".join(f"{counts[one]} {one}" for one in Verdict if counts[one])
    rows = [("sweep", info.id), ("state", _state(store)), ("begun", info.created)]
    rows += [("ended", info.finished)] if info.finished else []
    rows += [("cells", f"{len(results)} of {planned} judged{f': {found}' if found else ''}")]
    rows += [("results", store.where)]
    if info.state is not SweepState.RUNNING and info.exit_code is not None:
        meaning = exit_text(info.exit_code, results)
        rows.append(("verdict", f"exit {info.exit_code}: {meaning}"))
    return "\n".join(f"{name:12}{text}" for name, text in rows)


def state_of(folder: Path) -> str:
    """Whether a sweep runs, is complete, or was interrupted, in words.

    Raises:
        StoreError: the folder is damaged.
    """
    return _state(Store.open(folder))


def _state(store: Store) -> str:
    if store.info.state is not SweepState.RUNNING:
        return str(store.info.state)
    try:
        with locked(store.root) as mine:
            if not mine:
                return "running"
    except StoreError:
        return "not ended; whether a process is at it cannot be told: the folder may only be read"
    return (
        "not ended, and no process on this machine is at it: its driver was killed, or runs"
        " elsewhere (`--address URL` asks a cluster)"
    )


def launches_text(folder: Path) -> str:
    """How each launch ended so far, and where its log lies.

    Raises:
        StoreError: the folder is damaged.
    """
    lines = []
    for file in sorted(folder.glob("launches/*/outcome.json")):
        outcome, log = read_json(file, LaunchOutcome), file.with_name("engine.log")
        message = outcome.message.strip().splitlines()
        words = f": {message[0]}" if message and outcome.end is not LaunchEnd.SERVED else ""
        lines.append(f"{outcome.end:9}{outcome.launch}{words}")
        lines += [f"         {log}"] if log.exists() else []
    note = "what the driver printed is not kept here; `--address URL` shows a job's"
    return "\n".join([*(lines or ["no launch has ended yet"]), note])
