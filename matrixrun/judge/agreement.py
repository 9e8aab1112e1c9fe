"""agreement: the same target and draft are accepted alike by every engine, and by every version.

What is accepted follows from target, draft and prompts alone under greedy decoding, so a difference
between engines is a fault in one of them or in how it was configured. Which, this cannot say, and
there is one launch a side: a notice, with all that is known to differ. The public report has 1.06
accepted tokens per window on one engine against 2.8 on another (sglang#40144).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from scipy import stats

from matrixrun.evidence.cells import Cell, Speculation
from matrixrun.evidence.verdicts import Finding, Severity
from matrixrun.judge.invariance import LEAST_RELATIVE, LEVEL
from matrixrun.judge.statistics import Ratio

MOST_SETTINGS = 8  # written out of what differs
UNTOLD = frozenset({"engine", "attached", "unknown"})  # facts that are no settings


@dataclass(frozen=True)
class Drafting:
    """A cell with its mean acceptance length and what its on arm's engine reported of itself."""

    cell: Cell
    length: Ratio
    facts: Mapping[str, Any]


def engine_notices(known: Sequence[Drafting]) -> dict[str, tuple[Finding, ...]]:
    """Return, by cell id, a notice for each other engine that accepts another length.

    Cells are alike that differ in nothing but the engine and its own options: the same draft (or
    the same method where it needs none), the same number of tokens. Two-sided normal tests with
    errors clustered by request, corrected over all pairs of the sweep.
    """
    groups: dict[bytes, list[Drafting]] = {}
    for one in known:
        if math.isfinite(one.length.error):
            groups.setdefault(_key(one.cell), []).append(one)
    pairs = [
        (one, other)
        for group in groups.values()
        for one, other in itertools.combinations(sorted(group, key=lambda d: d.cell.id), 2)
        if one.cell.axes["engine"] != other.cell.axes["engine"]
    ]
    told: dict[str, tuple[Finding, ...]] = {}
    for one, other in pairs:
        p_value = _p_value(one.length, other.length)
        if p_value >= LEVEL / len(pairs):
            continue
        for mine, theirs in ((one, other), (other, one)):
            finding = _finding(mine, theirs, p_value)
            told[mine.cell.id] = (*told.get(mine.cell.id, ()), finding)
    return told


def _key(cell: Cell) -> bytes:
    fixed = {name: v for name, v in cell.axes.items() if name not in ("engine", "speculation")}
    speculation = _speculation(cell)
    what = speculation.draft or speculation.method.lower().replace("-", "_")
    return msgspec.json.encode(
        [fixed, what, speculation.num_speculative_tokens], order="deterministic"
    )


def _speculation(cell: Cell) -> Speculation:
    value = cell.axes["speculation"]
    assert isinstance(value, Speculation)
    return value


def _p_value(one: Ratio, other: Ratio) -> float:
    """How likely two such lengths are if they are one; 1 where the difference is too small to
    matter."""
    difference = abs(one.value - other.value)
    if difference < LEAST_RELATIVE * min(one.value, other.value):
        return 1.0
    error = math.hypot(one.error, other.error)
    return 0.0 if error == 0.0 else float(2.0 * stats.norm.sf(difference / error))


def _finding(mine: Drafting, theirs: Drafting, p_value: float) -> Finding:
    differing = _differing(mine, theirs)
    listed = "; ".join(differing[:MOST_SETTINGS]) or "nothing that both report"
    left = len(differing) - MOST_SETTINGS
    text = (
        f"mean acceptance length is {_shown(mine)} and {_shown(theirs)}, with the same target and "
        f"draft (p = {p_value:.2g}, one launch a side). What differs besides: {listed}"
        + (f"; and {left} more" if left > 0 else "")
    )
    numbers = {
        "value": mine.length.value,
        "interval": [mine.length.low, mine.length.high],
        "other": theirs.cell.id,
        "other_value": theirs.length.value,
        "other_interval": [theirs.length.low, theirs.length.high],
        "p_value": p_value,
        "differing": differing,
    }
    return Finding(
        kind="acceptance-invariance", severity=Severity.NOTICE, text=text, numbers=numbers
    )


def _shown(one: Drafting) -> str:
    length = one.length
    engine = one.cell.axes["engine"]
    return f"{length.value:.3g} ({length.low:.3g} to {length.high:.3g}) on {engine}"


def _differing(mine: Drafting, theirs: Drafting) -> list[str]:
    """Settings with other values on the two sides, mine first: the engine and its version, options
    of the speculation, and whatever both engines report."""
    spoken = [_speculation(mine.cell), _speculation(theirs.cell)]
    options: list[dict[str, Any]] = [{"method": one.method, **one.options} for one in spoken]
    found = [
        f"{name} {_word(options[0].get(name))} against {_word(options[1].get(name))}"
        for name in sorted({*options[0], *options[1]})
        if options[0].get(name) != options[1].get(name)
    ]
    names = [str(d.facts.get("engine", d.cell.axes["engine"])) for d in (mine, theirs)]
    versions = [str(d.facts.get("version", "of an unknown version")) for d in (mine, theirs)]
    engines = [f"{name} {version}" for name, version in zip(names, versions, strict=True)]
    if engines[0] != engines[1]:
        found.insert(0, f"{engines[0]} against {engines[1]}")
    both = sorted((mine.facts.keys() & theirs.facts.keys()) - UNTOLD - {"version"})
    return found + [
        f"{name} {_word(mine.facts[name])} against {_word(theirs.facts[name])}"
        for name in both
        if mine.facts[name] != theirs.facts[name]
    ]


def _word(value: Any) -> str:
    text = "unset" if value is None else str(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
