"""A server's life, with a small HTTP program in the engine's place."""

from __future__ import annotations

import os
import re
import signal
import socket
import sys
import time
from pathlib import Path

import psutil
import pytest

from matrixrun.engines import Environment, Server
from matrixrun.engines import server as server_module
from matrixrun.engines.processes import MARKER
from matrixrun.evidence.errors import EngineDied, EngineHung, EngineRefused
from matrixrun.evidence.launches import Command

PROGRAM = """
import http.server, os, signal, socket, subprocess, sys, time, traceback
mode, host, port = sys.argv[1], sys.argv[2], int(sys.argv[3])
print("key", os.environ["ENGINE_KEY"], "overlay", os.environ.get("PYTHONPATH"), flush=True)
child = subprocess.Popen(["sleep", "600"], start_new_session=True)
print("child", child.pid, flush=True)
if mode == "refuse":
    sys.exit("REFUSED: no such method")
if mode == "crash":
    raise AttributeError("drafter")
if mode == "hang":
    time.sleep(600)
if mode in ("despair", "fall"):
    print("a child failed", file=sys.stderr)
    if mode == "despair":
        try:
            raise AssertionError("threads")
        except AssertionError:
            traceback.print_exc()
    os.kill(os.getpid(), signal.SIGKILL)
if mode == "obey":
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))

class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        if mode == "quit" and self.path == "/quit":
            os._exit(9)
        self.send_response(200); self.end_headers()

http.server.HTTPServer((host, port), Answer).serve_forever()
"""


class StandIn:
    """An engine whose processes are the program above."""

    kind = "stand-in"
    kills_itself = "a child failed"
    health_path = "/healthy"

    def recognise_refusal(self, log: str) -> str | None:
        found = re.search(r"REFUSED: (.+)", log)
        return found[1] if found else None


def _server(folder: Path, mode: str, **options: object) -> Server:
    program = folder / "program.py"
    program.write_text(PROGRAM)
    command = Command(
        argv=("$PYTHON", str(program), mode, "$HOST", "$PORT", '{"model": "$DRAFT"}', "$TARGET"),
        env={"ENGINE_KEY": "$KEY"},
    )
    settings = {"ready_timeout": 30.0, "draft": 'a"b', "target": "/models/t"}
    return Server(
        command,
        Environment(Path(sys.executable), None, folder, "key"),
        engine=StandIn(),
        log_path=folder / "logs" / "engine.log",
        **{**settings, **options},
    )


def _child(server: Server) -> int:
    found = re.search(r"child (\d+)", server.log_path.read_text())
    assert found
    return int(found[1])


def _gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_a_server_serves_until_it_is_stopped(tmp_path: Path) -> None:
    server = _server(tmp_path, "serve")
    seconds = server.start()
    assert 0 < seconds < 30
    assert server.ready_seconds == seconds
    assert server.alive
    server.check()
    child = _child(server)
    assert not _gone(child)
    server.stop()
    assert not server.alive
    assert _gone(child)
    server.stop()


def test_placeholders_are_filled_in_and_a_path_stays_json(tmp_path: Path) -> None:
    with _server(tmp_path, "serve") as server:
        assert server.argv[0] == sys.executable
        assert server.argv[3:] == (
            "127.0.0.1",
            str(server.port),
            '{"model": "a\\"b"}',
            "/models/t",
        )
        assert server.base_url == f"http://127.0.0.1:{server.port}"


def test_the_key_is_in_the_environment_only_and_never_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hub-secret-1")
    monkeypatch.setenv("MATRIXRUN_SOMETHING", "ours")
    with _server(tmp_path, "serve", api_key="launch-secret-1") as server:
        assert "launch-secret-1" not in " ".join(server.argv)
        assert "key launch-secret-1" in server.log_path.read_text()
        assert "key ***" in server.log_tail()
        shown = server.shown_env
        assert (shown["ENGINE_KEY"], shown["HF_TOKEN"]) == ("***", "***")
        assert shown["PYTHONPATH"] == str(tmp_path)
        engine = psutil.Process(_child(server)).environ()
        assert engine["HF_TOKEN"] == "hub-secret-1"
        assert {n for n in engine if n.startswith("MATRIXRUN_")} == {MARKER}


def test_two_servers_have_different_keys(tmp_path: Path) -> None:
    keys = set()
    for name in "ab":
        folder = tmp_path / name
        folder.mkdir()
        with _server(folder, "serve") as server:
            keys.add(server.log_path.read_text().split()[1])
    assert len(keys) == 2


def test_a_refusal_is_told_in_the_engines_words(tmp_path: Path) -> None:
    server = _server(tmp_path, "refuse")
    with pytest.raises(EngineRefused, match=r"^no such method$") as caught:
        server.start()
    assert "REFUSED: no such method" in caught.value.log_tail
    assert _gone(_child(server))


def test_a_crash_is_a_death_with_the_end_of_the_log(tmp_path: Path) -> None:
    server = _server(tmp_path, "crash")
    with pytest.raises(EngineDied, match=r"before it was healthy \(exit 1\)") as caught:
        server.start()
    assert "AttributeError: drafter" in caught.value.log_tail
    assert _gone(_child(server))


def test_an_engine_that_never_gets_healthy_hangs(tmp_path: Path) -> None:
    server = _server(tmp_path, "hang", ready_timeout=8.0)
    with pytest.raises(EngineHung, match="not healthy within 8 s"):
        server.start()
    assert _gone(_child(server))


def test_a_death_while_serving_is_noticed(tmp_path: Path) -> None:
    server = _server(tmp_path, "quit")
    server.start()
    try:
        with socket.create_connection((server.host, server.port)) as connection:
            connection.sendall(b"GET /quit HTTP/1.0\r\n\r\n")
        until = time.monotonic() + 10
        while server.alive:
            assert time.monotonic() < until
            time.sleep(0.02)
        with pytest.raises(EngineDied, match=r"while serving \(exit 9\)"):
            server.check()
        assert not server.killed()
    finally:
        server.stop()


