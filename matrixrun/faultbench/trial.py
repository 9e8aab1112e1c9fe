"""One specimen with one seed: passes on the patched launch, scoring on A, judged in blocks."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import NamedTuple

import msgspec

import matrixrun
from matrixrun import probes
from matrixrun.evidence.errors import EngineError
from matrixrun.evidence.launches import Arm, Role
from matrixrun.evidence.ledger import Event, Full, read_events
from matrixrun.evidence.requests import Observation, Pass, PassRecord, Request, Score
from matrixrun.evidence.verdicts import CellEvidence, CellResult
from matrixrun.fanout.actor import PassAnswer
from matrixrun.fanout.sweep import CONFIRMATION_ROUNDS
from matrixrun.faultbench.pair import Pair
from matrixrun.faultbench.probed import Asked, OffSide, first, joined, observe
from matrixrun.faultbench.result import Seen, TrialResult, caught, place_of, told_of
from matrixrun.faultbench.specimen import Load, Specimen
from matrixrun.judge import CellObservations, JudgeSettings, ProbeObserved, judge_sweep
from matrixrun.matrix import fingerprint
from matrixrun.probes import Emitted, Source
from matrixrun.workloads import Workload
from matrixrun.workloads.prompts import workload_of

# Prompts after which a trial is judged, and ends if the verdict is against it, before the planned
# number is reached.
LOOKS = (16, 32)
# Of equality's prompts beside a further probe: they show a fault in 0.14 of requests at 0.99.
BESIDE_A_PROBE = 32
DETECT_BESIDE_A_PROBE = 0.14


class Block(NamedTuple):
    """Prompts `start` to `end` of a seed's."""

    start: int
    end: int


# The prompts that a further probe takes its own from. Where the requests of the first ones show
# nothing, those of the next are added. Half of 64 are natural ones, which is as many as a sweep
# samples; every processor is tried with the first 12.
OF_A_PROBE = (Block(0, BESIDE_A_PROBE),)
OF_PROBES = {
    "sampling": (Block(0, 16), Block(16, 32), Block(32, 64)),
    "processors": (Block(0, 12), Block(12, BESIDE_A_PROBE)),
}


@dataclass
class Baseline:
    """What the off launch answered and scored for one block, shared by every specimen. `healthy`
    holds the on launches' answers by launch, for specimens whose fault equality does not meet,
    and `valued` their scores."""

    off: tuple[Observation, ...]
    null: tuple[Observation, ...]
    given: dict[str, tuple[Score, ...]]
    workload: Workload
    requests: tuple[Request, ...]
    healthy: dict[str, PassAnswer] = field(default_factory=dict)
    valued: dict[str, dict[str, tuple[Score, ...]]] = field(default_factory=dict)


