"""What changed from an approved sweep to this one, cell by cell, what matters most first. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from matrixrun.evidence.verdicts import UNMEASURED, Verdict
from matrixrun.signoff.estimates import Estimate
from matrixrun.signoff.levels import ACCEPTANCE_LENGTH, SPEEDUP, CellLevels, SweepLevels

# Changes below these are not worth a line.
LEAST_REGRET = 0.05
LEAST_SHARE = 0.01

# From good to bad, as far as an upgrade is concerned.
BADNESS = {
    Verdict.PASS: 0,
    Verdict.REFUSED: 1,
    Verdict.INACTIVE: 2,
    Verdict.INCONCLUSIVE: 2,
    Verdict.FAIL: 3,
    Verdict.ERROR: 3,
}


class Direction(StrEnum):
    """Which way a cell went."""

    WORSE = "worse"
    CHANGED = "changed"
    BETTER = "better"
    SAME = "same"


class Aspect(StrEnum):
    """What of a cell changed, what matters most first."""

    VERDICT = "verdict"
    REFUSED = "refused"
    GONE = "gone"
    CHECKPOINT = "checkpoint"
    ACCEPTANCE = "acceptance"
    PROMPTS = "prompts"
    OFF_ANSWERS = "off answers"
    EQUALITY = "equality"
    REUSE = "reuse"
    SPEED = "speed"
    NEW = "new"
    UNKNOWN = "unknown"


class Difference(msgspec.Struct, frozen=True, omit_defaults=True):
    """One aspect in words; `ratio` is new over old where a figure moved, `sha256` the new content
    where a checkpoint changed."""

    aspect: Aspect
    direction: Direction
    text: str
    ratio: float | None = None
    sha256: str = ""


class Change(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A cell's old and new verdict (None: no such cell) and everything that differs."""

    cell: str
    direction: Direction
    old: Verdict | None = None
    new: Verdict | None = None
    differences: tuple[Difference, ...] = ()

    @property
    def what(self) -> tuple[str, ...]:
        return tuple(one.text for one in self.differences)

    @property
    def compared(self) -> bool:
        """Whether outputs stand against outputs: both sides measured, on the same prompts."""
        measured = not {self.old, self.new} & {None, *UNMEASURED}
        return measured and self.has(Aspect.PROMPTS) is None

    def has(self, aspect: Aspect) -> Difference | None:
        """Return the difference in one aspect, None if there is none."""
        return next((one for one in self.differences if one.aspect is aspect), None)


def compare(
    old: SweepLevels, new: SweepLevels, renamed: Mapping[str, str] | None = None
) -> tuple[Change, ...]:
    """Return the changes of all cells of both, what matters most first.

    `renamed` maps engines of the old sweep to those of the new one that take their place: then old
    and new may be one and the same sweep.
    """
    olds, off = _renamed(old, renamed or {})
    news = {
        name: cell
        for name, cell in new.cells.items()
        if not any(name.startswith(f"{engine}.") for engine in renamed or {})
    }
    gone = {one.cell: one.what for one in new.pending}
    changes = []
    for name in [*olds, *(name for name in news if name not in olds)]:
        before, after = olds.get(name), news.get(name)
        answers = _answers_changed(off.get(name), new.off.get(name))
        absent = gone.get(name, "in the baseline, but not in this sweep")
        changes.append(_change(name, before, after, answers, absent))
    return tuple(sorted(changes, key=_weight))


def _renamed(
    old: SweepLevels, renamed: Mapping[str, str]
) -> tuple[dict[str, CellLevels], dict[str, Mapping[str, bytes]]]:
    """The old cells under the ids that they have in the new sweep; an id begins with its engine."""
    if not renamed:
        return dict(old.cells), dict(old.off)
    names = {
        name: f"{new}{name.removeprefix(engine)}"
        for name in old.cells
        for engine, new in renamed.items()
        if name.startswith(f"{engine}.")
    }
    cells = {names[name]: cell for name, cell in old.cells.items() if name in names}
    return cells, {names[name]: tokens for name, tokens in old.off.items() if name in names}


