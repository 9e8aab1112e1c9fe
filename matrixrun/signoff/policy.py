"""The sign-off policy: what blocks, what is waived until when, which faults are known.

```yaml
block: [FAIL, ERROR, INCONCLUSIVE, INACTIVE]   # verdicts that block
new_refusals: block                            # or report; a cell that was not REFUSED before
missing_cells: block                           # or report; a cell that the baseline has
new_cells: report                              # or block; a cell that the baseline lacks
acceptance: block                              # or report; mean acceptance length left its interval
off_answers: report                            # or block; the off arm answers otherwise
slower_by: 0.1                                 # share of the speedup that may go (default: any)
waive:
  - {cells: "vllm.*.b32", until: 2026-12-31, reason: "no such batch in production"}
known_faults:
  - {when: {pipeline_parallel_size: 2}, verdict: FAIL, link: "https://...", ends_in: "0.34.0",
     reason: "KV of rejected tokens"}
approve:
  - {sha256: "0123abcd", reason: "draft retrained"}
```
"""

from __future__ import annotations

import datetime
import difflib
import fnmatch
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from packaging.version import InvalidVersion, Version
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

from matrixrun.evidence.cells import Cell
from matrixrun.evidence.errors import MatrixError, UserError
from matrixrun.evidence.verdicts import Verdict
from matrixrun.judge import FAULT_KINDS, ExpectedVerdict
from matrixrun.matrix.axes import BY_NAME
from matrixrun.matrix.problems import did_you_mean
from matrixrun.matrix.validation import validated
from matrixrun.matrix.yaml12 import parse

LEAST_HASH = 8
_BUILD = re.compile(r"b\d")


Reason = Annotated[str, StringConstraints(strip_whitespace=True, min_length=1)]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Selection(_Section):
    """Which cells an entry is about: a glob over ids, axis values, or both."""

    cells: str | None = None
    when: dict[str, Any] = {}
    reason: Reason

    @model_validator(mode="after")
    def _selects(self) -> Selection:
        if self.cells is None and not self.when:
            raise ValueError("names no cells: write `cells: GLOB` or `when: {axis: value}`")
        for axis in self.when:
            if axis not in BY_NAME:
                raise ValueError(f"unknown axis `{axis}` in `when`: {did_you_mean(axis, BY_NAME)}")
        return self

    def matches(self, cell: Cell) -> bool:
        """Return whether the entry is about this cell."""
        if self.cells is not None and not fnmatch.fnmatchcase(cell.id, self.cells):
            return False
        # The same matching as the matrix file's `expect:`.
        rule = ExpectedVerdict(when=self.when, verdict=Verdict.PASS, reason=self.reason)
        return rule.matches(cell)

    def nowhere(self, cells: Sequence[Cell]) -> str | None:
        """Say that the entry matches none of these cells, with the id that it may mean; None where
        it matches one."""
        if any(self.matches(cell) for cell in cells):
            return None
        ids = [cell.id for cell in cells]
        close = difflib.get_close_matches(self.cells or "", ids, n=1, cutoff=0.5)
        meant = f"; did you mean {close[0]}?" if close else ""
        return f"{self.words()} matches no cell of this sweep{meant}"

    def words(self) -> str:
        """Return the selection as it stands in messages."""
        named: dict[str, Any] = {}
        for axis, value in self.when.items():
            inner = value.items() if isinstance(value, dict) else ()
            named |= {f"{axis}.{key}": one for key, one in inner} or {axis: value}
        conditions = " and ".join(f"{name}={_word(value)}" for name, value in named.items())
        return " ".join(part for part in (self.cells or "", conditions) if part)


def _word(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


class Waiver(Selection):
    """Cells that do not block until a date, that day included."""

    until: datetime.date


class KnownFault(Selection):
    """A fault that is known: it does not block while it is there and the engine's version is below
    `ends_in`; where it is gone, it blocks until the entry is removed."""

    verdict: Verdict = Verdict.FAIL
    finding: str | None = None
    link: Reason
    ends_in: Reason

    @model_validator(mode="after")
    def _is_a_fault(self) -> KnownFault:
        if self.verdict is Verdict.PASS:
            raise ValueError("`verdict: PASS` is no fault")
        if self.finding is not None and self.finding not in FAULT_KINDS:
            meant = did_you_mean(self.finding, FAULT_KINDS)
            raise ValueError(f"no fault is named `{self.finding}`: {meant}")
        return self


class Approval(_Section):
    """A changed checkpoint that may be used: the (first eight or more digits of the) hash of its
    content."""

    sha256: str = Field(min_length=LEAST_HASH, pattern="^[0-9a-f]+$")
    reason: Reason


Reaction = Literal["block", "report"]


class Policy(_Section):
    """What a sign-off asks for; the defaults are the strict ones."""

    block: tuple[Verdict, ...] = (
        Verdict.FAIL,
        Verdict.ERROR,
        Verdict.INCONCLUSIVE,
        Verdict.INACTIVE,
    )
    new_refusals: Reaction = "block"
    missing_cells: Reaction = "block"
    new_cells: Reaction = "report"
    acceptance: Reaction = "block"
    off_answers: Reaction = "report"
    slower_by: float | None = Field(default=None, ge=0, lt=1)
    waive: tuple[Waiver, ...] = ()
    known_faults: tuple[KnownFault, ...] = ()
    approve: tuple[Approval, ...] = ()

    @model_validator(mode="after")
    def _lets_something_pass(self) -> Policy:
        if Verdict.PASS in self.block:
            raise ValueError("`block` names PASS: nothing could ever be signed")
        return self


def read_policy(path: Path) -> Policy:
    """Read a policy file.

    Raises:
        UserError: it cannot be read, or a key or value in it is wrong (file, line and key named).
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"cannot read the policy {path}: {error}", remedy=_REMEDY) from error
    document = parse(text, str(path))
    data = {} if document.data is None else document.data
    if not isinstance(data, dict):
        raise MatrixError(str(path), 1, "", "the policy is not a mapping", remedy=_REMEDY)
    return validated(Policy, data, document.positions, str(path), page="docs/signoff.md")


_REMEDY = "docs/signoff.md says what may stand there"


def reached(version: str, limit: str) -> bool | None:
    """Return whether an engine's version is `limit` or later (PEP 440 where both are, else by the
    numbers in them, such as llama.cpp's b4321); None where one is a build's number and the other a
    package's version, which have no order."""
    if bool(_BUILD.match(version)) != bool(_BUILD.match(limit)):
        return None
    try:
        return Version(version) >= Version(limit)
    except InvalidVersion:
        return _numbers(version) >= _numbers(limit)


def _numbers(version: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", version)]
