"""Processes that end with us: started under the guard, found again when even that is gone."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import IO, Any

import psutil

from matrixrun.evidence.errors import EngineError, EngineKilled, UserError

GUARD = Path(__file__).with_name("guard.py")
GRACE_SECONDS = 8.0  # vLLM ends its workers in about a second; a GPU engine may need a few
STOP_MARGIN_SECONDS = 25.0  # beyond the grace: the keeper's own two rounds of KILL
SILENT_SECONDS = 10.0  # a keeper that has not even named itself by then is looked for
KEEPER_GONE = "keeper gone"
KEEPER_KILLED = (KEEPER_GONE, "terminated")  # what a guard sees of it, by whichever comes first
MARKER = "MATRIXRUN_OWNED_BY"


class Held:
    """A command that runs under the guard. It ends, with all it started, when `stop` is called or
    when this process ends in any way, SIGKILL included."""

    def __init__(
        self,
        argv: list[str],
        *,
        env: dict[str, str],
        output: IO[bytes] | int,
        status_path: Path,
        cwd: Path | None = None,
        grace: float = GRACE_SECONDS,
    ) -> None:
        """Start `argv`; stdout and stderr go to `output`, the guard's notes to `status_path`.

        Raises UserError off Linux, EngineError when the guard itself cannot start, EngineKilled
        when it was killed before it could.
        """
        require_linux()
        self.status_path = status_path
        self._grace = grace
        status_path.unlink(missing_ok=True)
        self.marker = marker()
        self._began = time.monotonic()
        command = (sys.executable, "-I", "-S", str(GUARD))
        reader, self._writer = os.pipe()
        try:
            guard = subprocess.run(
                [*command, str(os.getpid()), str(reader), str(status_path), str(grace), *argv],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env={**env, MARKER: self.marker},
                cwd=cwd,
                pass_fds=(reader,),
                check=False,
            )
        finally:
            os.close(reader)
        if guard.returncode != 0:
            self.stop()
            kind = EngineKilled if guard.returncode == -signal.SIGKILL else EngineError
            raise kind(f"the guard process could not start (exit {guard.returncode})")

    def status(self) -> dict[str, Any]:
        """What the guard has written so far: keeper, guard, command, exit, ended."""
        found: dict[str, Any] = {}
        with contextlib.suppress(OSError):
            for line in self.status_path.read_text(encoding="utf-8").splitlines():
                with contextlib.suppress(json.JSONDecodeError):  # a line being written
                    found.update(json.loads(line))
        return found

    def exit_code(self) -> int | None:
        """None while the command runs; its exit code (negative: a signal) once it has ended.

        A guard that was itself killed cannot tell: -9 then.
        """
        status = self._settled()
        if "keeper" not in status:
            silent = time.monotonic() - self._began > SILENT_SECONDS and not marked(self.marker)
            return -signal.SIGKILL if silent else None
        if "exit" not in status and "ended" not in status:
            return None
        code = status.get("exit")
        return -signal.SIGKILL if code is None else int(code)

    def unguarded(self) -> bool:
        """Whether guard or keeper was killed: the other one has ended the command then, with
        whatever exit code it has for that."""
        status = self._settled()
        killed = status.get("ended") in ("guard lost", KEEPER_GONE)
        return killed or status.get("since") in KEEPER_KILLED

    def _settled(self) -> dict[str, Any]:
        """The status; where the keeper is gone, `ended` says so unless it wrote how itself. What
        it wrote last is read after it was found gone: it may end between two looks."""
        status = self.status()
        keeper = status.get("keeper")
        if keeper is None or "ended" in status or psutil.pid_exists(keeper):
            return status
        return {"ended": KEEPER_GONE, **self.status()}

    def wait(self, timeout: float) -> int | None:
        """The exit code, or None when `timeout` seconds pass first."""
        until = time.monotonic() + timeout
        while (code := self.exit_code()) is None and time.monotonic() < until:
            time.sleep(0.05)
        return code

    def stop(self) -> None:
        """End the command and all it started; a second call does nothing."""
        if self._writer < 0:
            return
        os.close(self._writer)
        self._writer = -1
        until = time.monotonic() + self._grace + STOP_MARGIN_SECONDS
        while marked(self.marker) and time.monotonic() < until:
            time.sleep(0.05)
        kill(marked(self.marker))


def require_linux() -> None:
    """Raise UserError where the guard cannot keep its promise."""
    if not sys.platform.startswith("linux"):
        raise UserError(
            f"engines run under a guard that needs Linux, this is {sys.platform}",
            remedy="run on Linux (a container will do); plan, judge and report work everywhere",
        )


def marker() -> str:
    """A value for MARKER that names this process and this call: pid namespace, pid, start, id."""
    return f"{_namespace()}:{os.getpid()}:{_start_ticks(os.getpid())}:{uuid.uuid4().hex}"


def marked(value: str) -> list[psutil.Process]:
    """The living processes that carry exactly this marker."""
    return [process for process, found in _carriers() if found == value]


def orphans() -> list[psutil.Process]:
    """Processes started under a guard whose owner is gone: the guard was killed as well."""
    return [process for process, found in _carriers() if not _owner_lives(found)]


def end_orphans() -> int:
    """Kill what `orphans` finds; how many there were."""
    found = orphans()
    kill(found)
    return len(found)


def kill(processes: list[psutil.Process]) -> None:
    """SIGKILL, and wait a moment; what has ended meanwhile is no error."""
    for process in processes:
        with contextlib.suppress(psutil.Error):
            process.kill()
    psutil.wait_procs(processes, timeout=5)


def _carriers() -> list[tuple[psutil.Process, str]]:
    found = []
    ours = f"{_namespace()}:"
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error, OSError):
            if process.status() == psutil.STATUS_ZOMBIE:
                continue
            value = process.environ().get(MARKER, "")
            if value.startswith(ours):
                found.append((process, value))
    return found


def _owner_lives(value: str) -> bool:
    _, pid, start, _ = value.split(":")
    return _start_ticks(int(pid)) == start


def _start_ticks(pid: int) -> str | None:
    """When a process began, in the kernel's own unit: with the pid it names a process for good."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rsplit(")", 1)[1].split()[19]
    except OSError:
        return None


def _namespace() -> str:
    """Process ids mean something within one pid namespace only."""
    return str(Path("/proc/self/ns/pid").readlink()).strip("pid:[]")
