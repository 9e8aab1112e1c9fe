"""The sweep that a user names: a folder, an id, or a URL."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from matrixrun.record.objects import is_url
from matrixrun.record.remote import Remote
from matrixrun.record.store import Store
from matrixrun.record.sweep import find_sweep


@contextmanager
def opened(reference: str, results_root: Path) -> Iterator[Store]:
    """The store of a sweep. What lies at a URL is brought here, and what the command writes is
    taken there; while another process here writes to the copy, it does both.

    Raises:
        UserError: there is none, or a driver elsewhere is writing there what this command would.
        StoreError: it cannot be read or written.
    """
    remote = Remote(reference) if is_url(reference) else None
    folder = find_sweep(reference, results_root) if remote is None else remote.fetch()
    yield Store.open(folder, remote)
    if remote is not None:
        remote.send()


def place_of(name: str) -> Path | Remote:
    """The results folder that a user names, here or kept elsewhere."""
    return Remote(name) if is_url(name) else Path(name)


def folder_of(reference: str) -> Path:
    """The folder that a user named, or the copy of what lies at a URL, for reading.

    Raises:
        UserError, StoreError: as `opened`.
    """
    return Remote(reference).fetch() if is_url(reference) else Path(reference)
