"""Python tracebacks in the log of an engine of several processes. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

START = "Traceback (most recent call last):"
_FRAME = re.compile(r'  File "(?P<path>[^"]+)", line \d+')
_RAISED = re.compile(r"(?P<type>[A-Za-z_][\w.]*)(?:: (?P<words>.*))?$")
_CHAINED = ("During handling of the above exception", "The above exception was the direct cause")
_TAG = re.compile(
    r"(?:\((?P<process>[^)]*pid=\d+)\) ?)?"
    r"(?:(?:ERROR|CRITICAL) \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]+\] ?)?"
)
PASSED_ON = re.compile(r"(?:[Ss]ee|check the) (?:root cause|stack trace)|initialization failed")
_CARETS = re.compile(r"\s*[~^]+\s*$")


@dataclass
class Raised:
    """An exception as a log shows it: its type's last name, its message (which may have several
    lines), and where it was raised: file and source line."""

    type: str
    message: str
    path: str = ""
    source: str = ""


@dataclass
class _Reader:
    """Reads the lines of one process."""

    open: bool = False
    last: Raised | None = None  # kept until it is certain that no chained one follows
    more: bool = False
    path: str = ""
    source: str = ""
    found: list[tuple[int, Raised]] = field(default_factory=list)
    position: int = 0

    def take(self, position: int, line: str) -> None:
        if line.strip() == START:
            if not self.open and not self.more:
                self.flush()
            self.open, self.more, self.path, self.source = True, False, "", ""
        elif self.open:
            self._inside(position, line)
        elif line.startswith(_CHAINED):
            self.more = True
        elif self.last is not None and not self.more and line.startswith((" ", "\t")):
            self.last.message += "\n" + line.strip()
        elif self.last is not None and not self.more and line.strip():
            self.flush()

    def flush(self) -> None:
        if self.last is not None:
            self.found.append((self.position, self.last))
        self.last = None

    def _inside(self, position: int, line: str) -> None:
        frame = _FRAME.match(line)
        if frame:
            self.path, self.source = frame["path"], ""
        elif line.startswith("    "):
            if not self.source and not _CARETS.match(line):
                self.source = line.strip()
        elif raised := _RAISED.match(line):
            kind = raised["type"].rpartition(".")[2]
            self.last = Raised(kind, raised["words"] or "", self.path, self.source)
            self.position, self.open = position, False


def raised(lines: Iterable[tuple[str, str]]) -> list[Raised]:
    """The exceptions of a log, in the order in which they were written; of a chain the last one.

    `lines` are pairs of a process's name and a line it wrote, since processes write at once.
    """
    readers: dict[str, _Reader] = {}
    for position, (process, line) in enumerate(lines):
        readers.setdefault(process, _Reader()).take(position, line)
    for reader in readers.values():
        reader.flush()
    return [exception for _, exception in sorted(_all(readers.values()), key=lambda pair: pair[0])]


def root_cause(log: str) -> str | None:
    """The first exception in a log that does not merely pass another one on, as `Type: message`;
    None where the log holds none."""
    for exception in raised(map(process_and_line, log.splitlines())):
        if not PASSED_ON.search(exception.message):
            words = exception.message.partition("\n")[0] or exception.source
            return f"{exception.type}: {words}"
    return None


def process_and_line(line: str) -> tuple[str, str]:
    """The process that wrote a line of a log, as vLLM tags them, and what it wrote."""
    tagged = _TAG.match(line)
    if tagged is None:
        return "", line
    return tagged["process"] or "", line[tagged.end() :]


def _all(readers: Iterable[_Reader]) -> Iterator[tuple[int, Raised]]:
    for reader in readers:
        yield from reader.found