class Bench:
    """Runs trials on one pair of launches; `baselines` are shared by pairs of one off launch."""

    def __init__(
        self,
        pair: Pair,
        prompts: Workload,
        settings: JudgeSettings,
        baselines: dict[str, Baseline],
    ) -> None:
        self.pair, self.settings = pair, settings
        self._prompts, self._baselines = prompts, baselines
        self._off_sides: dict[str, OffSide] = {}

    def trial(self, specimen: Specimen, seed: int) -> TrialResult:
        """Run one specimen on its seed's prompts: block by block to the first verdict against it
        or the planned number, or by the further probe that shows it."""
        seen = Seen()
        try:
            if specimen.probe is None:
                result = self._by_blocks(specimen, seed, seen)
            else:
                result = self._by_probe(specimen, specimen.probe, seed, seen)
            role = Role.A if specimen.off_as_on else place_of(specimen)
            struck = self.pair.switch(role).struck()
        finally:
            self._switch(None, seed)
        told = told_of(specimen, seed, result, seen, struck)
        # What a probe of state finds is in a transition, of which all its requests are a part.
        return told if specimen.of_state else self._shortest(told, result, seen)

    def _by_blocks(self, specimen: Specimen, seed: int, seen: Seen) -> CellResult:
        self._switch(specimen, seed)
        for block in self._blocks(self.pair.bench.matrix.workload.prompts):
            self._observe(specimen, seed, block, seen)
            result = self._judged(seen)
            if caught(specimen, result.verdict):
                break
        return result

    def _by_probe(self, specimen: Specimen, probe: str, seed: int, seen: Seen) -> CellResult:
        """Send a further probe beside equality, whose requests meet the fault only in the launches
        for state: there it may be what an earlier request leaves behind."""
        written = self._written()
        self._switch(specimen if specimen.in_both or not _spared(specimen) else None, seed)
        for block in self._blocks(BESIDE_A_PROBE):
            self._observe(specimen, seed, block, seen)
        if _spared(specimen):
            self._switch(specimen, seed)
        parts = OF_PROBES.get(probe, OF_A_PROBE)
        workload = self._part(seed, Block(parts[0].start, parts[-1].end))
        for part in parts:
            more = self._probed(probe, specimen, seed, workload, part)
            seen.probed = more if seen.probed is None else joined(seen.probed, more)
            seen.ledgers = self._ledgers(written, place_of(specimen))
            result = self._judged(seen)
            if caught(specimen, result.verdict):
                break
        return result

    @staticmethod
    def _blocks(prompts: int) -> list[Block]:
        ends = [0, *(look for look in LOOKS if look < prompts), prompts]
        return [Block(*ends) for ends in pairwise(ends)]

    def _switch(self, specimen: Specimen | None, seed: int) -> None:
        injection = None if specimen is None else specimen.injection
        both = specimen is not None and specimen.in_both
        place = Role.ON if specimen is None else place_of(specimen)
        for role in self._roles():
            self.pair.switch(role).set(injection if role is place else None, seed=seed + 1)
        self.pair.switch(Role.A).set(injection if both else None, seed=seed + 1001)

    def _roles(self) -> list[Role]:
        """Return the launches that speculate."""
        return [Role(role) for role in self.pair.outcomes if Role(role).arm is Arm.ON]

    def _written(self) -> dict[Role, int]:
        """Return how much each ledger holds."""
        found = {role: len(self.pair.ledger(role)) for role in self._roles() if role.extra}
        return {role: size for role, size in found.items() if size}

    def _ledgers(self, written: dict[Role, int], place: Role) -> dict[str, tuple[Event, ...]]:
        """Return what ledgers hold since then: nothing is in flight between trials, so that each
        can be checked by itself.

        Raises:
            EngineError: that of the launch with the fault has come to its end: what it does not
                hold is no miss of the judge.
        """
        found = {role: read_events(self.pair.ledger(role)[size:]) for role, size in written.items()}
        if place in found and (not found[place] or isinstance(found[place][-1], Full)):
            raise EngineError(
                f"{self.pair.launch(place).id}: its ledger has ended, and shows nothing of a trial",
                remedy="raise MATRIXRUN_LEDGER_LARGEST in the bench's file, or try fewer at once",
            )
        return {str(role): events for role, events in found.items()}

    # -- one block -----------------------------------------------------------------------------

    def _observe(self, specimen: Specimen, seed: int, block: Block, seen: Seen) -> None:
        scorer = self.pair.launch(Role.A).id
        base = self._baseline(specimen, seed, block)
        spared = _spared(specimen)
        source = Source(self.pair.launch(Role.ON).id, self._pass_ids()[0])
        answer = base.healthy.get(source.launch) if spared else None
        answer = answer or self._on_pass(specimen, seed, block, base)
        emitted = [*self._off_emitted(base), Emitted(
            launch=source.launch, pass_id=source.pass_id, observations=answer.observations
        )]  # fmt: skip
        scoring = probes.score_passes(scorer, emitted, base.workload)
        given = base.given | (base.valued.get(source.launch, {}) if spared else {})
        for pass_ in scoring.passes:
            if pass_.id not in given:
                given[pass_.id] = self.pair.run(Role.A, pass_).scores
        if spared:
            base.healthy[source.launch], base.valued[source.launch] = answer, given
        main, null = self._pass_ids()
        seen.on += _later(answer.observations, max((one.finished for one in seen.on), default=0.0))
        seen.off += base.off
        seen.null += base.null
        seen.on_scores += scoring.assemble(source, answer.observations, given)
        seen.off_scores += scoring.assemble(Source(scorer, main), base.off, given)
        seen.null_scores += scoring.assemble(Source(scorer, null), base.null, given)
        for name, value in answer.counters_after.items():
            seen.before.setdefault(name, answer.counters_before.get(name, 0.0))
            grown = value - answer.counters_before.get(name, 0.0)
            seen.growth[name] = seen.growth.get(name, 0.0) + grown
        ids = {prompt.id: prompt.token_ids for prompt in base.workload.prompts}
        seen.prompts |= {one.request: ids[one.prompt] for one in answer.observations}

    def _probed(
        self, kind: str, specimen: Specimen, seed: int, workload: Workload, part: Block
    ) -> ProbeObserved:
        of_both = _of_both(specimen)
        off = self._off_sides.setdefault(fingerprint([kind, seed, part, of_both]), OffSide())
        mine = {prompt.id for prompt in self._part(seed, part).prompts}
        without = {prompt.id for prompt in workload.prompts} - mine
        asked = Asked(probes.get(kind), workload, without)
        return observe(self.pair, asked, off, fingerprint([specimen.name, seed, part]))

    def _on_pass(self, specimen: Specimen, seed: int, block: Block, base: Baseline) -> PassAnswer:
        role = Role.A if specimen.off_as_on else Role.ON
        template = self._passes(role, base.workload)[0]
        requests = base.requests
        if specimen.off_as_on:
            half = len(requests) // 2
            requests = requests[half:] + requests[:half]
        namespace = fingerprint([specimen.name, seed, block])
        pass_ = msgspec.structs.replace(template, requests=requests, salt=namespace)
        return self.pair.run(role, pass_)

    def _baseline(self, specimen: Specimen, seed: int, block: Block) -> Baseline:
        key = fingerprint([seed, block, specimen.load, _of_both(specimen)])
        if key not in self._baselines:
            self._baselines[key] = self._make_baseline(specimen.load, seed, block, key)
        return self._baselines[key]

    def _make_baseline(self, load: Load, seed: int, block: Block, key: str) -> Baseline:
        workload = self._part(seed, block)
        main, null = self._passes(Role.A, workload)
        if load is Load.STOPS:
            free = self.pair.run(Role.A, _salted(main, fingerprint([key, "free"])))
            stop = stop_token(free.observations)
            main, null = _stopping(main, stop), _stopping(null, stop)
        base = Baseline(
            off=self.pair.run(Role.A, _salted(main, key)).observations,
            null=self.pair.run(Role.A, _salted(null, fingerprint([key, "null"]))).observations,
            given={}, workload=workload, requests=main.requests,
        )  # fmt: skip
        scorer = self.pair.launch(Role.A).id
        for pass_ in probes.score_passes(scorer, self._off_emitted(base), workload).passes:
            base.given[pass_.id] = self.pair.run(Role.A, pass_).scores
        return base

    def _off_emitted(self, base: Baseline) -> list[Emitted]:
        scorer, (main, null) = self.pair.launch(Role.A).id, self._pass_ids()
        return [
            Emitted(launch=scorer, pass_id=main, observations=base.off),
            Emitted(launch=scorer, pass_id=null, observations=base.null),
        ]

    def _part(self, seed: int, block: Block) -> Workload:
        """Return the prompts of a block: each seed has its own."""
        first = seed * self.pair.bench.matrix.workload.prompts
        return workload_of(self._prompts.prompts[first + block.start : first + block.end])

    def _passes(self, role: Role, workload: Workload) -> tuple[Pass, ...]:
        probe = probes.get("equality")
        launch = self.pair.launch(role)
        matrix = self.pair.bench.matrix
        return tuple(probe.passes(launch, [self.pair.cell], workload, matrix))

    def _pass_ids(self) -> tuple[str, str]:
        sources = probes.get("equality").sources(self.pair.cell, self.pair.planned)
        return sources["off"][0].pass_id, sources["null"][0].pass_id

    # -- judging ---------------------------------------------------------------------------------

    def _judged(self, seen: Seen) -> CellResult:
        """Judge as a sweep of one cell is, its wants answered by A."""
        scorer = self.pair.launch(Role.A).id
        for _ in range(CONFIRMATION_ROUNDS):
            wants = judge_sweep([self.evidence(seen)], self._claim(seen)).wants
            for pass_ in probes.confirmation_passes(scorer, wants):
                salt = fingerprint([pass_.salt, len(seen.confirmations), list(seen.prompts)[:1]])
                seen.confirmations += self.pair.run(Role.A, _salted(pass_, salt)).scores
            if not wants:
                break
        return judge_sweep([self.evidence(seen)], self._claim(seen), final=True).results[0]

    def _claim(self, seen: Seen) -> JudgeSettings:
        """The settings; what a further probe shows is shown beside fewer prompts of equality's."""
        if seen.probed is None:
            return self.settings
        return msgspec.structs.replace(self.settings, detect_rate=DETECT_BESIDE_A_PROBE)

    def evidence(self, seen: Seen, requests: int | None = None) -> CellObservations:
        """Return what was seen as the judge takes it: all, or the first so many requests, of a
        further probe's where that was sent."""
        probed, some_of_probe = seen.probed, requests
        if probed is not None:
            requests = None
            probed = probed if some_of_probe is None else first(probed, some_of_probe)
        on = seen.on[:requests]
        kept = {one.request for one in on}
        growth = dict(seen.growth) if requests is None else {}
        record = PassRecord(
            launch=self.pair.launch(Role.ON).id, pass_id=self._pass_ids()[0],
            kind="observations", path="", sha256="", requests=len(on), seconds=0.0,
            counters_before={name: seen.before[name] for name in growth},
            counters_after={name: seen.before[name] + more for name, more in growth.items()},
        )  # fmt: skip
        whole = CellEvidence(
            cell=self.pair.cell,
            outcomes=self.pair.outcomes,
            records={"on": record}, workload_sha256=self._prompts.sha256,
            settings_sha256=fingerprint(self.settings), program=matrixrun.__version__,
        )  # fmt: skip

        def some(many: list[Observation]) -> tuple[Observation, ...]:
            return tuple(one for one in many if one.request in kept)

        def scored(many: list[Score]) -> tuple[Score, ...]:
            return tuple(one for one in many if one.request in kept)

        return CellObservations(
            evidence=whole, on=tuple(on), off=some(seen.off), null=some(seen.null),
            on_scores=scored(seen.on_scores), off_scores=scored(seen.off_scores),
            null_scores=scored(seen.null_scores), confirmations=tuple(seen.confirmations),
            prompts=seen.prompts, probes=() if probed is None else (probed,),
            ledgers=seen.ledgers,
        )  # fmt: skip

    def _shortest(self, told: TrialResult, result: CellResult, seen: Seen) -> TrialResult:
        """Return the result with the fewest requests with which the judge says the same."""
        low, high = 0, len(seen.order)
        while told.caught and high - low > 1:
            middle = (low + high) // 2
            again = judge_sweep([self.evidence(seen, middle)], self._claim(seen), final=True)
            caught = again.results[0].verdict is result.verdict
            low, high = (low, middle) if caught else (middle, high)
        tokens = sum(one.token_ids.size for one in seen.order[:high])
        return msgspec.structs.replace(told, requests=high, tokens=tokens)


