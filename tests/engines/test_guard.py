"""What runs under the guard ends with its owner, whatever ends the owner."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import psutil
import pytest

from matrixrun.engines import processes
from matrixrun.engines.processes import MARKER, Held

# A stand-in for an engine: it starts a child in the same session, a grandchild that calls setsid,
# and a daemon that forked twice; each writes its pid and ignores TERM.
ENGINE = """
import os, pathlib, signal, sys, time
folder = pathlib.Path(sys.argv[1])

def stay(name):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    (folder / name).write_text(str(os.getpid()))
    time.sleep(600)

if os.fork() == 0:
    if os.fork() == 0:
        os.setsid()
        stay("grandchild")
    stay("child")
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        stay("daemon")
    os._exit(0)
stay("engine")
"""
NAMES = ("engine", "child", "grandchild", "daemon")

OWNER = """
import pathlib, sys, time
from matrixrun.engines.processes import Held
script, folder = sys.argv[1:]
with open(folder + "/log", "wb") as log:
    held = Held([sys.executable, script, folder], env={}, output=log,
                status_path=pathlib.Path(folder, "status"), grace=0.3)
time.sleep(600)
"""


def _wait(condition, seconds: float = 20.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "nothing happened in time"
        time.sleep(0.02)


def _running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


class Tree:
    """An owner process with an engine stand-in under its guard."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        script = folder / "engine.py"
        script.write_text(ENGINE)
        self.owner = subprocess.Popen(
            [sys.executable, "-c", OWNER, str(script), str(folder)],
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        )
        _wait(lambda: all(self._text(name) for name in NAMES))
        _wait(lambda: "command" in self.status())
        self.pids = {name: int(self._text(name)) for name in NAMES}

    def _text(self, name: str) -> str:
        path = self.folder / name
        return path.read_text() if path.exists() else ""

    def status(self) -> dict[str, int]:
        import json

        lines = self._text("status").splitlines()
        return {k: v for line in lines for k, v in json.loads(line).items()}

    def left(self) -> list[str]:
        return [name for name, pid in self.pids.items() if _running(pid)]

    def end(self) -> None:
        self.owner.kill()
        self.owner.wait()
        for pid in (*self.pids.values(), self.status()["keeper"], self.status()["guard"]):
            if _running(pid):
                os.kill(pid, signal.SIGKILL)


@pytest.fixture
def tree(tmp_path: Path):
    tree = Tree(tmp_path)
    yield tree
    tree.end()


def test_the_whole_tree_ends_when_the_owner_is_killed(tree: Tree) -> None:
    assert tree.left() == list(NAMES)
    tree.owner.kill()
    tree.owner.wait()
    _wait(lambda: not tree.left())
    _wait(lambda: tree.status().get("ended") == "owner gone")


@pytest.mark.parametrize("victim", ["keeper", "guard", "command"])
def test_the_whole_tree_ends_when_a_process_in_the_middle_is_killed(
    tree: Tree, victim: str
) -> None:
    os.kill(tree.status()[victim], signal.SIGKILL)
    _wait(lambda: not tree.left())


def test_the_guard_ends_with_its_tree(tree: Tree) -> None:
    status = tree.status()
    tree.owner.kill()
    tree.owner.wait()
    _wait(lambda: not _running(status["keeper"]) and not _running(status["guard"]))


def test_orphans_are_found_when_guard_and_keeper_are_killed_at_once(tree: Tree) -> None:
    status = tree.status()
    os.kill(tree.owner.pid, signal.SIGSTOP)  # no reaction from anyone between the kills
    for name in ("keeper", "guard"):
        os.kill(status[name], signal.SIGSTOP)
    for name in ("keeper", "guard"):
        os.kill(status[name], signal.SIGKILL)
    _wait(lambda: not _running(tree.pids["engine"]))  # the kernel sees to the engine itself
    daemon = tree.pids["daemon"]
    assert _running(daemon)
    assert daemon not in [process.pid for process in processes.orphans()]  # its owner still lives
    tree.owner.kill()
    tree.owner.wait()
    assert {tree.pids[n] for n in ("child", "grandchild", "daemon")} <= {
        process.pid for process in processes.orphans()
    }
    assert processes.end_orphans() >= 3
    assert not tree.left()


