"""Run a command so that it and all it starts end with their owner, whatever ends the owner.

    python guard.py OWNER_PID PIPE_FD STATUS_FILE GRACE_SECONDS COMMAND [ARGUMENT ...]

A standalone script of the standard library, for Linux. Three processes come of it:

    keeper    hangs off init or the nearest subreaper, in a session of its own: whoever starts it
    |         (Ray above all) may kill its direct children at exit, and the keeper is none
    guard     the same loop once more, so that either may be killed by SIGKILL
    |
    command   gets SIGKILL from the kernel when the guard dies

Keeper and guard are subreapers: a descendant that daemonises or calls setsid is handed to them, so
their tree always holds all that was started. Each ends its tree (TERM, GRACE_SECONDS, KILL) when
the owner's pipe closes, when the owner's process is gone (another child may have inherited the
pipe), on SIGTERM, or when its own child has ended. STATUS_FILE gets one JSON line for each
event: {"keeper": pid}, {"guard": pid, "command": pid}, the guard's {"exit": code, "since": reason},
and {"ended": reason} once nothing is left; `code` is negative for a signal.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
KILL_SECONDS = 10.0
POLL_SECONDS = 0.5
KEEPER_MARGIN_SECONDS = 2.0  # the keeper lets its guard end the tree first

_libc = ctypes.CDLL(None, use_errno=True)


class Holder:
    """Holds one child: watches it and the owner, and ends the whole tree below this process."""

    def __init__(self, owner: int | None, pipe: int, grace: float) -> None:
        """`owner` is a pidfd (None on kernels without), `pipe` the read end of the owner's pipe."""
        self._grace = grace
        self._terminated = False
        _libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._wake, waker = os.pipe()
        os.set_blocking(self._wake, False)
        os.set_blocking(waker, False)
        self._alarms = [pipe] if owner is None else [pipe, owner]
        signal.set_wakeup_fd(waker, warn_on_full_buffer=False)
        signal.signal(signal.SIGTERM, lambda *_: self._terminate())
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.signal(signal.SIGINT, signal.SIG_IGN)

    def hold(self, child: int, parent: int | None = None) -> tuple[int | None, str]:
        """Wait for the child or a reason to end it; end the tree. (exit code, reason).

        `parent` is the pid that must stay this process's parent.
        """
        status, reason = self._watch(child, parent)
        ended = end_tree(self._grace)
        status = ended.get(child) if status is None else status
        return None if status is None else os.waitstatus_to_exitcode(status), reason

    def _watch(self, child: int, parent: int | None) -> tuple[int | None, str]:
        while True:
            ended = reap()
            if child in ended:
                return ended[child], "command ended"
            if self._terminated:
                return None, "terminated"
            if parent is not None and os.getppid() != parent:
                return None, "keeper gone"
            ready = select.select([self._wake, *self._alarms], [], [], POLL_SECONDS)[0]
            if self._wake in ready:
                os.read(self._wake, 4096)
            if any(alarm in ready for alarm in self._alarms):
                return None, "owner gone"

    def _terminate(self) -> None:
        self._terminated = True


def end_tree(grace: float) -> dict[int, int]:
    """TERM every descendant, wait `grace` seconds, KILL until none is left. What was reaped."""
    ended = reap()
    signal_all(descendants(os.getpid()), signal.SIGTERM)
    until = time.monotonic() + grace
    while descendants(os.getpid()) and time.monotonic() < until:
        time.sleep(0.05)
        ended |= reap()
    until = time.monotonic() + KILL_SECONDS
    while (left := descendants(os.getpid())) and time.monotonic() < until:
        signal_all(left, signal.SIGKILL)
        time.sleep(0.02)
        ended |= reap()
    return ended | reap()


def descendants(root: int) -> list[int]:
    """The living descendants of `root`, parents first; zombies are left out."""
    children: dict[int, list[tuple[int, str]]] = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - starts quickly without pathlib
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", encoding="utf-8", errors="replace") as file:  # noqa: PTH123
                state, parent = file.read().rsplit(")", 1)[1].split()[:2]
        except (OSError, IndexError):
            continue
        children.setdefault(int(parent), []).append((int(name), state))
    found, pending = [], [root]
    while pending:
        for pid, state in children.get(pending.pop(), ()):
            pending.append(pid)
            if state != "Z":
                found.append(pid)
    return found


def reap() -> dict[int, int]:
    """Collect every child that has ended: {pid: wait status}."""
    ended: dict[int, int] = {}
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return ended
        if pid == 0:
            return ended
        ended[pid] = status


def signal_all(pids: list[int], number: int) -> None:
    """Send a signal; who is gone already needs none."""
    for pid in pids:
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def spawn(run: Callable[[], None], death_signal: int) -> int:
    """Fork a child that gets `death_signal` when this process dies, and calls `run`."""
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    try:
        _libc.prctl(PR_SET_PDEATHSIG, death_signal, 0, 0, 0)
        if os.getppid() == parent:
            run()
    finally:
        os._exit(127)


def run_command(argv: list[str]) -> None:
    """Become the command; returns only when that cannot be done."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    try:
        os.execvpe(argv[0], argv, os.environ)
    except OSError as error:
        print(f"guard: cannot run {argv[0]}: {error}", file=sys.stderr, flush=True)


def write_status(path: str, **event: object) -> None:
    """Append one event; a full disk must not keep the guard from its work."""
    try:
        with open(path, "a", encoding="utf-8") as file:  # noqa: PTH123
            file.write(json.dumps(event) + "\n")
    except OSError as error:
        print(f"guard: {error}", file=sys.stderr)


def open_owner(pid: int) -> int | None:
    """A descriptor that becomes readable when the owner ends; None on kernels without it."""
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return None


def main() -> None:
    """Become keeper (see the module's text); the process that was started returns at once."""
    status_path, argv = sys.argv[3], sys.argv[5:]
    owner, pipe, grace = open_owner(int(sys.argv[1])), int(sys.argv[2]), float(sys.argv[4])
    os.set_inheritable(pipe, False)
    if os.fork():
        os._exit(0)
    os.setsid()
    write_status(status_path, keeper=os.getpid())
    keeper = os.getpid()

    def guard() -> None:
        holder = Holder(owner, pipe, grace)
        command = spawn(lambda: run_command(argv), signal.SIGKILL)
        write_status(status_path, guard=os.getpid(), command=command)
        code, reason = holder.hold(command, parent=keeper)
        write_status(status_path, exit=code, since=reason)
        os._exit(0)

    holder = Holder(owner, pipe, grace + KEEPER_MARGIN_SECONDS)
    # TERM, not KILL: a guard that outlives its keeper ends the tree itself.
    code, reason = holder.hold(spawn(guard, signal.SIGTERM))
    write_status(status_path, ended="guard lost" if code else reason)


if __name__ == "__main__":
    main()
