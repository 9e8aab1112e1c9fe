"""The process group of a launch on a further node: it serves nobody, and ends with the head's."""

from __future__ import annotations

import time

from matrixrun.engines.processes import end_orphans
from matrixrun.engines.server import POLL_SECONDS, Server


class Follower(Server):
    """Started and ended as a server is, but it has no health of its own: the head's answer, once
    all process groups have found each other, is for all of them."""

    def start(self) -> float:
        """Start; returns at once."""
        end_orphans()
        self._spawn()
        return 0.0

    def wait(self) -> str:
        """Wait until the process group has ended; returns the end of its log."""
        while self.alive:
            time.sleep(POLL_SECONDS)
        return self.log_tail()
