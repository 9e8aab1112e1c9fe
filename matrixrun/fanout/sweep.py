"""The driver: launches fan out as far as the cluster allows, each group's scoring launch last.

A launch is one asyncio task. What it observed is written before anything else happens; a cell's
evidence is written as soon as its group's scoring launch has answered the judge.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import matrixrun
from matrixrun import plan as planning
from matrixrun import probes
from matrixrun.evidence.errors import StoreError
from matrixrun.evidence.launches import Launch, LaunchEnd, LaunchOutcome, Role
from matrixrun.evidence.requests import Observation, Pass, PassRecord, Score
from matrixrun.evidence.verdicts import CellEvidence, Want
from matrixrun.fanout import cluster
from matrixrun.fanout.actor import LaunchSettings, PassAnswer
from matrixrun.fanout.gang import (
    ImpossibleError,
    LostError,
    RunningLaunch,
    broken,
    impossible,
    lost,
    unstaged,
    with_attempts,
)
from matrixrun.judge import JudgeSettings, judge_sweep
from matrixrun.matrix import Matrix, fingerprint
from matrixrun.plan import Capacity, Plan, PlannedPair
from matrixrun.probes import Source
from matrixrun.record import Display, Store
from matrixrun.record.replay import Reader
from matrixrun.workloads import Workload

ATTEMPTS = 2
POLL_SECONDS = 1.0
CONFIRMATION_ROUNDS = 3
SERVING = ("ready", "serving", "stopped")


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
    running: dict[str, RunningLaunch] = field(default_factory=dict)

    async def run(self) -> None:
        """Run every launch of the plan; returns when each has an outcome."""
        pending = {launch.id: launch for launch in self.plan.launches}
        tasks: dict[asyncio.Task[None], Launch] = {}
        watcher = asyncio.create_task(self._watch())
        try:
            while pending or tasks:
                for launch in self._next(pending.values(), tasks.values()):
                    del pending[launch.id]
                    tasks[asyncio.create_task(self._launch(launch))] = launch
                done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    del tasks[task]
                    task.result()
        finally:
            watcher.cancel()
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            self.release()

    def _next(self, pending: Iterable[Launch], running: Iterable[Launch]) -> list[Launch]:
        """The launches to start now. One that no node can ever hold is started too: its attempt
        says so at once, while it would wait for ever in a queue."""
        waiting, busy = list(pending), list(running)
        nodes = cluster.nodes()
        hopeless = [one for one in waiting if cluster.infeasible(one.gang, nodes)]
        rest = [one for one in waiting if one not in hopeless]
        ready = planning.next_launches(rest, busy, _free(nodes, busy))
        return hopeless + ready

    async def _watch(self) -> None:
        """Show what each launch is doing before it serves; its passes the driver shows itself."""
        shown: dict[str, tuple[str, str]] = {}
        while True:
            await asyncio.sleep(POLL_SECONDS)
            for name, running in list(self.running.items()):
                doing, line = await running.state()
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

    async def _launch(self, launch: Launch) -> None:
        if launch.role is Role.A and not self._needed(launch):
            return
        why = self.unstaged.get(launch.config.model)
        outcome = await self._attempts(launch) if why is None else unstaged(launch, why)
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

    async def _attempts(self, launch: Launch) -> LaunchOutcome:
        why = ""
        for attempt in range(1, ATTEMPTS + 1):
            running = RunningLaunch(launch, self.launching)
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
        outcome, log = await running.finish()
        self.store.write_log(launch.id, log)
        return outcome

    async def _serve(self, running: RunningLaunch) -> None:
        """Send every pass of the launch; on A, score what its group emitted and ask the judge."""
        launch = running.launch
        workload = self.workloads[launch.config.model]
        cells = [cell for cell in self.plan.cells if cell.id in launch.cells]
        passes = [
            pass_
            for probe in probes.resolve(self.matrix.probes)
            for pass_ in probe.passes(launch, cells, workload, self.matrix)
        ]
        for number, pass_ in enumerate(passes, start=1):
            self.display.launch(launch.id, f"pass {number}/{len(passes)}", detail=pass_.id)
            answer = await self._send(running, pass_)
            if answer is None:
                return
            record = self.store.write_observations(
                launch.id, pass_.id, answer.observations, **_about(answer)
            )
            self.observed[Source(launch.id, pass_.id)] = (answer.observations, record)
        if launch.role is Role.A:
            await self._score(running, workload)

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
        return {scorer.id} | {name for pair in pairs for name in (pair.on, pair.null) if name}

    async def _score(self, running: RunningLaunch, workload: Workload) -> None:
        scorer = running.launch
        group = self._group(scorer)
        emitted = [
            probes.Emitted(launch=source.launch, pass_id=source.pass_id, observations=observations)
            for source, (observations, _) in self.observed.items()
            if source.launch in group
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
        for name, source in probes.get("equality").sources(cell, pair).items():
            if source in self.observed:
                records[name] = self.observed[source][1]
            if source in self.scored:
                records[f"{name}.scores"] = self.scored[source]
        if pair.cell in self.confirmed:
            records["confirm"] = self.confirmed[pair.cell]
        roles = {"on": pair.on, "A": pair.off, "B": pair.null}
        return CellEvidence(
            cell=cell,
            outcomes={
                role: self.outcomes[name]
                for role, name in roles.items()
                if name is not None and name in self.outcomes
            },
            records=records,
            workload_sha256=self.workloads[str(cell.axes["model"])].sha256,
            settings_sha256=fingerprint(self.judging),
            program=matrixrun.__version__,
        )


def _about(answer: PassAnswer) -> dict[str, Any]:
    return {
        "seconds": answer.seconds,
        "counters_before": answer.counters_before,
        "counters_after": answer.counters_after,
    }


def _free(nodes: list[cluster.Node], running: Iterable[Launch]) -> Capacity:
    """What is left of the cluster beside the running launches."""
    gangs = [launch.gang for launch in running]
    return Capacity(
        accelerators=sum(n.accelerators for n in nodes) - sum(g.accelerators for g in gangs),
        cpus=sum(n.cpus for n in nodes) - sum(g.cpus for g in gangs),
    )
