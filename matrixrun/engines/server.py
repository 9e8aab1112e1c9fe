"""One engine server: started under the guard, waited for, always ended whole."""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import signal
import socket
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from matrixrun.engines import containers, tracebacks
from matrixrun.engines.environments import USED, Environment
from matrixrun.engines.processes import GRACE_SECONDS, Held, end_orphans
from matrixrun.engines.protocol import Client, Engine
from matrixrun.engines.surroundings import engine_environment, mask, mask_text, telling
from matrixrun.evidence.errors import EngineDied, EngineHung, EngineRefused
from matrixrun.evidence.launches import Command

POLL_SECONDS = 0.25
# A client may notice before the guard, which ends the rest of the tree first, has written it down.
KILLED_SECONDS = GRACE_SECONDS + 3.0
HEALTH_TIMEOUT = 5.0
TAIL_LINES = 60
TAIL_BYTES = 256 * 1024
PORT_ATTEMPTS = 3
_PORT_TAKEN = ("address already in use", "errno 98")


class Server:
    """A launch's server process, with everything it starts.

    It ends with this process, however that ends. Use it as a context manager, or call `stop`.
    """

    def __init__(
        self,
        command: Command,
        environment: Environment,
        *,
        engine: Engine,
        target: str,
        draft: str | None = None,
        host: str = "127.0.0.1",
        log_path: Path,
        api_key: str | None = None,
        ready_timeout: float = 900.0,
        mounts: tuple[Path, ...] = (),
        accelerators: int = 0,
        places: Mapping[str, str] | None = None,
        compiled: Path | None = None,
    ) -> None:
        """`target` and `draft` fill `$TARGET` and `$DRAFT`: a folder or a hub id. `api_key` is
        made up when None. `mounts` and `accelerators` matter to containers only. `places` fills
        further placeholders: those of a launch over nodes. `compiled` is where the engine keeps
        what it compiles, for its next start; None leaves that to it."""
        self.engine = engine
        self.host = host
        self.log_path = log_path
        self.ready_seconds: float | None = None
        self.port = 0
        self.argv: tuple[str, ...] = ()
        self._command, self._environment = command, environment
        self._target, self._draft = target, draft
        self._key = api_key or secrets.token_urlsafe(24)
        self._ready_timeout = ready_timeout
        self._mounts, self._accelerators = mounts, accelerators
        self._places = dict(places or {})
        self._compiled = compiled
        self._env: dict[str, str] = {}
        self._held: Held | None = None
        self._stopped = False

    @property
    def base_url(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"http://{host}:{self.port}"

    @property
    def key(self) -> str:
        """The secret that the server asks for; it stays in this process."""
        return self._key

    @property
    def secrets(self) -> dict[str, str]:
        """What must not be written down, under names that say so."""
        return {"SERVER_KEY": self._key}

    @property
    def shown_env(self) -> dict[str, str]:
        """What the engine and its libraries read of the environment, secrets masked."""
        given = {name: self._env[name] for name in self._command.env if name in self._env}
        return mask(telling(self._env) | given | _only(self._env, "PYTHONPATH"))

    @property
    def ledger_path(self) -> Path:
        """Where a traced engine writes its ledger: beside its log."""
        return self.log_path.with_name("ledger.jsonl")

    @property
    def alive(self) -> bool:
        """Whether the engine's process runs (it may not be healthy)."""
        return self._held is not None and self._held.exit_code() is None

    def start(self) -> float:
        """Start, and return the seconds until the engine was healthy.

        Raises EngineRefused with the engine's own words, EngineDied or EngineHung with the end of
        its log; nothing is left running then.
        """
        end_orphans()
        try:
            for attempt in range(1, PORT_ATTEMPTS + 1):
                self._spawn()
                if self._until_healthy(last=attempt == PORT_ATTEMPTS):
                    break
                self._end()
        except BaseException:
            self.stop()
            raise
        assert self.ready_seconds is not None
        return self.ready_seconds

    def client(self, *, request_timeout: float) -> Client:
        """A client for this server."""
        return self.engine.client(self.base_url, self._key, request_timeout=request_timeout)

    def check(self) -> None:
        """Raise EngineDied with the end of the log unless the engine's process still runs."""
        if not self.alive:
            raise self._death("while serving")

    def killed(self) -> bool:
        """Whether the engine was ended from outside, before we stop it: by the kernel for want of
        memory, by a person, by a node that is shutting down, or with its guard; not by itself."""
        held = self._held
        if held is None or self._killed_itself():
            return False
        code = held.wait(KILLED_SECONDS)
        return code in (-signal.SIGKILL, -signal.SIGTERM) or held.unguarded()

    def stop(self) -> None:
        """End the engine and everything it started, also one that another thread is just starting;
        a second call does nothing."""
        self._stopped = True
        self._end()

    def log_tail(self, lines: int = TAIL_LINES) -> str:
        """The last lines of the engine's log, secrets masked; empty before the start."""
        try:
            with self.log_path.open("rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - TAIL_BYTES))
                text = file.read().decode(errors="replace")
        except OSError:
            return ""
        return mask_text("\n".join(text.splitlines()[-lines:]), self._env)

    def logged_facts(self) -> dict[str, Any]:
        """What the engine's log alone tells of it, see Engine.logged_facts."""
        return self.engine.logged_facts(self._whole_log())

    def root_cause(self) -> str | None:
        """The exception that ended the engine, as its log tells it; None where it tells none."""
        cause = tracebacks.root_cause(self._whole_log())
        return None if cause is None else mask_text(cause, self._env)

    def __enter__(self) -> Server:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _spawn(self) -> None:
        self.port = free_port(self.host)
        fill = self._fill
        given = self._caches() | {n: fill(value) for n, value in self._command.env.items()}
        self._env = engine_environment(given, self._environment.overlay)
        argv = [fill(part) for part in self._command.argv]
        self.log_path.parent.mkdir(parents=True, exist_ok=True)
        if self._environment.image is not None:
            # A container has another home: it finds the hub's cache by this name.
            self._env.setdefault("HF_HOME", str(Path.home() / ".cache" / "huggingface"))
            argv = containers.wrap(self._container(given), argv)
        self.argv = tuple(argv)
        status_path = self.log_path.with_name(self.log_path.name + ".guard")
        with self.log_path.open("wb") as log:
            self._held = Held(argv, env=self._env, output=log, status_path=status_path)
        if self._stopped:
            self._end()
        self._started = time.monotonic()

    def _caches(self) -> dict[str, str]:
        """Where to keep what is compiled; what the node's own environment says goes first."""
        if self._compiled is None:
            return {}
        try:
            self._compiled.mkdir(parents=True, exist_ok=True)
            (self._compiled / USED).touch()
        except OSError:  # a cache that may only be read: the engine keeps its own
            return {}
        return {
            variable: str(self._compiled / name)
            for variable, name in self.engine.cache_variables.items()
            if variable not in os.environ
        }

    def _fill(self, text: str) -> str:
        values = {
            "$PYTHON": str(self._environment.python),
            "$BINARY": self._environment.binary or "",
            "$HOST": self.host,
            "$PORT": str(self.port),
            "$TARGET": self._target,
            "$DRAFT": self._draft or "",
            "$KEY": self._key,
            "$LEDGER": str(self.ledger_path),
            **self._places,
        }
        # The longest first: $HEAD begins $HEAD_PORT.
        for name, value in sorted(values.items(), key=lambda item: -len(item[0])):
            # Inside a JSON argument a path is a JSON string.
            text = text.replace(name, json.dumps(value)[1:-1] if text.startswith("{") else value)
        return text

    def _container(self, given: dict[str, str]) -> containers.Container:
        passed = {*given, *telling(self._env), *_only(self._env, "PYTHONPATH")}
        overlay = self._environment.overlay
        modules = given.get("PYTHONPATH", "").split(os.pathsep)
        named = [self._target, self._draft or "", self._env["HF_HOME"], *modules]
        if any("$LEDGER" in value for value in self._command.env.values()):
            named.append(str(self.ledger_path.parent))
        local = [Path(p) for p in named if Path(p).is_absolute() and Path(p).exists()]
        assert self._environment.image is not None
        return containers.Container(
            runtime=containers.runtime(),
            image=self._environment.image,
            name=f"matrixrun-{secrets.token_hex(6)}",
            env=tuple(passed),
            mounts=(*self._mounts, *local, *((overlay,) if overlay else ())),
            accelerators=self._accelerators > 0,
        )

    def _until_healthy(self, *, last: bool) -> bool:
        """Wait for health; False when the port was taken and another should be tried."""
        until = self._started + self._ready_timeout
        while time.monotonic() < until:
            if not self.alive:
                tail = self.log_tail().lower()
                if not last and any(words in tail for words in _PORT_TAKEN):
                    return False
                raise self._death("before it was healthy")
            if self._answers() and self.alive:
                self.ready_seconds = time.monotonic() - self._started
                return True
            time.sleep(POLL_SECONDS)
        raise EngineHung(
            f"the engine was not healthy within {self._ready_timeout:g} s",
            log_tail=self.log_tail(),
            remedy="raise timeouts.ready, or read the engine's log",
        )

    def _answers(self) -> bool:
        import httpx

        url = self.base_url + self.engine.health_path
        headers = {"Authorization": f"Bearer {self._key}"}
        with contextlib.suppress(httpx.HTTPError):
            answer = httpx.get(url, headers=headers, timeout=HEALTH_TIMEOUT, trust_env=False)
            return answer.status_code == httpx.codes.OK
        return False

    def _death(self, when: str) -> EngineDied | EngineRefused:
        code = self._held.exit_code() if self._held is not None else None
        tail = self.log_tail()
        if self.ready_seconds is None:
            words = self.engine.recognise_refusal(self._whole_log())
            if words is not None:
                return EngineRefused(mask_text(words, self._env), log_tail=tail)
        return EngineDied(f"the engine ended {when} (exit {code})", log_tail=tail)

    def _whole_log(self) -> str:
        with contextlib.suppress(OSError):
            return self.log_path.read_text(errors="replace")
        return ""

    def _killed_itself(self) -> bool:
        """Whether the log tells of an exception and of the end that the engine makes then."""
        words, log = self.engine.kills_itself, self._whole_log()
        return words is not None and words in log and tracebacks.root_cause(log) is not None

    def _end(self) -> None:
        if self._held is not None:
            self._held.stop()


def free_port(host: str) -> int:
    """A TCP port that nobody listens on at this moment."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def _only(env: dict[str, str], name: str) -> dict[str, str]:
    return {name: env[name]} if name in env else {}
