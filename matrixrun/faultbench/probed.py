"""What a further probe observes on a pair of launches, as a sweep observes it."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
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
from matrixrun.probes import Answered, Data, Emitted, Probe, Scoring, Source
from matrixrun.workloads import Workload

T = TypeVar("T")
ByArm = Mapping[str, tuple[T, ...]]


class Asked(NamedTuple):
    """The requests that a probe has for a workload, but for those of the prompts left out."""

    probe: Probe
    workload: Workload
    without: Collection[str]


class Sent(NamedTuple):
    """What came of a pass, and the engine's counters around it."""

    observations: tuple[Observation, ...]
    record: PassRecord


@dataclass
class OffSide:
    """What A answered to a probe's passes and scored of it, shared by every specimen."""

    passes: dict[str, Sent] = field(default_factory=dict)
    scores: dict[str, tuple[Score, ...]] = field(default_factory=dict)


def send(pair: Pair, role: Role, asked: Asked, key: str) -> dict[str, Sent]:
    """Send a probe's passes to a launch, in cache namespaces of `key`; returns what was observed
    by the id of the pass."""
    launch, matrix, workload = pair.launch(role), pair.bench.matrix, asked.workload
    passes, observed = asked.probe.passes(launch, [pair.cell], workload, matrix), {}
    pass_ = next(passes, None)
    while pass_ is not None:
        salt = fingerprint([pass_.salt, key])
        requests = tuple(one for one in pass_.requests if one.prompt not in asked.without)
        answer = pair.run(role, msgspec.structs.replace(pass_, salt=salt, requests=requests))
        seen = probes.with_prompts(pass_, answer.observations, workload)
        observed[pass_.id] = Sent(seen, _record(launch.id, pass_.id, answer))
        try:
            pass_ = passes.send(Answered(seen, answer.counters_before, answer.counters_after))
        except StopIteration:
            pass_ = None
    return observed


def observe(pair: Pair, asked: Asked, off: OffSide, key: str) -> ProbeObserved:
    """Return what the probe saw of the on launch now, and of the off launch when `off` was filled
    or now, beside it; the on arm's answers are scored by A."""
    probe, scorer = asked.probe, pair.launch(Role.A).id
    role = PLACES.get(probe.kind, Role.ON)
    with ThreadPoolExecutor(1) as beside:
        ours = beside.submit(send, pair, role, asked, key)
        if not off.passes:
            off.passes = send(pair, Role.A, asked, key)
            _, off.scores = _scored(pair, asked, _sources(scorer, off.passes), {})
        theirs = _sources(scorer, off.passes)
        sent = _sources(pair.launch(role).id, ours.result()) | theirs
    observed = {source: one.observations for source, one in sent.items()}
    scoring, given = _scored(pair, asked, sent, off.scores)
    sources = probe.sources(pair.cell, pair.planned)
    return ProbeObserved(
        kind=probe.kind,
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


def _sources(launch: str, passes: Mapping[str, Sent]) -> dict[Source, Sent]:
    return {Source(launch, name): one for name, one in passes.items()}


def _scored(
    pair: Pair,
    asked: Asked,
    sent: Mapping[Source, Sent],
    given: Mapping[str, tuple[Score, ...]],
) -> tuple[Scoring, dict[str, tuple[Score, ...]]]:
    """Return what A is to score of a probe's answers, and the scores by pass: those given, and the
    others as A gives them now."""
    top = probes.TOPS if Data.TOPS in asked.probe.needs else 1
    emitted = [
        Emitted(launch=source.launch, pass_id=source.pass_id, observations=seen, top=top)
        for source, (seen, _) in sent.items()
        if Data.SCORES in asked.probe.needs
    ]
    scoring = probes.score_passes(pair.launch(Role.A).id, emitted, asked.workload)
    return scoring, {
        pass_.id: given[pass_.id] if pass_.id in given else pair.run(Role.A, pass_).scores
        for pass_ in scoring.passes
    }


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
