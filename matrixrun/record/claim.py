"""One driver at a time where a sweep is kept: an object there says which one.

Whoever holds the claim writes it anew all the while. Another driver looks at it for some time: one
that changes belongs to a driver that lives, one that does not is taken over. So no clock of one
machine is held against another's. Where two drivers think that they hold it (one was cut off from
the store for longer than that, say), each reads it before it writes it and before it sends
anything, finds the other's, and sends nothing more. What cannot be read (it is of another version,
or just being written) is somebody's too.
"""

from __future__ import annotations

import contextlib
import os
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from matrixrun.evidence.errors import StoreError, UserError
from matrixrun.record.files import write_bytes
from matrixrun.record.objects import CLAIM, Objects
from matrixrun.record.sweep import utc_now

BEAT_SECONDS = 15.0
DEAD_SECONDS = 60.0  # a claim that was not written anew for so long
SETTLE_SECONDS = 2.0  # two that take one over in the same moment: the later one holds it
LAST_BEAT_SECONDS = 15.0  # that a driver's end waits for a call to the store
OWNER = ".claim"  # in the copy, and not sent


class Driver(msgspec.Struct, frozen=True, kw_only=True):
    """Who holds a sweep: `copy` is its copy's own random name, `beat` the times it was written."""

    copy: str
    host: str
    pid: int
    since: str
    beat: int = 0

    def __str__(self) -> str:
        return f"process {self.pid} on {self.host}, since {self.since}"


def encoded(driver: Driver) -> bytes:
    """What lies there of a driver."""
    return msgspec.json.encode(driver)


class Claim:
    """The claim on the sweep that `there` keeps and whose copy lies in `local`.

    It is the copy's, which one process at a time works on: a driver that is started again on the
    same machine goes on at once.
    """

    def __init__(self, there: Objects, local: Path) -> None:
        self._there, self._local = there, local
        self._mine: Driver | None = None
        self._other = ""  # in words

    @contextlib.contextmanager
    def held(self, say: Callable[[str], None]) -> Iterator[None]:
        """Hold it; whoever lost it to another driver meanwhile is told by `check`.

        Raises:
            UserError: another driver lives.
            StoreError: the store cannot be reached.
        """
        self._take(say)
        over = threading.Event()
        beating = threading.Thread(target=self._beat_until, args=(over,), daemon=True)
        beating.start()
        try:
            yield
        finally:
            over.set()
            beating.join(LAST_BEAT_SECONDS)
            if not beating.is_alive():  # else the store hangs: the claim is left to a takeover
                with contextlib.suppress(StoreError):
                    if self._is_mine(self._there.read(CLAIM)):
                        self._there.remove([CLAIM])

    def check(self) -> None:
        """Raise StoreError when another driver is known to have taken the sweep over."""
        if self._other:
            raise StoreError(
                f"another driver has taken over {self._there.shown}: {self._other}",
                remedy=f"nothing more is sent there; what was written here lies in {self._local}",
            )

    def look(self) -> None:
        """Raise StoreError when another driver's claim lies there now, or none can be read. Who
        holds no claim has none to lose."""
        if self._mine is not None:
            self._note(self._there.read(CLAIM))
            self.check()

    def _take(self, say: Callable[[str], None]) -> None:
        self._other = ""
        self._mine = mine = Driver(
            copy=self._copy(), host=socket.gethostname(), pid=os.getpid(), since=utc_now()
        )
        if self._there.create(CLAIM, encoded(mine)):
            return
        found = self._there.read(CLAIM)
        if found is not None and not self._is_mine(found):
            self._require_dead(found, say)
        self._there.write_all({CLAIM: encoded(mine)})
        if not self._is_mine(found):
            time.sleep(SETTLE_SECONDS)
            if not self._is_mine(now := self._there.read(CLAIM)):
                raise self._living(now)

    def _require_dead(self, found: bytes, say: Callable[[str], None]) -> None:
        say(
            f"{self._there.shown} is claimed ({_named(found)}); looking for {DEAD_SECONDS:g} s"
            " whether that driver lives"
        )
        until = time.monotonic() + DEAD_SECONDS
        while time.monotonic() < until:
            time.sleep(min(BEAT_SECONDS, DEAD_SECONDS / 4))
            if (
                self._there.read(CLAIM) != found
            ):  # also one that has just ended: what it wrote is not here
                raise self._living(found)
        say("it wrote nothing: its sweep is taken over")

    def _living(self, other: bytes | None) -> UserError:
        return UserError(
            f"another driver is writing to {self._there.shown}: {_named(other)}",
            remedy="wait until it has ended and run this again, or choose another --results",
        )

    def _beat_until(self, over: threading.Event) -> None:
        while not over.wait(BEAT_SECONDS) and not self._other:
            # A store that is away hears of it later, or of another driver by then.
            with contextlib.suppress(StoreError):
                self._beat()

    def _beat(self) -> None:
        self._note(self._there.read(CLAIM))
        if self._mine is not None and not self._other:
            self._mine = msgspec.structs.replace(self._mine, beat=self._mine.beat + 1)
            self._there.write_all({CLAIM: encoded(self._mine)})

    def _note(self, found: bytes | None) -> None:
        """Remember whose claim lies there, if it is another's."""
        if found is not None and not self._is_mine(found):
            self._other = _named(found)

    def _is_mine(self, found: bytes | None) -> bool:
        driver = _decoded(found)
        return driver is not None and self._mine is not None and driver.copy == self._mine.copy

    def _copy(self) -> str:
        """The name of the copy, made with it."""
        file = self._local / OWNER
        if not file.exists():
            write_bytes(file, secrets.token_hex(16).encode())
        return file.read_text(encoding="ascii")


def _decoded(data: bytes | None) -> Driver | None:
    """Who wrote a claim; None where there is none, or it cannot be read."""
    try:
        return None if data is None else msgspec.json.decode(data, type=Driver)
    except msgspec.MsgspecError:
        return None


def _named(data: bytes | None) -> str:
    return str(_decoded(data) or "its claim cannot be read")
