"""The launches: started once, they serve every specimen."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Collection
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import msgspec

from matrixrun import engines, models, workloads
from matrixrun import plan as planning
from matrixrun.evidence.cells import Cell, Speculation
from matrixrun.evidence.errors import EngineDied, EngineError
from matrixrun.evidence.launches import Launch, LaunchEnd, LaunchOutcome, Role
from matrixrun.evidence.requests import Pass
from matrixrun.fanout.actor import LaunchBody, LaunchSettings, PassAnswer
from matrixrun.faultbench.control import Switch
from matrixrun.faultbench.task import known_text
from matrixrun.matrix import Matrix, expand, load
from matrixrun.plan import EXTRAS, PlannedPair
from matrixrun.workloads import Workload

BENCH = Path(__file__).with_name("bench.yaml")
STATE_BENCH = Path(__file__).with_name("state.yaml")
# Starting is imports, of which a core does one at a time.
STARTED_AT_ONCE = 2
# Where a probe's on side is answered; every other's by the plain on launch.
PLACES = {probe: role for role, probe in EXTRAS.items()}
# Off launches that stand where an on launch belongs, beside the off launch that judges them: the
# same once more, and one with more processes. By method, with their tensor parallel size.
OFF_AS_ON = {"another-off": 1, "tp2-off": 2}
Say = Callable[[str], None]


class LaunchDied(EngineDied):
    """The engine of the launch of `role` died in a pass."""

    def __init__(self, role: Role, message: str, *, log_tail: str = "") -> None:
        self.role = role
        super().__init__(message, log_tail=log_tail)


class Launches:
    """The launches of a bench's file, each with the injection in its process: one off launch that
    serves every on launch, one on launch for each method wanted (or an off launch in its place),
    and those for planned drafts and with a ledger where `probes` need them."""

    def __init__(
        self,
        cache: Path,
        say: Say,
        methods: Collection[str],
        *,
        file: Path = BENCH,
        probes: Collection[str | None] = (),
    ) -> None:
        self._cache, self._say = cache, say
        self._folder = tempfile.TemporaryDirectory(prefix="matrixrun-faultbench-")
        folder = Path(self._folder.name)
        known_text.write(folder)
        self.matrix: Matrix = load(Path(shutil.copy(file, folder)))
        self.plan = planning.build(self.matrix, expand(self.matrix, file=str(file)))
        planned = {
            (_method(cell), cell.axes["tensor_parallel_size"]): Pair(self, cell, pair)
            for cell, pair in zip(self.plan.cells, self.plan.pairs, strict=True)
        }
        self.pairs = {
            method: pair for (method, size), pair in planned.items()
            if size == 1 and method in methods
        }  # fmt: skip
        twins = [
            self._off_as_on(method, planned["draft_model", 1], planned["draft_model", size])
            for method, size in OFF_AS_ON.items()
            if method in methods
        ]
        roles = {Role.ON, Role.A, *(role for probe, role in PLACES.items() if probe in probes)}
        wanted = {
            pair.planned.roles[role]
            for pair in self.pairs.values()
            for role in roles
            if role in pair.planned.roles
        }
        self.switches = {name: Switch(folder, name) for name in sorted(wanted)}
        self.launches = {
            one.id: _with_injection(one, self.switches[one.id])
            for one in [*self.plan.launches, *twins]
            if one.id in wanted
        }
        timeouts = self.matrix.timeouts
        self._settings = LaunchSettings(
            cache=cache, ready_timeout=timeouts.ready, request_timeout=timeouts.request,
            build_timeout=timeouts.build,
        )  # fmt: skip
        self._bodies = {
            name: LaunchBody(launch, self._settings) for name, launch in self.launches.items()
        }
        self.outcomes: dict[str, LaunchOutcome] = {}

    def _off_as_on(self, method: str, pair: Pair, other: Pair) -> Launch:
        """Return an off launch like that of `other`, in the on launch's place of `pair`."""
        off = next(one for one in self.plan.launches if one.id == other.planned.off)
        twin = msgspec.structs.replace(off, id=f"{method}.{off.id}")
        planned = PlannedPair(cell=pair.cell.id, on=twin.id, off=pair.planned.off)
        self.pairs[method] = Pair(self, pair.cell, planned)
        return twin

    def __enter__(self) -> Launches:
        try:
            with ThreadPoolExecutor(STARTED_AT_ONCE) as starting:
                found = {name: starting.submit(body.start) for name, body in self._bodies.items()}
                self._say(f"starting {', '.join(found)}")
                for name, one in found.items():
                    self.outcomes[name] = _served(one.result())
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End every engine."""
        for body in self._bodies.values():
            body.finish()
        self._folder.cleanup()

    def run(self, name: str, pass_: Pass) -> PassAnswer:
        """Send one pass to a launch.

        Raises:
            LaunchDied: an on launch's engine died in it.
            EngineError: the off launch's did.
        """
        answer = self._bodies[name].run(pass_)
        if isinstance(answer, LaunchOutcome):
            role, words = self.launches[name].role, f"{answer.launch}: {answer.message}"
            if role is Role.A:
                raise EngineError(words, log_tail=answer.log_tail)
            raise LaunchDied(role, words, log_tail=answer.log_tail)
        return answer

    def restart(self, name: str) -> None:
        """Start a launch again whose engine has died."""
        self._bodies[name].finish()
        self._bodies[name] = LaunchBody(self.launches[name], self._settings)
        self.outcomes[name] = _served(self._bodies[name].start())

    def ledger(self, name: str) -> bytes:
        """Return what a traced launch has written down so far."""
        return self._bodies[name].ledger()

    def workload(self, prompts: int) -> Workload:
        """Return `prompts` distinct prompts for the target."""
        config = next(one for one in self.launches.values() if one.role is Role.A).config
        environment = engines.prepare(
            config.recipe, cache=self._cache, timeout=self.matrix.timeouts.build, on_line=self._say
        )
        folder = models.build(config.target.path, environment.python, self._cache, self._say)
        spec = self.matrix.workload.model_copy(update={"prompts": prompts})
        tokenizer = workloads.load_tokenizer(str(folder), None)
        made = workloads.build(spec, tokenizer, seed=self.matrix.seed)
        return workloads.with_bad_words(made, tokenizer)


@dataclass(frozen=True)
class Pair:
    """One cell's on and off launch among the bench's.

    Faults of speculation go into the on launch alone; the off launch only ever gets what is a
    property of the engine.
    """

    bench: Launches
    cell: Cell
    planned: PlannedPair

    def launch(self, role: Role) -> Launch:
        """Return the launch of a role."""
        return self.bench.launches[self._name(role)]

    def switch(self, role: Role) -> Switch:
        """Return what says which injection is active in it."""
        return self.bench.switches[self._name(role)]

    @property
    def outcomes(self) -> dict[str, LaunchOutcome]:
        """What became of the launches, by role."""
        return {
            role: self.bench.outcomes[name]
            for role, name in self.planned.roles.items()
            if name in self.bench.outcomes
        }

    def run(self, role: Role, pass_: Pass) -> PassAnswer:
        """Send one pass; raises as `Launches.run` does."""
        return self.bench.run(self._name(role), pass_)

    def ledger(self, role: Role) -> bytes:
        """Return what the launch of a role has written down so far."""
        return self.bench.ledger(self._name(role))

    def restart(self, role: Role) -> None:
        """Start the launch of a role again."""
        self.bench.restart(self._name(role))

    def _name(self, role: Role) -> str:
        return self.planned.roles[role]


def _method(cell: Cell) -> str:
    speculation = cell.axes["speculation"]
    assert isinstance(speculation, Speculation)
    return speculation.method


def _with_injection(launch: Launch, switch: Switch) -> Launch:
    own, given = launch.command.env, switch.environment
    path = [part["PYTHONPATH"] for part in (given, own) if "PYTHONPATH" in part]
    env = {**own, **given, "PYTHONPATH": os.pathsep.join(path)}
    command = msgspec.structs.replace(launch.command, env=env)
    return msgspec.structs.replace(launch, command=command)


def _served(outcome: LaunchOutcome) -> LaunchOutcome:
    if outcome.end is not LaunchEnd.SERVED:
        raise EngineError(f"{outcome.launch}: {outcome.message}", log_tail=outcome.log_tail)
    return outcome
