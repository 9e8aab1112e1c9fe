"""A results folder that is kept in an object store, or anywhere else that fsspec knows by a URL.

Commands work on a copy here, in the cache; `pull` brings what the store has, `push` takes there
what was written here. `SHA256SUMS` beside the files lists each with its sha256, as `sha256sum -c`
reads it. A push first announces what it is about to send in `SHA256SUMS.next`, then sends it in the
order in which it was written here (what a cell's evidence refers to, the evidence, what was made of
it), then lists it: broken off anywhere, it leaves only files that are whole, each listed or
announced, and no evidence without what it refers to. A decision that was withdrawn and a cell that
was set aside are no longer listed then, and removed there too.
"""

from __future__ import annotations

import os
import posixpath
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path, PurePosixPath

import msgspec

from matrixrun.evidence.errors import StoreError, UserError
from matrixrun.record.cache import cache_folder
from matrixrun.record.claim import Claim
from matrixrun.record.files import locked, read_json, sha256, write_bytes, write_json
from matrixrun.record.objects import Objects

COPIES = "sweeps"  # in the cache
INPUTS = frozenset(
    {"launches", "workloads", "damaged", "sweep.json", "matrix.yaml", "plan.json", "judging.json"}
)
SUMS, NEXT = "SHA256SUMS", "SHA256SUMS.next"
DECISION_FILES = ("signoff.json", "signoff.md")
ONCE = ".parquet"  # written once: another content under the same name is damage
BATCH_FILES, BATCH_BYTES = 256, 64 * 2**20

_LINE = re.compile(r"([0-9a-f]{64})  (.+)")

Sums = dict[str, str]
"""The sha256 of files, by their path."""

Seen = tuple[int, int]
"""By which a file that was not written since is known: its size and the time of its content."""


class Sent(msgspec.Struct, frozen=True):
    """A file as it was when here and there were last the same."""

    sha256: str
    seen: Seen


class _Piece(msgspec.Struct, frozen=True):
    """A file's content, and how the file was seen before it was read."""

    data: bytes
    seen: Seen

    @property
    def sent(self) -> Sent:
        return Sent(sha256(self.data), self.seen)


class _Lists(msgspec.Struct, frozen=True):
    """What is listed there, and of each path the digests that are listed or announced."""

    listed: Sums
    allowed: dict[str, set[str]]


