"""SIGNED or NOT SIGNED, and why. Pure: levels, policy and a date in, a decision out."""

from __future__ import annotations

import datetime
import difflib
from collections.abc import Mapping, Sequence

import msgspec

from matrixrun.evidence.verdicts import CellResult, Severity, Verdict
from matrixrun.signoff.causes import localised
from matrixrun.signoff.comparison import Aspect, Change, compare
from matrixrun.signoff.levels import SweepLevels, pending_words, unmeasured_words
from matrixrun.signoff.policy import KnownFault, Policy, reached

BAD = (Verdict.FAIL, Verdict.ERROR, Verdict.INCONCLUSIVE, Verdict.INACTIVE)


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """A sign-off. `reasons` are what stands against it, `accepted` what the policy or the matrix
    file lets through, `notes` remarks; `causes` say which settings bring bad verdicts on."""

    signed: bool
    sweep: str
    against: str
    date: str
    reasons: tuple[str, ...]
    accepted: tuple[str, ...]
    notes: tuple[str, ...]
    causes: tuple[str, ...]
    changes: tuple[Change, ...]


def decide(
    new: SweepLevels,
    old: SweepLevels,
    policy: Policy,
    today: datetime.date,
    renamed: Mapping[str, str] | None = None,
) -> Decision:
    """Return the decision on a sweep against an approved one.

    `renamed` maps engines of the old sweep to those that take their place (see `compare`).
    """
    weighing = _Weighing(new, old, policy, today, renamed or {})
    weighing.weigh()
    results = [r for r in new.results if r.cell.id in weighing.judged]
    return Decision(
        signed=not weighing.reasons,
        sweep=new.name,
        against=old.name,
        date=today.isoformat(),
        reasons=tuple(weighing.reasons),
        accepted=tuple(weighing.accepted),
        notes=tuple(weighing.notes),
        causes=tuple(one.text for one in localised(results)),
        changes=weighing.changes,
    )


