"""What a further probe observes on a pair of launches, as a sweep observes it."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import msgspec

from matrixrun import probes
from matrixrun.evidence.launches import Role
from matrixrun.evidence.requests import Observation, Score
from matrixrun.faultbench.pair import Pair
from matrixrun.judge import ProbeObserved
from matrixrun.matrix import fingerprint
from matrixrun.probes import Answered, Data, Emitted, Probe, Source
from matrixrun.workloads import Workload


@dataclass
class OffSide:
    """What A answered to a probe's passes and scored of it, shared by every specimen."""

    passes: dict[str, tuple[Observation, ...]] = field(default_factory=dict)
    scores: dict[str, tuple[Score, ...]] = field(default_factory=dict)


def send(
    pair: Pair, role: Role, probe: Probe, workload: Workload, key: str
) -> dict[str, tuple[Observation, ...]]:
    """Send a probe's passes to a launch, in cache namespaces of `key`; returns what was observed
    by the id of the pass."""
    launch, matrix = pair.launch(role), pair.bench.matrix
    passes, observed = probe.passes(launch, [pair.cell], workload, matrix), {}
    pass_ = next(passes, None)
    while pass_ is not None:
        salt = fingerprint([pass_.salt, key])
        answer = pair.run(role, msgspec.structs.replace(pass_, salt=salt))
        seen = probes.with_prompts(pass_, answer.observations, workload)
        observed[pass_.id] = seen
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
    observed = {
        Source(pair.launch(Role.ON).id, name): many
        for name, many in send(pair, Role.ON, probe, workload, key).items()
    }
    observed |= {Source(scorer, name): many for name, many in off.passes.items()}
    top = probes.TOPS if Data.TOPS in probe.needs else 1
    emitted = [
        Emitted(launch=source.launch, pass_id=source.pass_id, observations=many, top=top)
        for source, many in observed.items()
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
                for score in scoring.assemble(source, observed.get(source, ()), given)
            )
            for arm, many in sources.items()
        },
        records={},
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