class Remote:
    """A results folder at `url`, and the copy of it in `local`.

    Raises:
        UserError: no file system of that kind is known or installed.
    """

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")
        above, name = posixpath.split(self._url)
        self.local = cache_folder() / COPIES / sha256(above.encode())[:16] / name
        self._there = Objects(
            self._url,
            f"nothing is lost: what was written here lies in {self.local}, and the same command"
            " again sends it",
        )
        self.shown = self._there.shown
        self.claim = Claim(self._there, self.local)
        self._sent: dict[str, Sent] = {}
        self._left_out: dict[str, str] = {}  # by the last pull, and what is wrong with each
        self._busy = threading.Lock()

    def beside(self, name: str) -> Remote:
        """Another results folder next to this one; so are their copies."""
        return Remote(posixpath.join(posixpath.dirname(self._url), name))

    # -- from there ----------------------------------------------------------------------------

    def pull(self) -> list[str]:
        """Bring what is newer there. Returns what is wrong with files that were left out: they are
        not what `SHA256SUMS` says, or not there. The next push no longer lists them.

        What was written here and never sent stays, and is sent by the next push, as is what is no
        longer there; where a file was changed there as well, it is taken from there.

        Raises:
            StoreError: the store cannot be read, or the disk here not be written.
            UserError: something else lies there.
        """
        self._sent = _read_ledger(self.local)
        gone = _gone(self.local, self._sent)
        lists = self._lists()
        allowed = lists.allowed
        if not allowed and not self._there.is_empty():
            raise UserError(
                f"{self.shown} is not empty and not the results folder of a sweep",
                remedy=f"choose another --results, or restore the file {SUMS} there",
            )
        if lists.listed:  # else the folder there was lost
            self._withdraw(allowed)
        there = {p for p, one in self._sent.items() if one.sha256 in allowed.get(p, ())}
        self._sent = {p: one for p, one in self._sent.items() if p in there or p in gone}
        withdrawn = gone & there & set(DECISION_FILES)
        wanted = [
            path
            for path, digests in allowed.items()
            if path not in withdrawn and self._lacks(path, digests, lists.listed.get(path))
        ]
        troubles = self._bring(wanted, lists)
        if troubles:  # unless another machine has written them since the lists were read
            lists = self._lists()
            troubles = self._bring([path for path in troubles if path in lists.allowed], lists)
        self._left_out = troubles
        self._sent = {path: one for path, one in self._sent.items() if path not in troubles}
        self._remember()
        return list(troubles.values())

    def fetch(self) -> Path:
        """Bring a sweep for reading; returns its copy. While another process here writes to the
        copy, that is the newest there is, and is taken as it stands.

        Raises:
            UserError: there is none.
            StoreError: it cannot be read, or is damaged.
        """
        with locked(self.local) as mine:
            if mine:
                self._pull_whole()
        if not (self.local / "sweep.json").exists():
            raise UserError(
                f"there is no sweep at {self.shown}",
                remedy="name what --results was given",
            )
        return self.local

    def left_out(self) -> tuple[str, ...]:
        """What the last pull said, of files that no push has settled since."""
        return tuple(self._left_out.values())

    def _pull_whole(self) -> None:
        troubles = self.pull()
        if troubles:
            raise StoreError(
                troubles[0],
                remedy="restore the file there from a copy, or run the matrix again with this"
                " --results: the cell is run again",
            )

    def _lists(self) -> _Lists:
        listed, announced = self._sums(SUMS), self._sums(NEXT)
        allowed = {
            path: {sums[path] for sums in (listed, announced) if path in sums}
            for path in listed | announced
        }
        return _Lists(listed, allowed)

    def _sums(self, name: str) -> Sums:
        text = self._there.read(name) or b""
        sums: Sums = {}
        for line in text.decode(errors="replace").splitlines():
            found = _LINE.fullmatch(line)
            path = PurePosixPath(found[2]) if found else PurePosixPath("..")
            if found is None or path.is_absolute() or ".." in path.parts:
                raise StoreError(
                    f"{self.shown}/{name} is damaged: {line[:100]!r}",
                    remedy="restore it from a copy",
                )
            sums[found[2]] = found[1]
        return sums

    def _withdraw(self, allowed: dict[str, set[str]]) -> None:
        """Remove here the decision that was withdrawn there, unless it is another by now."""
        for path in (self._sent.keys() - allowed.keys()) & set(DECISION_FILES):
            if (self.local / path).exists() and not self._is_new(path):
                (self.local / path).unlink()

    def _lacks(self, path: str, allowed: set[str], listed: str | None) -> bool:
        """Whether the file has to be brought."""
        file = self.local / path
        if not file.is_file():
            return True
        here, known = self._digest(path), self._sent.get(path)
        if here == listed:
            self._sent[path] = Sent(here, _seen(file))
        if here in allowed:  # one that is announced may not be there: it is sent again
            return False
        if path.endswith(ONCE):
            return True
        changed_here = known is None or known.sha256 != here
        changed_there = known is None or known.sha256 not in allowed
        return changed_there or not changed_here

    def _digest(self, path: str) -> str:
        known, file = self._sent.get(path), self.local / path
        if known is not None and known.seen == _seen(file):
            return known.sha256
        return sha256(file.read_bytes())

    def _bring(self, paths: Sequence[str], lists: _Lists) -> dict[str, str]:
        """Bring files; returns what is wrong with those that are left out, by path."""
        wrong: dict[str, str] = {}
        for first in range(0, len(paths), BATCH_FILES):
            wrong |= self._bring_batch(paths[first : first + BATCH_FILES], lists)
        return wrong

    def _bring_batch(self, paths: Sequence[str], lists: _Lists) -> dict[str, str]:
        found, wrong = self._there.read_all(paths), {}
        for path in paths:
            data = found.get(path)
            if data is None:
                if path in lists.listed:  # else a push that announced it was broken off
                    wrong[path] = f"{self.shown}/{path} is missing, which {SUMS} lists"
            elif sha256(data) not in lists.allowed[path]:
                told = f"{self.shown}/{path} is damaged: its sha256 is not what {SUMS} says"
                wrong[path] = told
            else:
                write_bytes(self.local / path, data)
                self._sent[path] = Sent(sha256(data), _seen(self.local / path))
        return wrong

    # -- to there ------------------------------------------------------------------------------

    def push(self) -> int:
        """Send what was written here since the last time; returns the number of files.

        Raises:
            StoreError: the store cannot be written; what is here stays, and the next push sends it.
                Or another driver has taken the sweep over.
        """
        self.claim.check()
        with self._busy:
            changed = self._changed()
            gone = _gone(self.local, self._sent)
            if not changed and not gone:
                return 0
            self.claim.look()
            listed = self._sums(SUMS)
            sums = listed | {path: one.sha256 for path, one in self._sent.items()}
            unlisted = gone | self._left_out.keys()
            sums = {path: digest for path, digest in sums.items() if path not in unlisted}
            for batch in self._batches(changed):
                sent = {path: piece.sent for path, piece in batch.items()}
                sums |= {path: one.sha256 for path, one in sent.items()}
                announced = {p: digest for p, digest in sums.items() if listed.get(p) != digest}
                self._write_sums(NEXT, announced)
                self._there.write_all({path: piece.data for path, piece in batch.items()})
                self._sent |= sent
                self.claim.look()  # sending may have taken longer than a takeover does
            self._write_sums(SUMS, sums)
            self._left_out = {}
            if gone:
                self._write_sums(NEXT, {})  # it may announce them still
                self._there.remove(gone)
                self._sent = {path: one for path, one in self._sent.items() if path not in gone}
            self._remember()
            return len(changed)

    def send(self) -> None:
        """Push as the only driver, unless another process here writes to the copy: that one sends
        all of it.

        Raises:
            UserError: a driver elsewhere does, and what lies there is its to replace.
            StoreError: as `push`, or what is there is damaged.
        """
        with locked(self.local) as mine:
            if mine and not is_sent(self.local):  # another may have pushed since
                with self.claim.held(lambda _: None):
                    self._pull_whole()
                    self.push()

    def _changed(self) -> list[str]:
        """The files that differ from what was sent, in the order in which they may be sent.

        They are listed in the opposite order: whatever a file refers to was written before it, and
        so is listed too, however busy the folder is."""
        listed: list[list[str]] = [
            [path for path in _files(self.local) if _rank(path) == rank] for rank in (2, 1, 0)
        ]
        return [path for paths in reversed(listed) for path in paths if self._is_new(path)]

    def _is_new(self, path: str) -> bool:
        known = self._sent.get(path)
        once = path.endswith(ONCE)
        return known is None or (not once and known.seen != _seen(self.local / path))

    def _batches(self, paths: Iterable[str]) -> Iterator[dict[str, _Piece]]:
        batch: dict[str, _Piece] = {}
        size, rank = 0, 0
        for path in paths:
            full = len(batch) >= BATCH_FILES or size >= BATCH_BYTES
            if batch and (full or _rank(path) != rank):
                yield batch
                batch, size = {}, 0
            rank, seen = _rank(path), _seen(self.local / path)
            batch[path] = _Piece((self.local / path).read_bytes(), seen)
            size += len(batch[path].data)
        if batch:
            yield batch

    def _write_sums(self, name: str, sums: Sums) -> None:
        text = "".join(f"{sums[path]}  {path}\n" for path in sorted(sums))
        self._there.write_all({name: text.encode()})

    def _remember(self) -> None:
        write_json(_ledger(self.local), self._sent)


