"""The launches: started once, they serve every specimen."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Collection
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
from matrixrun.matrix import Matrix, expand, load
from matrixrun.plan import PlannedPair
from matrixrun.workloads import Workload

BENCH = Path(__file__).with_name("bench.yaml")
Say = Callable[[str], None]


class Launches:
    """The bench's launches, each with the injection in its process: one off launch that serves
    every on launch, one on launch for each method wanted."""

    def __init__(self, cache: Path, say: Say, methods: Collection[str]) -> None:
        self.matrix: Matrix = load(BENCH)
        self.plan = planning.build(self.matrix, expand(self.matrix, file=str(BENCH)))
        self._cache, self._say = cache, say
        self._folder = tempfile.TemporaryDirectory(prefix="matrixrun-faultbench-")
        self.pairs = {
            method: Pair(self, cell, pair)
            for cell, pair in zip(self.plan.cells, self.plan.pairs, strict=True)
            for method in [_method(cell)]
            if method in methods
        }
        wanted = {
            name for pair in self.pairs.values() for name in (pair.planned.on, pair.planned.off)
        }
        folder = Path(self._folder.name)
        self.switches = {name: Switch(folder, name) for name in sorted(wanted)}
        self.launches = {
            one.id: _with_injection(one, self.switches[one.id])
            for one in self.plan.launches
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

    def __enter__(self) -> Launches:
        try:
            for name, body in self._bodies.items():
                self._say(f"starting {name}")
                self.outcomes[name] = _served(body.start())
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
            EngineDied: an on launch's engine died in it.
            EngineError: the off launch's did.
        """
        answer = self._bodies[name].run(pass_)
        if isinstance(answer, LaunchOutcome):
            kind = EngineDied if self.launches[name].role is Role.ON else EngineError
            raise kind(f"{answer.launch}: {answer.message}", log_tail=answer.log_tail)
        return answer

    def restart(self, name: str) -> None:
        """Start a launch again whose engine has died."""
        self._bodies[name].finish()
        self._bodies[name] = LaunchBody(self.launches[name], self._settings)
        self.outcomes[name] = _served(self._bodies[name].start())

    def workload(self, prompts: int) -> Workload:
        """Return `prompts` distinct prompts for the target."""
        config = next(one for one in self.launches.values() if one.role is Role.A).config
        environment = engines.prepare(
            config.recipe, cache=self._cache, timeout=self.matrix.timeouts.build, on_line=self._say
        )
        folder = models.build(config.target.path, environment.python, self._cache, self._say)
        spec = self.matrix.workload.model_copy(update={"prompts": prompts})
        tokenizer = workloads.load_tokenizer(str(folder), None)
        return workloads.build(spec, tokenizer, seed=self.matrix.seed)


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
        """Return the launch of a role, ON or A."""
        return self.bench.launches[self._name(role)]

    def switch(self, role: Role) -> Switch:
        """Return what says which injection is active in it."""
        return self.bench.switches[self._name(role)]

    @property
    def outcomes(self) -> dict[str, LaunchOutcome]:
        """What became of both launches, by role."""
        return {str(role): self.bench.outcomes[self._name(role)] for role in (Role.ON, Role.A)}

    def run(self, role: Role, pass_: Pass) -> PassAnswer:
        """Send one pass; raises as `Launches.run` does."""
        return self.bench.run(self._name(role), pass_)

    def restart(self) -> None:
        """Start the on launch again."""
        self.bench.restart(self.planned.on)

    def _name(self, role: Role) -> str:
        return self.planned.on if role is Role.ON else self.planned.off


def _method(cell: Cell) -> str:
    speculation = cell.axes["speculation"]
    assert isinstance(speculation, Speculation)
    return speculation.method


def _with_injection(launch: Launch, switch: Switch) -> Launch:
    env = {**launch.command.env, **switch.environment}
    command = msgspec.structs.replace(launch.command, env=env)
    return msgspec.structs.replace(launch, command=command)


def _served(outcome: LaunchOutcome) -> LaunchOutcome:
    if outcome.end is not LaunchEnd.SERVED:
        raise EngineError(f"{outcome.launch}: {outcome.message}", log_tail=outcome.log_tail)
    return outcome
