"""The reproduction bundle, run against two servers that part where a test wants them to."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import msgspec
import pytest
from made_sweeps import FAULTY, HEALTHY, Made, make_cell, make_store

from matrixrun.evidence.errors import UserError
from matrixrun.signoff import build_page
from matrixrun.signoff.bundle import implicated, write_bundles

TRIGGER = 4  # the last prompt token of the request that fails


class Handler(BaseHTTPRequestHandler):
    """The part of vLLM's HTTP that the bundle uses: next token = sum of the text so far, but for
    a speculating server after a prompt that ends in TRIGGER, at its third token."""

    speculates = False

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        text, emitted = list(body["prompt"]), []
        wrong = self.speculates and text[-1] == TRIGGER
        for place in range(body["max_tokens"]):
            emitted.append(sum(text) % 97 + (1 if wrong and place == 2 else 0))
            text.append(emitted[-1])
        choice: dict[str, object] = {"token_ids": emitted}
        if body.get("prompt_logprobs"):
            prompt = body["prompt"]
            best = sum(prompt[:-1]) % 97
            row = {str(prompt[-1]): {"logprob": -0.1 if prompt[-1] == best else -4.1}}
            choice["prompt_logprobs"] = [None, {str(best): {"logprob": -0.1}} | row]
        answer = json.dumps({"choices": [choice]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(answer)))
        self.end_headers()
        self.wfile.write(answer)

    def log_message(self, *args: object) -> None:
        pass


@contextmanager
def serving(*, speculates: bool, handler: type[Handler] = Handler) -> Iterator[str]:
    """The address of a server."""
    handler = type("Handler", (handler,), {"speculates": speculates})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def bundle(tmp_path: Path) -> Path:
    """The bundle of a failing cell beside a healthy one."""
    cell = make_cell()
    launches = [
        {
            "id": f"{role}.{cell.id}",
            "argv": ["$PYTHON", "-m", "vllm", "$TARGET", "--x", '{"model": "$DRAFT"}', "a b"],
            "env": {"VLLM_API_KEY": "$KEY", "SIZE": "1"},
            "recipe": {"install": ["vllm==0.32.0"], "overlay": "builtin:vllm_cpu"},
            "target": {"path": "org/model"},
            "draft": {"path": "org/draft"},
        }
        for role in ("on", "A")
    ]
    arms = [(cell, FAULTY), (make_cell(batch_size=1), HEALTHY)]
    store = Made(tmp_path / "sweep", arms, plan={"launches": launches}).write()
    (folder,) = write_bundles(store, tmp_path / "bundles")
    return folder


def run(folder: Path, off: str, on: str, *more: str) -> subprocess.CompletedProcess[str]:
    """Run the bundle's script in an interpreter that has nothing but the standard library."""
    command = [sys.executable, "-E", "-s", "-S", "reproduce.py", "--off", off, "--on", on, *more]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_the_bundle_shows_the_difference_and_finds_the_shortest_that_does(tmp_path: Path) -> None:
    folder = bundle(tmp_path)

    with serving(speculates=False) as off, serving(speculates=True) as on:
        shown = run(folder, off, on, "--minimise", "smallest.json")

    assert shown.returncode == 1, shown.stderr
    assert "FAULT: request natural-0004, token 2" in shown.stdout
    assert "1 of 40 requests differ, 1 at fault" in shown.stdout
    smallest = json.loads((folder / "smallest.json").read_text())
    assert smallest["requests"] == [{"id": "natural-0004", "prompt": [TRIGGER], "max_tokens": 3}]


def test_equal_servers_show_nothing(tmp_path: Path) -> None:
    folder = bundle(tmp_path)

    with serving(speculates=False) as off:
        shown = run(folder, off, off)

    assert shown.returncode == 0
    assert "0 of 40 requests differ" in shown.stdout


