"""What a driver writes, sent to where its sweep is kept."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from matrixrun.evidence.errors import StoreError
from matrixrun.record.remote import Remote

PAUSE_SECONDS = 5.0
LARGEST_SHARE = 0.1  # of a driver's time that is spent on sending


@contextmanager
def mirrored(remote: Remote | None, say: Callable[[str], None]) -> Iterator[None]:
    """Send what is written here: at once, every few seconds from then on, and at the end; as the
    only driver that does. What another one wrote there before it ended is brought first.

    A store that is away meanwhile is told once, and tried again.

    Raises:
        UserError: another driver does.
        StoreError: the store cannot be read or written at the beginning, or written at the end.
    """
    if remote is None:
        yield
        return
    told = remote.left_out()
    with remote.claim.held(say):
        for trouble in remote.pull():  # what was pulled before is of before the claim
            if trouble not in told:
                say(f"{trouble}; it was left there, and its cell is run again")
        remote.push()
        over = threading.Event()
        thread = threading.Thread(target=_push_until, args=(over, remote, say), daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()
        remote.push()


def _push_until(over: threading.Event, remote: Remote, say: Callable[[str], None]) -> None:
    away, took = False, 0.0
    while not over.wait(max(PAUSE_SECONDS, took / LARGEST_SHARE)):
        began = time.monotonic()
        try:
            remote.push()
        except (StoreError, OSError) as error:  # among them: a file here is just being moved
            if not away and isinstance(error, StoreError):
                say(f"results wait here: {error}")
                away = True
        else:
            if away:
                say(f"results are at {remote.shown} again")
            away = False
        took = time.monotonic() - began
