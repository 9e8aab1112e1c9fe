"""The control file says which fault is active; counters beside it say what came of it.

Control: JSON `{"generation": n, "fault": name or null, "seed": s, "parameters": {...}}`, replaced
as a whole. Counters: `<control>.<process id>`, for each process of the engine that takes part (its
scheduler and its worker need not be one): three little-endian 64-bit numbers, the generation that
it has taken up, how often the fault struck, and how many verification steps it saw.
"""

from __future__ import annotations

import json
import mmap
import os
import struct
from pathlib import Path
from typing import Any

from .faults import FAULTS, Fault

COUNTERS = struct.Struct("<QQQ")


class Control:
    """The active fault of this process, looked up at every step."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        self._seen: tuple[int, int] | None = None
        self._generation = 0
        self._counters: mmap.mmap | None = None
        self.fault = Fault({}, 0)

    def refresh(self) -> None:
        """Take up a control file that changed, and report what the active fault has done."""
        self.report()
        try:
            found = self._path.stat()
        except FileNotFoundError:
            return
        if self._seen == (found.st_mtime_ns, found.st_ino):
            return
        self._seen = (found.st_mtime_ns, found.st_ino)
        with self._path.open(encoding="utf-8") as file:
            wanted: dict[str, Any] = json.load(file)
        make = Fault if wanted["fault"] is None else FAULTS[wanted["fault"]]
        self.fault = make(wanted["parameters"], wanted["seed"])
        self._generation = wanted["generation"]
        self.report()

    def report(self) -> None:
        """Write the counters."""
        if self._counters is None:
            path = self._path.with_name(f"{self._path.name}.{os.getpid()}")
            path.write_bytes(bytes(COUNTERS.size))
            with path.open("r+b") as file:
                self._counters = mmap.mmap(file.fileno(), COUNTERS.size)
        COUNTERS.pack_into(
            self._counters, 0, self._generation, self.fault.struck, self.fault.steps_seen
        )