def stop_token(observations: tuple[Observation, ...]) -> int:
    """Return the token that stands in as near to half of the answers as any, past their start."""
    found: Counter[int] = Counter()
    for one in observations:
        found.update(set(one.token_ids[8:].tolist()))
    return min(found, key=lambda token: (abs(found[token] - len(observations) / 2), token))


def _stopping(pass_: Pass, token: int) -> Pass:
    def stopping(request: Request) -> Request:
        sampling = msgspec.structs.replace(request.sampling, stop_token_ids=(token,))
        return msgspec.structs.replace(request, sampling=sampling)

    return msgspec.structs.replace(pass_, requests=tuple(map(stopping, pass_.requests)))


def _of_both(specimen: Specimen) -> list[object] | None:
    """Return what the off launch has of a specimen too: its answers are shared by those alike."""
    injection = specimen.injection if specimen.in_both else None
    return None if injection is None else [injection.name, injection.parameters]


def _spared(specimen: Specimen) -> bool:
    """Return whether equality's requests do not meet a specimen's fault: its answers are then the
    same as of every other such specimen, and are asked for once."""
    return specimen.probe is not None and (not specimen.of_state or place_of(specimen).extra)


def _later(observations: tuple[Observation, ...], seconds: float) -> list[Observation]:
    """Return what was observed in a pass that began so much later than the first one."""
    return [
        replace(one, started=one.started + seconds, finished=one.finished + seconds,
                first_token=one.first_token + seconds)
        for one in observations
    ]  # fmt: skip


def _salted(pass_: Pass, salt: str) -> Pass:
    return msgspec.structs.replace(pass_, salt=salt)


__all__ = ["Baseline", "Bench", "Block", "stop_token"]