def _change(
    name: str,
    old: CellLevels | None,
    new: CellLevels | None,
    answers: tuple[int, int] | None,
    absent: str,
) -> Change:
    if old is None and new is not None:
        text = f"not in the baseline: {new.reason}" if new.reason else "not in the baseline"
        added = Difference(Aspect.NEW, Direction.CHANGED, text)
        return Change(cell=name, direction=Direction.CHANGED, new=new.verdict, differences=(added,))
    if new is None and old is not None:
        gone = Difference(Aspect.GONE, Direction.WORSE, absent)
        return Change(cell=name, direction=Direction.WORSE, old=old.verdict, differences=(gone,))
    assert old is not None
    assert new is not None
    found = [
        _verdict(old, new),
        *_checkpoints(old, new),
        _moved(old, new, ACCEPTANCE_LENGTH, Aspect.ACCEPTANCE, "mean acceptance length"),
        _prompts(old, new),
        _off_answers(old, new, answers),
        _equality(old, new),
        _regret(old, new),
        _reuse(old, new),
        _moved(old, new, SPEEDUP, Aspect.SPEED, "speedup"),
        *(_latency(old, new, arm) for arm in ("off", "on")),
    ]
    differences = tuple(one for one in found if one is not None)
    return Change(
        cell=name,
        direction=_direction(differences),
        old=old.verdict,
        new=new.verdict,
        differences=differences,
    )


def _verdict(old: CellLevels, new: CellLevels) -> Difference | None:
    if old.verdict is new.verdict:
        return None
    worse = BADNESS[new.verdict] - BADNESS[old.verdict]
    if worse == 0:
        direction = Direction.CHANGED
    else:
        direction = Direction.WORSE if worse > 0 else Direction.BETTER
    aspect = Aspect.REFUSED if new.verdict is Verdict.REFUSED else Aspect.VERDICT
    text = f"{old.verdict} -> {new.verdict}" + (f": {new.reason}" if new.reason else "")
    return Difference(aspect, direction, text)


def _checkpoints(old: CellLevels, new: CellLevels) -> list[Difference]:
    told = []
    both_served = not {old.verdict, new.verdict} & {Verdict.REFUSED, Verdict.ERROR}
    for role in ("target", "draft"):
        before, after = getattr(old, role), getattr(new, role)
        if bool(before) != bool(after):
            if not both_served:  # what never served is not hashed, and its verdict says enough
                continue
            text = f"the {role}'s content is known on one side only: it cannot be compared"
            told.append(Difference(Aspect.UNKNOWN, Direction.CHANGED, text))
        elif before != after:
            text = f"the {role}'s content changed ({before[:8]} -> {after[:8]})"
            told.append(Difference(Aspect.CHECKPOINT, Direction.CHANGED, text, sha256=after))
    return told


def _moved(
    old: CellLevels, new: CellLevels, figure: str, aspect: Aspect, name: str
) -> Difference | None:
    """A figure for which more is better, when its intervals lie apart."""
    before, after = old.estimate(figure), new.estimate(figure)
    if aspect is Aspect.ACCEPTANCE and (before is None) != (after is None):
        both_pass = old.verdict is new.verdict is Verdict.PASS
        text = f"{name} is known on one side only: it cannot be compared"
        return Difference(Aspect.UNKNOWN, Direction.CHANGED, text) if both_pass else None
    if before is None or after is None or not apart(before, after):
        return None
    less = after.value < before.value
    text = f"{name} {words(before)} -> {words(after)}"
    # More is no fault, but somebody should know why drafts are taken more often than before.
    more = Direction.CHANGED if aspect is Aspect.ACCEPTANCE else Direction.BETTER
    ratio = after.value / before.value if before.value else None
    return Difference(aspect, Direction.WORSE if less else more, text, ratio)


def _prompts(old: CellLevels, new: CellLevels) -> Difference | None:
    if not old.workload or not new.workload or old.workload == new.workload:
        return None
    text = "other prompts were sent: answers are not comparable"
    return Difference(Aspect.PROMPTS, Direction.CHANGED, text)