def test_servers_that_are_away_are_said_to_be(tmp_path: Path) -> None:
    shown = run(bundle(tmp_path), "http://127.0.0.1:9", "http://127.0.0.1:9")

    assert shown.returncode == 2
    assert "cannot ask a server" in shown.stderr


@pytest.mark.parametrize("trouble", ["answer", "requests"])
def test_only_the_fault_ends_with_1(tmp_path: Path, trouble: str) -> None:
    """A script that bisects must not take an answer without tokens for the fault."""
    folder = bundle(tmp_path)
    if trouble == "requests":
        (folder / "requests.json").unlink()

    class Garbled(Handler):
        def do_POST(self) -> None:
            self.send_response(200)
            self.send_header("Content-Length", "2")
            self.end_headers()
            self.wfile.write(b"{}")

    with serving(speculates=False, handler=Garbled) as server:
        shown = run(folder, server, server)

    assert shown.returncode == 2
    assert "Traceback" not in shown.stderr


def test_our_script_goes_along_wherever_the_launch_was_planned(tmp_path: Path) -> None:
    argv = ["$PYTHON", "/elsewhere/site-packages/matrixrun/engines/llamacpp/in_process.py", "--x"]
    launches = [
        {"id": f"{role}.{make_cell().id}", "argv": argv, "env": {}, "recipe": {},
         "target": {"path": "org/model"}}
        for role in ("on", "A")
    ]  # fmt: skip
    plan = {"launches": launches}
    store = Made(tmp_path / "sweep", [(make_cell(), FAULTY)], plan=plan).write()

    (folder,) = write_bundles(store, tmp_path / "bundles")

    assert (folder / "in_process.py").is_file()
    assert '"$HERE/in_process.py"' in (folder / "on.sh").read_text()


def test_commands_can_be_run_with_other_paths(tmp_path: Path) -> None:
    folder = bundle(tmp_path)
    script = (folder / "on.sh").read_text()

    told = subprocess.run(
        ["bash", "-c", script.replace("exec ", "printf '%s\\n' ")],
        env={"PYTHON": "py", "DRAFT": "/my draft"},
        capture_output=True,
        text=True,
        check=True,
    )

    words = told.stdout.splitlines()
    assert words == ["py", "-m", "vllm", "org/model", "--x", '{"model": "/my draft"}', "a b"]
    assert "vllm==0.32.0" in script
    assert "***" not in script
    assert "4 nats below" in (folder / "README.md").read_text()


def test_what_the_engine_needs_on_its_path_goes_with_the_bundle(tmp_path: Path) -> None:
    folder = bundle(tmp_path)
    script = (folder / "off.sh").read_text().rpartition("exec ")[0] + 'echo "$PYTHONPATH"'
    (folder / "shown.sh").write_text(script)

    told = subprocess.run(
        ["bash", str(folder / "shown.sh")],
        env={"PYTHONPATH": "/mine", "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert told.stdout.strip() == f"{folder / 'overlay'}:/mine"
    assert (folder / "overlay" / "torchvision" / "__init__.py").is_file()


def test_a_fault_of_rates_is_shown_by_the_requests_that_part_the_most(tmp_path: Path) -> None:
    store = make_store(tmp_path / "sweep", [(make_cell(), FAULTY)])
    (result,), (detail,) = store.results(), build_page(store).details
    rates = tuple(
        msgspec.structs.replace(one, numbers={"p_value": 1e-9}) for one in result.findings
    )

    named = implicated(result, detail)
    unnamed = implicated(msgspec.structs.replace(result, findings=rates), detail)

    assert set(unnamed.requests) == set(named.requests)
    assert len(unnamed.requests) == 3
    assert (named.ceiling, unnamed.ceiling) == (detail.ceiling, detail.floor)


def test_a_sweep_without_a_fault_has_nothing_to_reproduce(tmp_path: Path) -> None:
    store = make_store(tmp_path / "sweep", [(make_cell(), HEALTHY)])

    with pytest.raises(UserError, match="nothing to reproduce"):
        write_bundles(store, tmp_path / "bundles")
