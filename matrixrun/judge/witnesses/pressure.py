"""pressure: which of the transitions asked for happened, and whether anything was left behind.

Answers under pressure are compared by the witnesses that compare all answers. This one says what
they were put through: a transition that was asked for and never happened shows nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from matrixrun.evidence.requests import CANCELLED, Observation, PassRecord
from matrixrun.evidence.verdicts import CellEvidence, Finding, Severity, Verdict
from matrixrun.judge import counters
from matrixrun.judge.case import ProbeObserved
from matrixrun.judge.testimony import Objection, Testimony
from matrixrun.judge.witnesses.reuse import KIND as REUSE
from matrixrun.judge.witnesses.reuse import granularity

if TYPE_CHECKING:
    from matrixrun.judge.witnesses import ProbeExamination

LEAK = "leak"
# A gauge in percent may end a rounding away from where it began.
RESOLUTION = 1e-6


def examine_pressure(examination: ProbeExamination) -> Testimony:
    """Return how often each transition happened on the on arm, INCONCLUSIVE where one that was
    asked for never did, and a fault for what the on arm alone leaves behind after a drain."""
    observed = examination.observed
    told = Testimony()
    for name, (asked, count) in TRANSITIONS.items():
        if not asked(observed):
            continue
        seen = {arm: count(observed, arm) for arm in ("on", "off")}
        told += Testimony(
            coverage={f"pressure.{name}": seen["on"]},
            metrics={f"pressure/{name}.{arm}": float(value) for arm, value in seen.items()},
        )
        if seen["on"] == 0:
            reason = f"pressure: asked for and never happened on the on arm: {TEXTS[name]}"
            told += Testimony(objections=(Objection(Verdict.INCONCLUSIVE, reason),))
    attached = bool(examination.evidence.outcomes["on"].facts.get("attached"))
    told += _missed(observed, examination.evidence, attached=attached)
    return told + _leaks(observed, examination.evidence, attached=attached)


def sent(observed: ProbeObserved, part: str, arm: str = "on") -> list[PassRecord]:
    """Return the records of an arm's passes whose last name begins with `part`."""
    records = observed.records.get(arm, ())
    return [one for one in records if one.pass_id.rpartition(".")[2].startswith(part)]


def _answers(observed: ProbeObserved, arm: str, part: str) -> list[Observation]:
    """Return an arm's answers to requests that were named after a kind of pressure."""
    return [
        one
        for one in observed.answers(arm)
        if one.request.startswith(f"pressure.{part}") and one.error is None
    ]


def _preempted(observed: ProbeObserved, arm: str) -> int:
    grown = [
        counters.growth(one.counters_before, one.counters_after, counters.PREEMPTIONS)
        for one in observed.records.get(arm, ())
    ]
    return int(sum(value for value in grown if value is not None))


def _preemption_is_counted(observed: ProbeObserved) -> bool:
    """Whether it was asked for on an engine that counts it; one that does not has none."""
    return any(
        counters.reading(one.counters_after, counters.PREEMPTIONS) is not None
        for one in sent(observed, "preempt")
    )


def _reused(observed: ProbeObserved, arm: str) -> int:
    return sum((one.cached_tokens or 0) > 0 for one in _answers(observed, arm, "shared"))


def _evicted(observed: ProbeObserved, arm: str) -> int:
    """Return how many requests take less from the cache than when they were warm."""
    some = _answers(observed, arm, "shared")
    warm = {one.prompt: one.cached_tokens or 0 for one in some if one.request.endswith(".warm")}
    return sum(
        (one.cached_tokens or 0) < warm.get(one.prompt, 0)
        for one in some
        if ".again" in one.request
    )


def _dropped(observed: ProbeObserved, arm: str) -> int:
    return sum(one.finish_reason == CANCELLED for one in observed.answers(arm))


def _of(*parts: str) -> Callable[[ProbeObserved, str], int]:
    def count(observed: ProbeObserved, arm: str) -> int:
        return sum(len(_answers(observed, arm, part)) for part in parts)

    return count


def _asked(part: str) -> Callable[[ProbeObserved], bool]:
    return lambda observed: bool(sent(observed, part))