def _off_answers(
    old: CellLevels, new: CellLevels, counted: tuple[int, int] | None
) -> Difference | None:
    if not old.off_answers or not new.off_answers:
        return None
    if old.workload != new.workload or old.off_answers == new.off_answers:
        return None
    if counted is None:
        text = "the off arm's own answers changed"
    else:
        text = f"the off arm's own answers changed in {counted[0]} of {counted[1]} requests"
    return Difference(Aspect.OFF_ANSWERS, Direction.CHANGED, text)


def _answers_changed(
    old: Mapping[str, bytes] | None, new: Mapping[str, bytes] | None
) -> tuple[int, int] | None:
    if old is None or new is None:
        return None
    common = old.keys() & new.keys()
    return sum(old[request] != new[request] for request in common), len(common)


def _equality(old: CellLevels, new: CellLevels) -> Difference | None:
    before, after = old.estimate("same/exact_match.on"), new.estimate("same/exact_match.on")
    if before is None or after is None or abs(before.value - after.value) < LEAST_SHARE:
        return None
    text = f"same token by token {before.value:.4g} -> {after.value:.4g}"
    better = after.value > before.value
    return Difference(Aspect.EQUALITY, Direction.BETTER if better else Direction.CHANGED, text)


def _regret(old: CellLevels, new: CellLevels) -> Difference | None:
    before, after = old.estimate("regret/max.on"), new.estimate("regret/max.on")
    if before is None or after is None or after.value < before.value + LEAST_REGRET:
        return None
    text = f"largest regret {before.value:.3g} -> {after.value:.3g} nats"
    return Difference(Aspect.EQUALITY, Direction.CHANGED, text)


def _reuse(old: CellLevels, new: CellLevels) -> Difference | None:
    before, after = (one.estimate("reuse/cached_share.on") for one in (old, new))
    if before is None or after is None or abs(before.value - after.value) < LEAST_SHARE:
        return None
    direction = Direction.WORSE if after.value < before.value else Direction.BETTER
    text = f"prompt tokens from the cache (on) {before.value:.3g} -> {after.value:.3g}"
    return Difference(Aspect.REUSE, direction, text)


def _latency(old: CellLevels, new: CellLevels, arm: str) -> Difference | None:
    name = f"speed/seconds_per_output_token.{arm}"
    before, after = old.estimate(name), new.estimate(name)
    if before is None or after is None or not apart(before, after):
        return None
    slower = after.value > before.value
    text = f"time per output token ({arm}) {words(before, 1e3)} -> {words(after, 1e3)} ms"
    return Difference(Aspect.SPEED, Direction.WORSE if slower else Direction.BETTER, text)


def apart(one: Estimate, other: Estimate) -> bool:
    """Return whether two intervals do not meet; figures without one are never told apart."""
    if one.low is None or one.high is None or other.low is None or other.high is None:
        return False
    return one.high < other.low or other.high < one.low


def words(estimate: Estimate, scale: float = 1.0) -> str:
    """Return a figure with its interval: `2.32 (2.16 to 2.49)`."""
    text = f"{estimate.value * scale:.3g}"
    if estimate.low is None or estimate.high is None:
        return text
    return f"{text} ({estimate.low * scale:.3g} to {estimate.high * scale:.3g})"


def _direction(differences: tuple[Difference, ...]) -> Direction:
    for direction in (Direction.WORSE, Direction.CHANGED, Direction.BETTER):
        if any(one.direction is direction for one in differences):
            return direction
    return Direction.SAME


def _weight(change: Change) -> tuple[int, int, int, str]:
    """What a person must see first: worse before changed, verdicts before figures."""
    directions = list(Direction)
    aspects = list(Aspect)
    leading = [one for one in change.differences if one.direction is change.direction]
    aspect = min((aspects.index(one.aspect) for one in leading), default=len(aspects))
    bad = -BADNESS[change.new] if change.new is not None else 0
    return (directions.index(change.direction), aspect, bad, change.cell)