def _held(tmp_path: Path, code: str, **options) -> Held:
    with (tmp_path / "log").open("wb") as log:
        return Held(
            [sys.executable, "-c", textwrap.dedent(code)],
            env=dict(os.environ),
            output=log,
            status_path=tmp_path / "status",
            **options,
        )


@pytest.mark.parametrize("code", [0, 3])
def test_the_exit_code_is_the_commands(tmp_path: Path, code: int) -> None:
    held = _held(tmp_path, f"raise SystemExit({code})")
    assert held.wait(10) == code
    held.stop()


def test_a_signal_is_a_negative_exit_code(tmp_path: Path) -> None:
    held = _held(tmp_path, "import os; os.kill(os.getpid(), 11)")
    assert held.wait(10) == -11
    held.stop()


def test_a_command_that_does_not_exist_is_told(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        held = Held(["/nowhere/engine"], env={}, output=log, status_path=tmp_path / "status")
    assert held.wait(10) == 127
    held.stop()
    assert "/nowhere/engine" in (tmp_path / "log").read_text()


def test_stopping_twice_is_stopping_once(tmp_path: Path) -> None:
    held = _held(tmp_path, "import time; time.sleep(600)", grace=0.3)
    _wait(lambda: "command" in held.status())
    pid = held.status()["command"]
    held.stop()
    assert not _running(pid)
    held.stop()
    assert held.exit_code() is not None


def test_a_command_gets_time_to_end_by_itself(tmp_path: Path) -> None:
    held = _held(
        tmp_path,
        """
        import signal, sys, time
        signal.signal(signal.SIGTERM, lambda *_: (print("goodbye", flush=True), sys.exit(0)))
        print("ready", flush=True)
        time.sleep(600)
        """,
        grace=5.0,
    )
    _wait(lambda: "ready" in (tmp_path / "log").read_text())
    held.stop()
    assert "goodbye" in (tmp_path / "log").read_text()


def test_what_outlives_the_command_is_ended_with_it(tmp_path: Path) -> None:
    held = _held(
        tmp_path,
        """
        import os, time
        if os.fork() == 0:
            os.setsid()
            print(os.getpid(), flush=True)
            time.sleep(600)
        time.sleep(0.5)
        """,
        grace=0.3,
    )
    assert held.wait(10) == 0
    left = int((tmp_path / "log").read_text())
    _wait(lambda: not _running(left))
    held.stop()


def test_another_users_of_the_marker_are_left_alone(tmp_path: Path) -> None:
    """A marker of another pid namespace says nothing about a process here."""
    other = subprocess.Popen(["sleep", "60"], env={MARKER: "1:999999:1:elsewhere"})
    try:
        assert other.pid not in [process.pid for process in processes.orphans()]
    finally:
        other.kill()
        other.wait()


def test_a_guard_that_cannot_write_its_notes_still_ends_what_it_holds(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "SILENT_SECONDS", 0.5)
    with (tmp_path / "log").open("wb") as log:
        held = Held(
            [sys.executable, "-c", "import time; time.sleep(1)"],
            env={},
            output=log,
            status_path=tmp_path / "absent" / "status",
        )
    assert held.exit_code() is None
    assert held.wait(20) == -signal.SIGKILL
    held.stop()
    assert "No such file" in (tmp_path / "log").read_text()


def test_a_keeper_that_ends_between_two_looks_was_not_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The status is read before it says how all ended, and its writer is gone right after."""
    status = tmp_path / "status"
    held = Held(
        [sys.executable, "-c", "raise SystemExit(9)"],
        env={}, output=subprocess.DEVNULL, status_path=status,
    )  # fmt: skip
    try:
        assert held.wait(60) == 9
        _wait(lambda: "ended" in held.status())
        *before, last = status.read_text().splitlines(keepends=True)
        assert "ended" in last

        def ends(_: int) -> bool:
            status.write_text("".join((*before, last)))
            return False

        monkeypatch.setattr(psutil, "pid_exists", ends)
        for look, right in ((held.unguarded, False), (held.exit_code, 9)):
            status.write_text("".join(before))
            assert look() == right
    finally:
        monkeypatch.undo()
        held.stop()
