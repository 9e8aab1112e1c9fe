"""The launch actor: one engine's process group and its client, on the node that holds the gang.

It is handed passes as data and returns observations; the server's key never leaves the node.
The actor is never restarted by Ray: a repeated call would count requests twice.
"""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec
import ray

from matrixrun import engines, models
from matrixrun.evidence.errors import (
    BuildError,
    EngineDied,
    EngineHung,
    EngineKilled,
    EngineRefused,
    MatrixrunError,
)
from matrixrun.evidence.launches import (
    Checkpoint,
    Command,
    Endpoint,
    Launch,
    LaunchEnd,
    LaunchOutcome,
)
from matrixrun.evidence.requests import Observation, Pass, Task
from matrixrun.fanout import evaluation, hardware
from matrixrun.fanout.passes import WARM_UP, PassAnswer, masked, send, shown, warm
from matrixrun.record import InUse

S = TypeVar("S", bound=engines.Server)

COMPILED = "compiled"  # in the cache: what engines compiled, by environment
LOG_BYTES = 4_000_000
TAIL_LINES = 40
LAST_LINES, LAST_CHARACTERS = 3, 400  # of a log, in a message


@dataclass(frozen=True)
class LaunchSettings:
    """Where a node keeps its caches and how long (seconds) each stage may take."""

    cache: Path
    ready_timeout: float
    request_timeout: float
    build_timeout: float
    accuracy_timeout: float = 3600.0


class Finished(NamedTuple):
    """What is left of a launch: its outcome, the end of its log, and its ledger where it kept
    one."""

    outcome: LaunchOutcome
    log: bytes
    ledger: bytes = b""


@dataclass(frozen=True)
class Rendezvous:
    """The address and port of the head's node at which process groups find each other."""

    address: str
    port: int

    def places(self, rank: int) -> dict[str, str]:
        """What fills the placeholders of a launch over nodes, on the node of this rank."""
        return {
            "$HEAD": self.address,
            "$HEAD_PORT": str(self.port),
            "$NODE_RANK": str(rank),
            "$NODE_IP": ray.util.get_node_ip_address(),  # type: ignore[no-untyped-call]
        }