Asked = Callable[[ProbeObserved], bool]
Count = Callable[[ProbeObserved, str], int]
TRANSITIONS: dict[str, tuple[Asked, Count]] = {
    "draft_length_prompts": (_asked("k"), _of("k")),
    "border_prompts": (_asked("borders"), _of("block", "chunk")),
    "longest_context": (_asked("borders"), _of("longest")),
    "identical_requests": (_asked("identical"), _of("identical")),
    "prefixes_reused": (_asked("warm"), _reused),
    "prefixes_evicted": (_asked("evict"), _evicted),
    "preemptions": (_preemption_is_counted, _preempted),
    "requests_dropped": (_asked("cancel"), _dropped),
}
TEXTS = {
    "draft_length_prompts": "prompts as long as a verification step",
    "border_prompts": "prompts around the borders of blocks",
    "longest_context": "an answer close to the longest context",
    "identical_requests": "the identical request again",
    "prefixes_reused": "a shared prefix taken from the cache",
    "prefixes_evicted": "a prefix evicted and computed again",
    "preemptions": "a request preempted",
    "requests_dropped": "a request dropped in flight",
}


def _missed(observed: ProbeObserved, evidence: CellEvidence, *, attached: bool) -> Testimony:
    """Return a fault where the identical request, sent again with nothing else on the engine, takes
    less from the on arm's cache than from the off arm's by more than the cache's granularity, and
    not from the control's; a notice where others use the server."""
    size, dropped = granularity(evidence)
    cached = {arm: _identical(observed, arm) for arm in ("on", "off", "null")}

    less = {arm: _less(cached[arm], cached["off"]) for arm in ("on", "null")}
    lost = {name: tokens for name, tokens in less["on"].items() if tokens > size * (1 + dropped)}
    if not lost or any(tokens > size for tokens in less["null"].values()):
        return Testimony()
    worst = max(lost, key=lambda name: lost[name])
    text = (
        f"copies of the identical request, alone on the engine, take less from the on arm's cache "
        f"than from the off arm's, {len(lost)} of {len(cached['off'])} requests, by up to "
        f"{lost[worst]} tokens ({worst}); {size * (1 + dropped)} are the cache's granularity"
    )
    severity = Severity.NOTICE if attached else Severity.FAULT
    numbers = {"requests": len(lost), "tokens": lost[worst], "granularity": size}
    return Testimony((Finding(kind=REUSE, severity=severity, text=text, numbers=numbers),))


def _identical(observed: ProbeObserved, arm: str) -> dict[str, list[int]]:
    """Return what the copies of each request took from the cache, the least first: the control
    sends them in another order."""
    found: dict[str, list[int]] = {}
    for one in _answers(observed, arm, "identical"):
        if one.cached_tokens is not None:
            found.setdefault(one.request.rpartition(".")[0], []).append(one.cached_tokens)
    return {name: sorted(taken) for name, taken in found.items()}


def _less(some: dict[str, list[int]], usual: dict[str, list[int]]) -> dict[str, int]:
    """Return by how much the copies of each request take less at most than the usual ones."""
    return {
        name: max(most - taken for most, taken in zip(copies, some[name], strict=True))
        for name, copies in usual.items()
        if len(some.get(name, ())) == len(copies)
    }


def _leaks(observed: ProbeObserved, evidence: CellEvidence, *, attached: bool) -> Testimony:
    """Return a fault where, after the last pass, the on arm's engine still counts requests in
    flight, or cache in use, that it did not before the launch's first, equality's; a notice where
    the off arm's does, or where others send it requests too."""
    left = {arm: _left(observed, arm, evidence.records.get(arm)) for arm in ("on", "off")}
    metrics = {
        f"pressure/left_{name}.{arm}": value
        for arm, values in left.items()
        for name, value in values.items()
    }
    found = []
    for name, value in left["on"].items():
        if value <= RESOLUTION:
            continue
        both = left["off"].get(name, 0.0) > RESOLUTION
        text = f"after everything was answered or dropped the on arm still counts {LEFT[name][1]}"
        numbers = {"on": value, "off": left["off"].get(name)}
        severity = Severity.NOTICE if both or attached else Severity.FAULT
        text += f": {value:.3g} more than before" + (", as the off arm does" if both else "")
        text += "; it is attached, and they may be anybody's" if attached else ""
        found.append(Finding(kind=LEAK, severity=severity, text=text, numbers=numbers))
    return Testimony(tuple(found), metrics=metrics)


LEFT = {
    "running": (counters.RUNNING, "running requests"),
    "waiting": (counters.WAITING, "waiting requests"),
    "usage": (counters.USAGE, "cache in use"),
}


def _left(observed: ProbeObserved, arm: str, first: PassRecord | None) -> dict[str, float]:
    """Return by how much each gauge is higher after the last pass than before the first; what was
    lost in passes before this probe's is left then, too."""
    records = observed.records.get(arm, ())
    if not sent(observed, "end", arm):
        return {}
    before = records[0].counters_before if first is None else first.counters_before
    after = records[-1].counters_after
    grown = {name: counters.growth(before, after, names) for name, (names, _) in LEFT.items()}
    return {name: value for name, value in grown.items() if value is not None}
