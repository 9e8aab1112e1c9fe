"""The driver: launches fan out as far as the cluster allows, each group's scoring launch last.

A launch is one asyncio task. What it observed is written before anything else happens; a cell's
evidence is written as soon as its group's scoring launch has answered the judge.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec

import matrixrun
from matrixrun import probes
from matrixrun.evidence.cells import Cell
from matrixrun.evidence.errors import StoreError
from matrixrun.evidence.launches import Launch, LaunchEnd, LaunchOutcome, Role
from matrixrun.evidence.requests import Observation, Pass, PassRecord, ProbeRecords, Score
from matrixrun.evidence.verdicts import CellEvidence, Want
from matrixrun.fanout import cluster
from matrixrun.fanout.actor import LaunchSettings, PassAnswer
from matrixrun.fanout.gang import (
    ImpossibleError,
    RunningLaunch,
    broken,
    impossible,
    lost,
    unstaged,
    with_attempts,
)
from matrixrun.fanout.waiting import LostError
from matrixrun.judge import JudgeSettings, judge_sweep
from matrixrun.matrix import Matrix, fingerprint
from matrixrun.plan import EXTRAS, Placement, Plan, PlannedPair, Queue, Running
from matrixrun.probes import Answered, Data, Source
from matrixrun.record import Display, Store
from matrixrun.record.replay import Reader
from matrixrun.workloads import Workload

ATTEMPTS = 4
POLL_SECONDS = 1.0
CONFIRMATION_ROUNDS = 3
SERVING = ("ready", "serving", "stopped")


@dataclass(frozen=True)
class Started:
    """A launch at work, and since when on the monotonic clock."""

    placement: Placement
    at: float

    def running(self) -> Running:
        """With the seconds that it is expected to go on."""
        left = self.placement.launch.seconds - (time.monotonic() - self.at)
        return Running(self.placement, max(0.0, left))


@dataclass
class Sweep:
    """All that the driver holds while launches run.

    `unstaged` says why a model has no workload: its launches are concluded without being started.
    `observed` and `scored` say for each pass of a launch what was observed and where it lies.
    """

    matrix: Matrix
    plan: Plan
    store: Store
    display: Display
    launching: LaunchSettings
    judging: JudgeSettings
    workloads: dict[str, Workload]
    unstaged: dict[str, str] = field(default_factory=dict)
    outcomes: dict[str, LaunchOutcome] = field(default_factory=dict)
    observed: dict[Source, tuple[tuple[Observation, ...], PassRecord]] = field(default_factory=dict)
    scored: dict[Source, PassRecord] = field(default_factory=dict)
    confirmed: dict[str, PassRecord] = field(default_factory=dict)
    ledgers: dict[str, PassRecord] = field(default_factory=dict)
    running: dict[str, RunningLaunch] = field(default_factory=dict)
    lately: cluster.Lately = field(default_factory=cluster.Lately)

    def __post_init__(self) -> None:
        self._probes = probes.resolve(self.matrix.probes)

    async def run(self) -> None:
        """Run every launch of the plan; returns when each has an outcome."""
        queue = Queue(self.plan.launches)
        tasks: dict[asyncio.Task[None], Started] = {}
        watcher = asyncio.create_task(self._watch())
        try:
            while queue or tasks:
                for placement in self._next(queue, tasks.values()):
                    started = Started(placement, time.monotonic())
                    tasks[asyncio.create_task(self._launch(placement))] = started
                for task in await _first_ended(tasks):
                    queue.ended(tasks.pop(task).placement.launch)
                    task.result()
        finally:
            watcher.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.release()

    def _next(self, queue: Queue, running: Iterable[Started]) -> list[Placement]:
        """The launches to start now. One that no node can ever hold is started too: its attempt
        says so at once, while it would wait for ever in a queue."""
        nodes = cluster.nodes()
        hopeless = [Placement(launch, ()) for launch in queue.impossible(self.lately.nodes())]
        held = [started.running() for started in running]
        free = cluster.free(nodes, [one.placement for one in held])
        return hopeless + queue.next(free, held)

    async def _watch(self) -> None:
        """Show what each launch is doing before it serves; its passes the driver shows itself."""
        shown: dict[str, tuple[str, str]] = {}
        while True:
            await asyncio.sleep(POLL_SECONDS)
            for name, running in list(self.running.items()):
                doing, line = await running.state()
                if self.running.get(name) is not running:
                    continue  # it ended while it was asked
                known, known_line = shown.get(name, ("", ""))
                shown[name] = (doing, line)
                if doing not in ("", known, *SERVING):
                    self.display.launch(name, doing)
                if line not in ("", known_line) and doing not in SERVING:
                    self.display.progress(line)

    def release(self) -> None:
        """Let go of every gang; engines end with their actors."""
        for running in list(self.running.values()):
            running.release()
        self.running.clear()

    # -- one launch --------------------------------------------------------------------------

    async def _launch(self, placement: Placement) -> None:
        launch = placement.launch
        if launch.role is Role.A and not self._needed(launch):
            return
        began = time.monotonic()
        why = self.unstaged.get(launch.config.model)
        outcome = await self._attempts(placement) if why is None else unstaged(launch, why)
        outcome = msgspec.structs.replace(outcome, seconds=round(time.monotonic() - began, 1))
        self.outcomes[launch.id] = outcome
        self.store.write_outcome(outcome)
        self.display.launch(launch.id, str(outcome.end), detail=outcome.message)
        self._conclude(launch)

    def _needed(self, scorer: Launch) -> bool:
        """Whether any pair that A scores still can be judged; the others are concluded here."""
        if any(self._served(p.on) for p in self._pairs(scorer)):
            return True
        self.display.launch(scorer.id, "not needed", detail="none of its on launches served")
        self._conclude(scorer)
        return False

    def _served(self, launch_id: str) -> bool:
        outcome = self.outcomes.get(launch_id)
        return outcome is not None and outcome.end is LaunchEnd.SERVED

    async def _attempts(self, placement: Placement) -> LaunchOutcome:
        launch, why = placement.launch, ""
        for attempt in range(1, ATTEMPTS + 1):
            # The nodes of an attempt that was lost may be gone: Ray looks for others.
            on = placement.nodes if attempt == 1 else ()
            running = RunningLaunch(launch, self.launching, on, self.lately.nodes)
            self.running[launch.id] = running
            self._begin_again(launch)
            try:
                return with_attempts(await self._attempt(running), attempt)
            except LostError as error:
                why = str(error)
                self.display.launch(launch.id, "lost", detail=why)
            except ImpossibleError as error:
                return impossible(launch, str(error))
            except StoreError:
                raise  # what cannot be written is lost: the whole sweep stops here
            except Exception as error:  # a cell's failure never stops the others
                return broken(launch, error)
            finally:
                await asyncio.to_thread(running.release)
                self.running.pop(launch.id, None)
        return lost(launch, why, ATTEMPTS)

    def _begin_again(self, launch: Launch) -> None:
        """Forget what an attempt that was lost has observed: the next observes it anew."""
        self.observed = {s: seen for s, seen in self.observed.items() if s.launch != launch.id}
        if launch.role is Role.A:
            group = self._group(launch)
            self.scored = {s: rec for s, rec in self.scored.items() if s.launch not in group}
            for cell in launch.cells:
                self.confirmed.pop(cell, None)

    async def _attempt(self, running: RunningLaunch) -> LaunchOutcome:
        launch = running.launch
        await running.place()
        outcome = self.outcomes[launch.id] = await running.start()
        if outcome.end is LaunchEnd.SERVED:
            await self._serve(running)
        outcome, log, ledger = await running.finish()
        self.store.write_log(launch.id, log)
        if outcome.end is LaunchEnd.LOST:
            raise LostError(f"killed from outside: {outcome.message}")
        if ledger:
            self.ledgers[launch.id] = self.store.write_ledger(launch.id, ledger)
        return await self._identified(running, outcome)

    async def _identified(self, running: RunningLaunch, outcome: LaunchOutcome) -> LaunchOutcome:
        """The outcome with the checkpoints' hashes. Where the node is lost while these are waited
        for, the passes count all the same: what was served is not known, and a sign-off says so."""
        try:
            known = await running.identities()
        except LostError as error:
            why = f"its checkpoints are not identified: {error}"
            self.display.launch(running.launch.id, "lost after its last pass", detail=why)
            return outcome
        return msgspec.structs.replace(outcome, checkpoints=known)

    async def _serve(self, running: RunningLaunch) -> None:
        """Send every pass of the launch; on A, score what its group emitted and ask the judge."""
        launch = running.launch
        workload = self.workloads[launch.config.model]
        cells = [cell for cell in self.plan.cells if cell.id in launch.cells]
        for probe in self._probes:
            if launch.role.extra and probe.kind != EXTRAS[launch.role]:
                continue
            passes = probe.passes(launch, cells, workload, self.matrix)
            if not await self._pass_by_pass(running, passes, workload):
                return
        if launch.role is Role.A:
            await self._score(running, workload)

    async def _pass_by_pass(
        self, running: RunningLaunch, passes: probes.Passes, workload: Workload
    ) -> bool:
        """Send a probe's passes, each built on what came of those before; False once the launch
        no longer serves."""
        launch = running.launch
        pass_ = next(passes, None)
        while pass_ is not None:
            self.display.launch(launch.id, "answering", detail=pass_.id)
            answer = await self._send(running, pass_)
            if answer is None:
                return False
            observations = probes.with_prompts(pass_, answer.observations, workload)
            record = self.store.write_observations(
                launch.id, pass_.id, observations, **_about(answer)
            )
            self.observed[Source(launch.id, pass_.id)] = (observations, record)
            counters = answer.counters_before, answer.counters_after
            try:
                pass_ = passes.send(Answered(observations, *counters))
            except StopIteration:
                pass_ = None
        return True

    async def _send(self, running: RunningLaunch, pass_: Pass) -> PassAnswer | None:
        answer = await running.run(pass_)
        return answer if isinstance(answer, PassAnswer) else None

    # -- scoring, judging, confirming: on launch A -----------------------------------------------

    def _forget(self, scorer: Launch) -> None:
        """Drop a concluded group's observations: they lie in the results folder."""
        group = self._group(scorer)
        self.observed = {s: seen for s, seen in self.observed.items() if s.launch not in group}

    def _group(self, scorer: Launch) -> set[str]:
        pairs = self._pairs(scorer)
        return {scorer.id} | {name for pair in pairs for name in pair.launches}

    async def _score(self, running: RunningLaunch, workload: Workload) -> None:
        scorer = running.launch
        group = self._group(scorer)
        emitted = [
            probes.Emitted(
                launch=source.launch,
                pass_id=source.pass_id,
                observations=observations,
                top=probes.TOPS if Data.TOPS in self._needs(source) else 1,
            )
            for source, (observations, _) in self.observed.items()
            if source.launch in group and Data.SCORES in self._needs(source)
        ]
        scoring = probes.score_passes(scorer.id, emitted, workload)
        given: dict[str, tuple[Score, ...]] = {}
        for number, pass_ in enumerate(scoring.passes, start=1):
            self.display.launch(
                scorer.id, f"scoring {number}/{len(scoring.passes)}", detail=pass_.id
            )
            answer = await self._send(running, pass_)
            if answer is None:
                return
            given[pass_.id] = answer.scores
        for one in emitted:
            source = Source(one.launch, one.pass_id)
            scores = scoring.assemble(source, one.observations, given)
            self.scored[source] = self.store.write_scores(
                scorer.id, f"score.{one.launch}.{one.pass_id}", scores
            )
        await self._confirm(running)

    def _needs(self, source: Source) -> frozenset[Data]:
        return probes.get(source.pass_id.split(".", 1)[0]).needs

    async def _confirm(self, running: RunningLaunch) -> None:
        """Fetch what the judge wants of A while A still runs: re-scoring costs no launch then."""
        scorer = running.launch
        for _ in range(CONFIRMATION_ROUNDS):
            wants = self._wants(scorer)
            for pass_ in probes.confirmation_passes(scorer.id, wants):
                self.display.launch(scorer.id, "confirming", detail=pass_.id)
                answer = await self._send(running, pass_)
                if answer is None:
                    return
                cell = pass_.id.removeprefix("confirm.")
                known = self.confirmed.get(cell)
                earlier = self.store.read_scores(known) if known else []
                self.confirmed[cell] = self.store.write_scores(
                    scorer.id, pass_.id, [*earlier, *answer.scores], **_about(answer)
                )
            if not wants:
                return

    def _wants(self, scorer: Launch) -> tuple[Want, ...]:
        cells = [self._evidence(pair) for pair in self._pairs(scorer) if self._served(pair.on)]
        judgement = judge_sweep(Reader(self.store).cells(cells), self.judging)
        return judgement.wants

    # -- evidence ----------------------------------------------------------------------------

    def _pairs(self, scorer: Launch) -> list[PlannedPair]:
        return [pair for pair in self.plan.pairs if pair.off == scorer.id]

    def _conclude(self, launch: Launch) -> None:
        """Write the evidence of the cells whose last launch this was, and show what it says.

        The verdict shown is provisional: corrections for multiplicity need the whole sweep.
        """
        evidences = [self._evidence(pair) for pair in self._pairs(launch)]
        for evidence in evidences:
            self.store.write_evidence(evidence)
        for result in judge_sweep(
            Reader(self.store).cells(evidences), self.judging, final=True
        ).results:
            self.display.cell(result)
        if launch.role is Role.A:
            self._forget(launch)

    def _evidence(self, pair: PlannedPair) -> CellEvidence:
        cell = next(cell for cell in self.plan.cells if cell.id == pair.cell)
        records = {}
        for name, (source,) in probes.get("equality").sources(cell, pair).items():
            if source in self.observed:
                records[name] = self.observed[source][1]
            if source in self.scored:
                records[f"{name}.scores"] = self.scored[source]
        if pair.cell in self.confirmed:
            records["confirm"] = self.confirmed[pair.cell]
        for role, name in pair.roles.items():
            if name in self.ledgers:
                records[f"ledger.{role}"] = self.ledgers[name]
        workload = self.workloads.get(str(cell.axes["model"]))  # none: it could not be tokenized
        return CellEvidence(
            cell=cell,
            outcomes={
                role: self.outcomes[name]
                for role, name in pair.roles.items()
                if name in self.outcomes
            },
            records=records,
            workload_sha256="" if workload is None else workload.sha256,
            settings_sha256=fingerprint(self.judging),
            program=matrixrun.__version__,
            probes=tuple(self._probe_records(cell, pair)),
        )

    def _probe_records(self, cell: Cell, pair: PlannedPair) -> Iterable[ProbeRecords]:
        """What every probe with passes of its own, other than equality, observed for a cell."""
        for probe in self._probes:
            if probe.kind == "equality" or probe.rides_on is not None:
                continue
            for arm, sources in probe.sources(cell, pair).items():
                yield ProbeRecords(
                    kind=probe.kind,
                    arm=arm,
                    compared=probe.compared,
                    passes=tuple(self.observed[s][1] for s in sources if s in self.observed),
                    scores=tuple(self.scored[s] for s in sources if s in self.scored),
                )


def _about(answer: PassAnswer) -> dict[str, Any]:
    return {
        "seconds": answer.seconds,
        "counters_before": answer.counters_before,
        "counters_after": answer.counters_after,
    }


async def _first_ended(tasks: Collection[asyncio.Task[None]]) -> set[asyncio.Task[None]]:
    """Wait until a task has ended, or for a moment: nodes come, and other jobs leave."""
    if not tasks:
        await asyncio.sleep(POLL_SECONDS)
        return set()
    done, _ = await asyncio.wait(tasks, timeout=POLL_SECONDS, return_when=asyncio.FIRST_COMPLETED)
    return done