def test_an_engine_that_was_killed_from_outside_is_told_from_one_that_died(tmp_path: Path) -> None:
    """By the kernel for want of memory, say: that is no word of the engine's on its settings."""
    server = _server(tmp_path, "serve")
    server.start()
    try:
        (engine,) = [p for p in psutil.process_iter() if _is_program(p, tmp_path)]
        engine.kill()
        assert server.killed()
    finally:
        server.stop()


@pytest.mark.parametrize(("mode", "killed"), [("despair", False), ("fall", True)])
def test_an_engine_that_kills_itself_of_an_exception_died(
    tmp_path: Path, mode: str, killed: bool
) -> None:
    """Without an exception in its log a part of it may have been killed, by the kernel say."""
    server = _server(tmp_path, mode)
    with pytest.raises(EngineDied):
        server.start()
    assert server.killed() is killed


def test_an_engine_that_was_told_to_end_and_did_so_in_order_did_not_die_by_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its keeper is killed and not yet collected, the guard tells it to end, and it says 0."""
    server = _server(tmp_path, "obey")
    server.start()
    try:
        assert server._held is not None
        os.kill(server._held.status()["keeper"], signal.SIGKILL)
        monkeypatch.setattr(psutil, "pid_exists", lambda _: True)
        assert server.killed()
        assert server._held.exit_code() == 0
    finally:
        monkeypatch.undo()
        server.stop()


@pytest.mark.parametrize("who", ["keeper", "guard"])
def test_an_engine_that_ended_since_its_guard_was_killed_did_not_die_by_itself(
    tmp_path: Path, who: str
) -> None:
    server = _server(tmp_path, "serve")
    server.start()
    try:
        assert server._held is not None
        os.kill(server._held.status()[who], signal.SIGKILL)
        assert server.killed()
    finally:
        server.stop()


def _is_program(process: psutil.Process, folder: Path) -> bool:
    try:
        return process.cmdline()[1:2] == [str(folder / "program.py")]
    except psutil.Error:
        return False


def test_placeholders_of_a_launch_over_nodes_are_filled_in_too(tmp_path: Path) -> None:
    places = {"$HEAD": "10.0.0.1", "$HEAD_PORT": "4711", "$NODE_RANK": "1"}
    server = _server(tmp_path, "serve", places=places)
    assert server._fill("--at=$HEAD:$HEAD_PORT --rank=$NODE_RANK") == "--at=10.0.0.1:4711 --rank=1"


def test_a_port_that_somebody_took_meanwhile_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    free = server_module.free_port
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        ports = [taken.getsockname()[1]]
        monkeypatch.setattr(server_module, "HEALTH_TIMEOUT", 0.5)  # who took it never answers
        monkeypatch.setattr(
            server_module, "free_port", lambda host: ports.pop() if ports else free(host)
        )
        with _server(tmp_path, "serve") as server:
            assert server.port != taken.getsockname()[1]
            assert server.alive


def test_a_tail_is_the_end_of_the_log(tmp_path: Path) -> None:
    server = _server(tmp_path, "serve")
    assert server.log_tail() == ""
    server.log_path.parent.mkdir()
    server.log_path.write_text("".join(f"line {i}\n" for i in range(100)))
    assert server.log_tail(2) == "line 98\nline 99"


def _in_an_image(folder: Path, monkeypatch: pytest.MonkeyPatch, **env: str) -> str:
    """Return the arguments of `docker`, a stand-in that prints them: no container runs here."""
    docker = folder / "docker"
    docker.write_text('#!/bin/sh\necho "$@"\necho REFUSED: a stand-in\n')
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder), prepend=os.pathsep)
    monkeypatch.setenv("HF_HOME", str(folder / "hub"))
    (folder / "hub").mkdir()
    (folder / "target").mkdir()
    server = Server(
        Command(argv=("$PYTHON", "serve", "$TARGET"), env={"ENGINE_KEY": "$KEY", **env}),
        Environment(Path("python3"), None, None, "key", image="an/image:1"),
        engine=StandIn(),
        target=str(folder / "target"),
        log_path=folder / "logs" / "engine.log",
        api_key="launch-secret-1",
        accelerators=1,
    )
    with pytest.raises(EngineRefused):
        server.start()
    return server.log_path.read_text()


def test_a_launch_in_an_image_is_wrapped_and_finds_what_it_needs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = _in_an_image(tmp_path, monkeypatch)
    for part in (
        "--env ENGINE_KEY",
        "--env HF_HOME",
        f"--volume {tmp_path}/hub:{tmp_path}/hub",
        f"--volume {tmp_path}/target:{tmp_path}/target",
        "--gpus all",
        f"an/image:1 python3 serve {tmp_path}/target",
    ):
        assert part in said
    assert "launch-secret-1" not in said
    assert f"{tmp_path}/logs" not in said


def test_a_traced_launch_in_an_image_finds_its_modules_and_its_ledgers_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "modules").mkdir()
    path = os.pathsep.join([str(tmp_path / "modules"), str(tmp_path / "absent"), "beside"])
    said = _in_an_image(tmp_path, monkeypatch, PYTHONPATH=path, MATRIXRUN_LEDGER="$LEDGER")
    for part in (
        "--env MATRIXRUN_LEDGER",
        "--env PYTHONPATH",
        f"--volume {tmp_path}/modules:{tmp_path}/modules",
        f"--volume {tmp_path}/logs:{tmp_path}/logs",
    ):
        assert part in said
    assert "absent" not in said