class _Weighing:
    """One decision in the making."""

    def __init__(
        self,
        new: SweepLevels,
        old: SweepLevels,
        policy: Policy,
        today: datetime.date,
        renamed: Mapping[str, str],
    ) -> None:
        self.new, self.old, self.policy, self.today = new, old, policy, today
        self.changes = compare(old, new, renamed)
        self.judged = {change.cell for change in self.changes if change.new is not None}
        self.reasons: list[str] = []
        self.accepted: list[str] = []
        self.notes: list[str] = []
        self._replaced = tuple(f"{engine}." for engine in renamed)
        self._needed: set[int] = set()
        self._results = {r.cell.id: r for r in new.results if r.cell.id in self.judged}
        self._decided = [result.cell for result in self._results.values()]

    def weigh(self) -> None:
        """Fill in reasons, accepted and notes."""
        if self.new.pending:
            remedy = self.new.pending[0].remedy
            self.reasons.append(f"{pending_words(self.new.pending)}: {remedy}")
        if not self.judged:
            self.reasons.append("the sweep has no cell to decide on")
        elif nothing := unmeasured_words([self.new.cells[cell].verdict for cell in self.judged]):
            self.reasons.append(nothing)
        elif not any(change.old and change.new for change in self.changes):
            self.reasons.append(f"it has no cell in common with {self.old.name}")
        elif not any(change.compared for change in self.changes):
            self.reasons.append(
                f"nothing is compared with {self.old.name}: no cell was measured on both sides on"
                " the same prompts"
            )
        if self.new.name == self.old.name and not self._replaced:
            self.notes.append(f"the baseline was written from {self.new.name} itself")
        if self.new.judging and self.old.judging and self.new.judging != self.old.judging:
            self.notes.append(
                "it was judged by other settings than the baseline (what `detect:`, `expect:`,"
                " `equality:` and the like ask for): a verdict may have changed by that alone"
            )
        self._engines()
        self._new_cells()
        for change in self.changes:
            self._cell(change)
        self._known_faults()
        self._checkpoints()
        self._waivers()

    def _engines(self) -> None:
        replaced = {  # of a sweep that holds both versions, the one that is to be replaced
            cell.engine
            for name, cell in self.old.cells.items()
            if not self._replaced or name.startswith(self._replaced)
        }
        before = sorted(replaced - {""})
        after = sorted({self.new.cells[name].engine for name in self.judged} - {""})
        if before != after:
            self.notes.append(f"engine: {_engines(before)} -> {_engines(after)}")

    def _new_cells(self) -> None:
        """Say which cells the baseline lacks: nothing but their own verdicts speaks for them."""
        added = [change.cell for change in self.changes if change.old is None]
        if added and self.policy.new_cells == "report":
            many = f"{added[0]} and {len(added) - 1} more are" if added[1:] else f"{added[0]} is"
            self.notes.append(f"{many} not in the baseline: judged, and compared with nothing")

    def _cell(self, change: Change) -> None:
        """Weigh one cell: what stands against it, unless something lets it through."""
        self._left_alone(change)
        against = _objections(change, self.policy, self.new)
        if not against:
            return
        result = self._results.get(change.cell)
        let = self._let_through(result) if result is not None else None
        told = f"{change.cell}: {'; '.join(against)}"
        if let is None:
            self.reasons.append(told)
        else:
            self.accepted.append(f"{let}: {told}")

    def _left_alone(self, change: Change) -> None:
        """Say what the policy does not block: nobody should sign what they were not shown."""
        if any(one.cell == change.cell for one in self.new.pending):
            return  # told already, with its remedy
        if change.new is None and self.policy.missing_cells == "report":
            self.accepted.append(f"`missing_cells: report`: {change.cell}: {change.what[0]}")
        elif change.new in BAD and change.new not in self.policy.block:
            reason = self.new.cells[change.cell].reason
            self.accepted.append(
                f"{change.new} is not in `block`: {change.cell}: {change.new}: {reason}"
            )

    def _let_through(self, result: CellResult) -> str | None:
        if result.expected:
            why = next((f.text for f in result.findings if f.kind == "expected-verdict"), "")
            return f"expected by the matrix file{f', {why}' if why else ''}"
        for fault in self.policy.known_faults:
            if fault.matches(result.cell) and _shows(fault, result):
                return f"known, {fault.reason} ({fault.link}), to end in {fault.ends_in}"
        for place, waiver in enumerate(self.policy.waive):
            if waiver.matches(result.cell) and self.today <= waiver.until:
                self._needed.add(place)
                return f"waived until {waiver.until}, {waiver.reason}"
        return None

    def _known_faults(self) -> None:
        for fault in self.policy.known_faults:
            matched = [r for r in self._results.values() if fault.matches(r.cell)]
            gone = [r for r in matched if not _shows(fault, r) and r.verdict is Verdict.PASS]
            there = [r for r in matched if _shows(fault, r)]
            late = [r.cell.id for r in there if self._ended(r.cell.id, fault)]
            unknown = [r.cell.id for r in there if self._ended(r.cell.id, fault) is None]
            if nowhere := fault.nowhere(self._decided):
                self.notes.append(f"known fault {nowhere}")
            if gone:
                self.reasons.append(
                    f"known fault {fault.words()} ({fault.link}) is gone in {_cells(gone)}: remove "
                    "or narrow its entry in the policy"
                )
            if unknown:
                self.reasons.append(
                    f"known fault {fault.words()} ({fault.link}) was to end in {fault.ends_in}: "
                    f"{unknown[0]} {self._unordered(unknown[0])}"
                )
            if late:
                self.reasons.append(
                    f"known fault {fault.words()} ({fault.link}) should have ended in "
                    f"{fault.ends_in} and is still there in {late[0]}"
                    + (f" and {len(late) - 1} more" if len(late) > 1 else "")
                )

    def _ended(self, cell: str, fault: KnownFault) -> bool | None:
        """Whether the fault should have ended in this cell's engine; None where nobody can say."""
        version = self._version(cell)
        return reached(version, fault.ends_in) if version else None

    def _unordered(self, cell: str) -> str:
        version = self._version(cell)
        return (
            f"ran {version}, which has no order with it: write `ends_in` as the report shows the "
            "engine's versions"
            if version
            else "never said which version its engine is"
        )

    def _version(self, cell: str) -> str:
        return self.new.cells[cell].engine.rpartition(" ")[2]

    def _checkpoints(self) -> None:
        """A changed target or draft needs approval by its hash, once for all its cells."""
        changed: dict[tuple[str, str], list[str]] = {}
        for change in self.changes:
            for one in change.differences:
                if one.aspect is Aspect.CHECKPOINT:
                    changed.setdefault((one.text, one.sha256), []).append(change.cell)
        for (text, digest), cells in changed.items():
            approval = next((a for a in self.policy.approve if digest.startswith(a.sha256)), None)
            more = f" (and {len(cells) - 1} more)" if len(cells) > 1 else ""
            where = f"in {cells[0]}{more}"
            if approval is None:
                self.reasons.append(f"{text} {where}: it needs an `approve` entry with its sha256")
            else:
                self.accepted.append(f"approved, {approval.reason}: {text} {where}")

        self._approvals(sorted({digest for _, digest in changed}))

    def _approvals(self, changed: Sequence[str]) -> None:
        """Say which approvals let nothing through: a misspelt hash approves nothing."""
        there = {one for cell in self._decided for one in self._digests(cell.id)}
        for approval in self.policy.approve:
            named = f"the approval of {approval.sha256[:12]} ({approval.reason})"
            if any(digest.startswith(approval.sha256) for digest in changed):
                continue
            if any(digest.startswith(approval.sha256) for digest in there):
                self.notes.append(f"{named} is not needed: no checkpoint changed to it")
                continue
            length = len(approval.sha256)
            close = difflib.get_close_matches(approval.sha256, [d[:length] for d in changed], n=1)
            meant = f"; did you mean {close[0]}?" if close else ""
            self.notes.append(f"{named} matches no checkpoint of this sweep{meant}")

    def _digests(self, cell: str) -> tuple[str, str]:
        return self.new.cells[cell].target, self.new.cells[cell].draft

    def _waivers(self) -> None:
        for place, waiver in enumerate(self.policy.waive):
            if nowhere := waiver.nowhere(self._decided):
                self.notes.append(f"the waiver of {nowhere}")
            elif self.today > waiver.until:
                self.notes.append(f"the waiver of {waiver.words()} ended on {waiver.until}")
            elif place not in self._needed:
                self.notes.append(f"the waiver of {waiver.words()} is not needed any more")