class LaunchBody:
    """The actor's body, usable without Ray: `start`, `run` any number of passes, `finish`."""

    def __init__(self, launch: Launch, settings: LaunchSettings) -> None:
        self._launch = launch
        self._settings = settings
        self._engine = engines.get(launch.config.kind)
        self._folder = Path(tempfile.mkdtemp(prefix="matrixrun-launch-"))
        self._log = self._folder / "engine.log"
        self._state = ("waiting", "")
        self._server: engines.Server | engines.Attached | None = None
        self._weights: models.Weights | None = None
        self._in_use = InUse(settings.cache)
        self._over = False
        self._outcome = LaunchOutcome(
            launch=launch.id, fingerprint=launch.fingerprint, end=LaunchEnd.LOST
        )

    def state(self) -> tuple[str, str]:
        """What this launch is doing now, in a word or two, and its latest line about it."""
        return self._state

    def rendezvous(self) -> Rendezvous:
        """Where the process groups of a launch over nodes are to find the head's, on this node."""
        address = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
        return Rendezvous(address, engines.free_port(address))

    def start(self, rendezvous: Rendezvous | None = None) -> LaunchOutcome:
        """Build what is missing, start the engine and wait until it answers."""
        try:
            self._start(rendezvous)
        except BuildError as error:
            self._fail(LaunchEnd.UNBUILT, error, error.log_tail)
        except EngineRefused as error:
            self._fail(LaunchEnd.REFUSED, error, error.log_tail)
        except EngineHung as error:
            self._fail(LaunchEnd.HUNG, error, error.log_tail)
        except EngineDied as error:
            self._fail(self._death(error), error, error.log_tail)
        except MatrixrunError as error:
            self._fail(LaunchEnd.UNBUILT, error, "")
        return self._outcome

    def _death(self, error: EngineDied) -> LaunchEnd:
        """An engine that was killed from outside says nothing about itself: it was lost, as its
        node might have been."""
        server = self._server
        killed = isinstance(server, engines.Server) and server.killed()
        killed |= isinstance(error, EngineKilled)
        return LaunchEnd.LOST if killed else LaunchEnd.DIED

    def _attach(self, endpoint: Endpoint) -> None:
        """Nothing is built or started, and what this node is says nothing about the endpoint."""
        self._state = (f"waiting for {endpoint.url}", "")
        self._server = engines.Attached(
            endpoint, engine=self._engine, ready_timeout=self._settings.ready_timeout
        )
        told = self._server.start(WARM_UP)
        self._outcome = msgspec.structs.replace(
            self._outcome,
            end=LaunchEnd.SERVED,
            argv=self._server.argv,
            facts=told.facts,
            ready_seconds=told.seconds,
        )
        self._state = ("ready", "")

    def _start(self, rendezvous: Rendezvous | None) -> None:
        if self._launch.config.endpoint is not None:
            self._attach(self._launch.config.endpoint)
            return
        self._server = server = self._prepare(
            engines.Server, self._launch.command, rendezvous, rank=0
        )
        if self._over:  # abandoned while it was built
            return
        ready = server.start()
        facts = asyncio.run(warm(self._client())) | server.logged_facts()
        if self._over:  # abandoned in this very moment
            return
        self._outcome = msgspec.structs.replace(
            self._outcome,
            end=LaunchEnd.SERVED,
            argv=engines.mask_argv(server.argv),
            env=server.shown_env,
            facts=facts,
            ready_seconds=ready,
        )
        self._state = ("ready", "")

    def _prepare(
        self, kind: type[S], command: Command, rendezvous: Rendezvous | None, *, rank: int
    ) -> S:
        """Build what this node lacks; returns the process group that is to be started."""
        config = self._launch.config
        self._state = ("looking for its environment", "")
        environment = engines.prepare(
            config.recipe,
            cache=self._settings.cache,
            timeout=self._settings.build_timeout,
            on_line=self._report("building its environment"),
        )
        compiled = self._settings.cache / COMPILED / environment.key
        self._in_use.claim(environment.path, environment.binary, compiled)
        target = self._local(config.target, environment.python)
        draft = self._local(config.draft, environment.python) if config.draft else None
        self._outcome = msgspec.structs.replace(self._outcome, hardware=hardware.describe())
        paths = {"target": target} | ({} if draft is None else {"draft": draft})
        # The head's hash is the launch's: a further node only reads ahead.
        self._weights = models.Weights(paths, self._settings.cache, identify=rank == 0)
        self._state = ("starting", "")
        return kind(
            command,
            environment,
            engine=self._engine,
            target=target,
            draft=draft,
            log_path=self._log,
            ready_timeout=self._settings.ready_timeout,
            mounts=(self._settings.cache,),
            accelerators=self._launch.gang.accelerators,
            places=None if rendezvous is None else rendezvous.places(rank),
            compiled=compiled,
        )

    def _local(self, checkpoint: Checkpoint, python: Path) -> str:
        """A `builtin:` checkpoint is built here; any other path is the engine's to resolve."""
        if not checkpoint.path.startswith("builtin:"):
            return checkpoint.path
        doing = f"building {checkpoint.path}"
        self._state = (doing, "")
        folder = models.build(checkpoint.path, python, self._settings.cache, self._report(doing))
        self._in_use.claim(folder)
        return str(folder)

    def _report(self, doing: str) -> Callable[[str], None]:
        def on_line(line: str) -> None:
            self._state = (doing, engines.mask_text(line.strip(), self._secrets(), self._argv()))

        return on_line

    def _client(self) -> engines.Client:
        assert self._server is not None
        return self._server.client(request_timeout=self._settings.request_timeout)

    def abandon(self, end: LaunchEnd, why: str, tail: str) -> LaunchOutcome:
        """End the engine, since a process group of it on another node has ended."""
        self._fail(end, MatrixrunError(why), tail)
        return self._outcome

    def _fail(self, end: LaunchEnd, error: MatrixrunError, tail: str) -> None:
        if self._over:  # what comes after the first failure is our own ending of the engine
            return
        self._over = True
        endpoint, shown_env, message = self._launch.config.endpoint, {}, error.message
        if endpoint is not None:
            end, message = LaunchEnd.AWAY, _naming(endpoint.url, message)
        elif isinstance(self._server, engines.Server):
            tail = tail or self._server.log_tail(TAIL_LINES)
            shown_env = self._server.shown_env
            self._server.stop()
            cause = self._server.root_cause() if end is LaunchEnd.DIED else None
            message += f": {cause}" if cause and cause not in message else ""
        self._state = (str(end), "")
        secrets, argv = self._secrets(), self._argv()
        self._outcome = msgspec.structs.replace(
            self._outcome,
            end=end,
            message=engines.mask_text(message, secrets, argv),
            log_tail=engines.mask_text(tail, secrets, argv),
            argv=engines.mask_argv(argv),
            env=shown_env,
        )

    def _secrets(self) -> dict[str, str]:
        """The environment whose secrets must not be written down, the server's key among them."""
        env = engines.engine_environment(self._launch.command.env, None)
        return env if self._server is None else env | self._server.secrets

    def _argv(self) -> tuple[str, ...]:
        """The command line as it was started, or as it was planned."""
        started = self._server.argv if self._server else ()
        return tuple(started) or self._launch.command.argv

    def run(self, pass_: Pass) -> PassAnswer | LaunchOutcome:
        """Send one pass; returns its answer, or the launch's outcome when the engine died in it."""
        self._state = ("serving", pass_.id)
        assert self._server is not None
        try:
            answer = asyncio.run(send(self._client(), pass_, self._evaluate))
            if isinstance(self._server, engines.Server):
                self._server.check()
                return answer
            return masked(answer, self._server.secrets)
        except EngineDied as error:
            self._fail(self._death(error), error, error.log_tail)
        except EngineHung as error:
            self._fail(LaunchEnd.HUNG, error, error.log_tail)
        return self._outcome

    def _evaluate(self, pass_: Pass, task: Task) -> list[Observation]:
        """Put a task to the server, and mask what is told of a failure."""
        server, settings = self._server, self._settings
        assert server is not None
        seen = evaluation.put(
            pass_,
            task,
            lambda: evaluation.served_by(server, self._launch.config.endpoint),
            cache=settings.cache,
            build_timeout=settings.build_timeout,
            timeout=settings.accuracy_timeout,
            request_timeout=settings.request_timeout,
            on_line=self._report("building lm-eval's environment"),
            claim=self._in_use.claim,
        )
        self._state = ("serving", pass_.id)
        return [shown(one, self._secrets(), self._argv()) for one in seen]

    def ledger(self) -> bytes:
        """What a traced engine has written down so far; nothing from another."""
        if not isinstance(self._server, engines.Server) or not self._server.ledger_path.exists():
            return b""
        return self._server.ledger_path.read_bytes()

    def finish(self) -> Finished:
        """Stop the engine; returns the outcome, the end of its log (at most 4 MB), the ledger."""
        if isinstance(self._server, engines.Server):
            self._server.stop()
        ledger = self.ledger()
        log = self._log.read_bytes() if self._log.exists() else b""
        log = engines.mask_log(log, self._secrets(), self._argv())[-LOG_BYTES:]
        shutil.rmtree(self._folder, ignore_errors=True)
        self._in_use.release()
        self._state = ("stopped", "")
        return Finished(self._outcome, log, ledger)

    def identities(self) -> dict[str, str]:
        """The sha256 of each local checkpoint that was served, by role.

        They are hashed beside the passes, and the rest of that is waited for: call it last. Of a
        launch that never served, nobody asks what it would have: its gang is not held for that.
        """
        if self._weights is None or self._outcome.ready_seconds is None:
            return {}
        self._state = ("hashing what it served", "")
        return self._weights.identities()