def _rank(path: str) -> int:
    """What evidence refers to, evidence, what is made of evidence."""
    top = path.partition("/")[0]
    if top == "cells":
        return 1 if path.endswith("/evidence.json") else 2
    return 0 if top in INPUTS else 2


def is_sent(copy: Path) -> bool:
    """Whether all that was done in the copy of a sweep was done where it is kept."""
    sent = _read_ledger(copy)
    return not _gone(copy, sent) and all(
        path in sent and sent[path].seen == _seen(copy / path) for path in _files(copy)
    )


def _gone(copy: Path, sent: dict[str, Sent]) -> set[str]:
    """What was sent, then withdrawn or set aside here; nothing where the copy itself is gone."""
    if not (copy / "sweep.json").exists():
        return set()
    may_go = (p for p in sent if p in DECISION_FILES or p.startswith("cells/"))
    return {path for path in may_go if not (copy / path).exists()}


def _ledger(copy: Path) -> Path:
    return copy.with_name(f"{copy.name}.sent.json")


def _read_ledger(copy: Path) -> dict[str, Sent]:
    file = _ledger(copy)
    return read_json(file, dict[str, Sent]) if file.exists() else {}


def _files(folder: Path) -> Iterator[str]:
    start = len(str(folder)) + 1
    for above, _, names in os.walk(folder):
        within = f"{above[start:]}/" if len(above) > start else ""
        yield from (f"{within}{name}" for name in sorted(names) if not name.startswith("."))


def _seen(file: Path) -> Seen:
    about = file.stat()
    return about.st_size, about.st_mtime_ns