def _objections(change: Change, policy: Policy, new: SweepLevels) -> list[str]:
    """Return what the policy holds against one cell, but for its checkpoints."""
    if any(one.cell == change.cell for one in new.pending):
        return []  # told already, with its remedy
    if change.new is None:
        return list(change.what) if policy.missing_cells == "block" else []
    cell = new.cells[change.cell]
    told = []
    if change.new in policy.block:
        told.append(f"{change.new}: {cell.reason}")
    elif change.new is Verdict.REFUSED and change.old is not Verdict.REFUSED:
        what = "where the baseline was not" if change.old else "and not in the baseline"
        what = f"REFUSED {what}"
        told += [f"{what}: {cell.reason}"] if policy.new_refusals == "block" else []
    for aspect, reaction in (
        (Aspect.NEW, policy.new_cells),
        (Aspect.ACCEPTANCE, policy.acceptance),
        (Aspect.PROMPTS, policy.off_answers),
        (Aspect.OFF_ANSWERS, policy.off_answers),
    ):
        found = change.has(aspect)
        if found is not None and reaction == "block":
            told.append(found.text)
    return told + _slower(change, policy)


def _slower(change: Change, policy: Policy) -> list[str]:
    if policy.slower_by is None:
        return []
    return [
        one.text
        for one in change.differences
        if one.aspect is Aspect.SPEED and one.ratio is not None and one.ratio < 1 - policy.slower_by
    ]


def _shows(fault: KnownFault, result: CellResult) -> bool:
    """Return whether a cell shows a known fault: its verdict, and its finding if one is named."""
    if result.verdict is not fault.verdict:
        return False
    kinds = {one.kind for one in result.findings if one.severity is Severity.FAULT}
    return fault.finding is None or fault.finding in kinds


def _engines(names: Sequence[str]) -> str:
    return ", ".join(names) or "not known (no launch said its version)"


def _cells(results: Sequence[CellResult]) -> str:
    first = results[0].cell.id
    return first if len(results) == 1 else f"{first} and {len(results) - 1} more"