class FollowerBody(LaunchBody):
    """The body of the actor on a further node of a launch: `start`, `hold`, `finish`."""

    def follow(self, rendezvous: Rendezvous, rank: int) -> LaunchOutcome:
        """Build what is missing and start the process group; its outcome says if it could not."""
        command = self._launch.follower
        assert command is not None
        try:
            self._server = self._prepare(engines.Follower, command, rendezvous, rank=rank)
            self._server.start()
        except EngineKilled:
            raise  # the launch is lost, as if the node were
        except MatrixrunError as error:
            self._fail(LaunchEnd.UNBUILT, error, "")
        return self._outcome

    def hold(self) -> tuple[LaunchEnd, str, str]:
        """Wait until the process group has ended; returns how, why in a line as its log says it
        (empty where that says nothing), and the end of its log.

        An engine may kill its own processes when it fails: only its log tells that from a killing
        from outside.
        """
        assert isinstance(self._server, engines.Follower)
        tail = self._server.wait()
        end = LaunchEnd.LOST if self._server.killed() else LaunchEnd.DIED
        return end, self._server.root_cause() or _last_words(tail), tail


def _last_words(tail: str) -> str:
    """The last lines of a log as one."""
    lines = [line.strip() for line in tail.splitlines() if line.strip()]
    return " | ".join(lines[-LAST_LINES:])[-LAST_CHARACTERS:]


def _naming(url: str, message: str) -> str:
    """A message that says which endpoint it is about."""
    return message if url in message else f"{url}: {message}"


LaunchActor = ray.remote(max_restarts=0, max_task_retries=0)(LaunchBody)
FollowerActor = ray.remote(max_restarts=0, max_task_retries=0)(FollowerBody)

__all__ = [
    "Finished",
    "FollowerActor",
    "FollowerBody",
    "LaunchActor",
    "LaunchBody",
    "LaunchSettings",
    "PassAnswer",
    "Rendezvous",
]
