"""The pair of launches: started once, they serve every specimen."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path
from types import TracebackType

import msgspec

from matrixrun import engines, models, workloads
from matrixrun import plan as planning
from matrixrun.evidence.cells import Cell
from matrixrun.evidence.errors import EngineDied, EngineError
from matrixrun.evidence.launches import Launch, LaunchEnd, LaunchOutcome, Role
from matrixrun.evidence.requests import Pass
from matrixrun.fanout.actor import LaunchBody, LaunchSettings, PassAnswer
from matrixrun.faultbench.control import Switch
from matrixrun.matrix import Matrix, expand, load
from matrixrun.workloads import Workload

BENCH = Path(__file__).with_name("bench.yaml")
Say = Callable[[str], None]


class Pair:
    """One cell's on and off launch, both with the injection in their processes.

    Faults of speculation go into the on launch alone; the off launch only ever gets what is a
    property of the engine.
    """

    def __init__(self, cache: Path, say: Say) -> None:
        self.matrix: Matrix = load(BENCH)
        self.plan = planning.build(self.matrix, expand(self.matrix, file=str(BENCH)))
        self._cache, self._say = cache, say
        self._folder = tempfile.TemporaryDirectory(prefix="matrixrun-faultbench-")
        folder = Path(self._folder.name)
        self.switches = {Role.ON: Switch(folder, "on"), Role.A: Switch(folder, "off")}
        self.launches = {
            one.role: _with_injection(one, self.switches[one.role]) for one in self.plan.launches
        }
        timeouts = self.matrix.timeouts
        self._settings = LaunchSettings(
            cache=cache, ready_timeout=timeouts.ready, request_timeout=timeouts.request,
            build_timeout=timeouts.build,
        )  # fmt: skip
        self._bodies = {
            role: LaunchBody(launch, self._settings) for role, launch in self.launches.items()
        }
        self.outcomes: dict[Role, LaunchOutcome] = {}

    @property
    def cell(self) -> Cell:
        """The one cell of the bench."""
        return self.plan.cells[0]

    def __enter__(self) -> Pair:
        try:
            for role, body in self._bodies.items():
                self._say(f"starting {self.launches[role].id}")
                self.outcomes[role] = _served(body.start())
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
        """End both engines."""
        for body in self._bodies.values():
            body.finish()
        self._folder.cleanup()

    def run(self, role: Role, pass_: Pass) -> PassAnswer:
        """Send one pass.

        Raises:
            EngineDied: the on launch's engine died in it.
            EngineError: the off launch's did.
        """
        answer = self._bodies[role].run(pass_)
        if isinstance(answer, LaunchOutcome):
            kind = EngineDied if role is Role.ON else EngineError
            raise kind(f"{answer.launch}: {answer.message}", log_tail=answer.log_tail)
        return answer

    def restart(self, role: Role) -> None:
        """Start a launch again whose engine has died."""
        self._bodies[role].finish()
        self._bodies[role] = LaunchBody(self.launches[role], self._settings)
        self.outcomes[role] = _served(self._bodies[role].start())

    def workload(self, prompts: int) -> Workload:
        """Return `prompts` distinct prompts for the pair's target."""
        config = self.launches[Role.A].config
        environment = engines.prepare(
            config.recipe, cache=self._cache, timeout=self.matrix.timeouts.build, on_line=self._say
        )
        folder = models.build(config.target.path, environment.python, self._cache, self._say)
        spec = self.matrix.workload.model_copy(update={"prompts": prompts})
        tokenizer = workloads.load_tokenizer(str(folder), None)
        return workloads.build(spec, tokenizer, seed=self.matrix.seed)


def _with_injection(launch: Launch, switch: Switch) -> Launch:
    env = {**launch.command.env, **switch.environment}
    command = msgspec.structs.replace(launch.command, env=env)
    return msgspec.structs.replace(launch, command=command)


def _served(outcome: LaunchOutcome) -> LaunchOutcome:
    if outcome.end is not LaunchEnd.SERVED:
        raise EngineError(f"{outcome.launch}: {outcome.message}", log_tail=outcome.log_tail)
    return outcome
