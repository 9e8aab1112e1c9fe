"""What a further probe observes on a pair of launches, as a sweep observes it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeVar

import msgspec

from matrixrun import probes
from matrixrun.evidence.launches import Role
from matrixrun.evidence.requests import Observation, PassRecord, Score
from matrixrun.fanout.actor import PassAnswer
from matrixrun.faultbench.pair import PLACES, Pair
from matrixrun.judge import ProbeObserved
from matrixrun.matrix import fingerprint
from matrixrun.probes import Answered, Data, Emitted, Probe, Source
from matrixrun.workloads import Workload

T = TypeVar("T")
ByArm = Mapping[str, tuple[T, ...]]


class Sent(NamedTuple):
    """What came of a pass, and the engine's counters around it."""

    observations: tuple[Observation, ...]
    record: PassRecord


@dataclass
class OffSide:
    """What A answered to a probe's passes and scored of it, shared by every specimen."""

    passes: dict[str, Sent] = field(default_factory=dict)
    scores: dict[str, tuple[Score, ...]] = field(default_factory=dict)


def send(pair: Pair, role: Role, probe: Probe, workload: Workload, key: str) -> dict[str, Sent]:
    """Send a probe's passes to a launch, in cache namespaces of `key`; returns what was observed
    by the id of the pass."""
    launch, matrix = pair.launch(role), pair.bench.matrix
    passes, observed = probe.passes(launch, [pair.cell], workload, matrix), {}
    pass_ = next(passes, None)
    while pass_ is not None:
        salt = fingerprint([pass_.salt, key])
        answer = pair.run(role, msgspec.structs.replace(pass_, salt=salt))
        seen = probes.with_prompts(pass_, answer.observations, workload)
        observed[pass_.id] = Sent(seen, _record(launch.id, pass_.id, answer))
        try:
            pass_ = passes.send(Answered(seen, answer.counters_before, answer.counters_after))
        except StopIteration:
            pass_ = None
    return observed


def observe(
    pair: Pair,
    kind: str,
    workload: Workload,
    off: OffSide,
    key: str,
) -> ProbeObserved:
    """Return what the probe saw of the on launch now, and of the off launch when `off` was filled
    or now; the on arm's answers are scored by A."""
    probe, scorer = probes.get(kind), pair.launch(Role.A).id
    if not off.passes:
        off.passes = send(pair, Role.A, probe, workload, key)
    role = PLACES.get(kind, Role.ON)
    sent = {
        Source(pair.launch(role).id, name): one
        for name, one in send(pair, role, probe, workload, key).items()
    }
    sent |= {Source(scorer, name): one for name, one in off.passes.items()}
    observed = {source: one.observations for source, one in sent.items()}
    top = probes.TOPS if Data.TOPS in probe.needs else 1
    emitted = [
        Emitted(launch=source.launch, pass_id=source.pass_id, observations=many, top=top)
        for source, many in observed.items()
        if Data.SCORES in probe.needs
    ]
    scoring = probes.score_passes(scorer, emitted, workload)
    given = dict(off.scores)
    for pass_ in scoring.passes:
        if pass_.id not in given:
            given[pass_.id] = pair.run(Role.A, pass_).scores
        if pass_.id.startswith(f"score.{scorer}."):
            off.scores[pass_.id] = given[pass_.id]
    sources = probe.sources(pair.cell, pair.planned)
    return ProbeObserved(
        kind=kind,
        compared=probe.compared,
        observations={
            arm: tuple(one for source in many for one in observed.get(source, ()))
            for arm, many in sources.items()
        },
        scores={
            arm: tuple(
                score
                for source in many
                if source in observed and Data.SCORES in probe.needs
                for score in scoring.assemble(source, observed[source], given)
            )
            for arm, many in sources.items()
        },
        records={
            arm: tuple(sent[source].record for source in many if source in sent)
            for arm, many in sources.items()
        },
    )


def _record(launch: str, pass_id: str, answer: PassAnswer) -> PassRecord:
    return PassRecord(
        launch=launch,
        pass_id=pass_id,
        kind="observations",
        path="",
        sha256="",
        requests=len(answer.observations),
        seconds=answer.seconds,
        counters_before=answer.counters_before,
        counters_after=answer.counters_after,
    )


def first(observed: ProbeObserved, requests: int) -> ProbeObserved:
    """Return what was observed of the first so many requests of the on arm."""
    kept = {one.request for one in observed.answers("on")[:requests]}
    return replace(
        observed,
        observations={
            arm: tuple(one for one in many if one.request in kept)
            for arm, many in observed.observations.items()
        },
        scores={
            arm: tuple(one for one in many if one.request in kept)
            for arm, many in observed.scores.items()
        },
    )


def joined(one: ProbeObserved, other: ProbeObserved) -> ProbeObserved:
    """Return what was observed of both parts of a probe's requests, as of one."""
    return replace(
        one,
        observations=_joined(one.observations, other.observations),
        scores=_joined(one.scores, other.scores),
        records=_joined(one.records, other.records),
    )


def _joined(one: ByArm[T], other: ByArm[T]) -> ByArm[T]:
    return {arm: (*many, *other[arm]) for arm, many in one.items()}
