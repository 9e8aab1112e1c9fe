"""The real lm-evaluation-harness and a server that only a proxy reaches: its name means nothing to
this machine, so that whatever goes past the proxy fails. The proxy is a double that answers for the
server; it keeps what it was sent."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from matrixrun.engines import prepare
from matrixrun.engines.environments import Environment
from matrixrun.engines.harness import RECIPE, Served, evaluate
from matrixrun.evidence.errors import EvaluationError
from matrixrun.evidence.requests import Task
from matrixrun.record.cache import cache_folder

pytestmark = [pytest.mark.engine, pytest.mark.timeout(1200)]

HEADERS = {"Authorization": "Bearer a-key-of-staging", "X-Tenant": "tenant-of-staging"}
AWAY = Served("http://behind.invalid/api", HEADERS, ours=False, model="target")
FOLDER = Path(__file__).parents[1] / "e2e" / "accuracy_task"
DOCUMENTS = 4


class Proxy(ThreadingHTTPServer):
    """A forward proxy: `asked` is (address, headers) of each request."""

    refuses = False

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.asked: list[tuple[str, dict[str, str]]] = []


class Handler(BaseHTTPRequestHandler):
    server: Proxy

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.server.asked.append((self.path, dict(self.headers)))
        said = {"choices": [{"index": 0, "text": " Berlin"}]}
        if self.server.refuses:
            said = {"error": f"nobody knows {self.headers['X-Tenant']}"}
        body = json.dumps(said).encode()
        self.send_response(403 if self.server.refuses else 200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Nothing: the tests look at what was asked."""


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    with Proxy() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for name in ("http_proxy", "HTTP_PROXY"):
            monkeypatch.setenv(name, f"http://127.0.0.1:{server.server_port}")
        for name in ("no_proxy", "NO_PROXY", "all_proxy", "ALL_PROXY"):
            monkeypatch.delenv(name, raising=False)
        yield server
        server.shutdown()


@pytest.fixture(scope="module")
def environment() -> Environment:
    return prepare(RECIPE, cache=cache_folder(), timeout=1800.0, on_line=print)


def put(environment: Environment, concurrency: int) -> tuple[bool | None, ...]:
    task = Task(
        name="word-pairs",
        yaml=(FOLDER / "word-pairs.yaml").read_text(),
        files={"word-pairs.jsonl": (FOLDER / "word-pairs.jsonl").read_bytes()},
        metric="exact_match",
        filter="line",
        limit=DOCUMENTS,
    )
    seen = evaluate(
        task, AWAY, environment, concurrency=concurrency, salt="s", timeout=300.0,
        request_timeout=30.0,
    )  # fmt: skip
    return tuple(one.right for one in seen)


@pytest.mark.parametrize("concurrency", [1, 3])
def test_every_request_goes_through_the_proxy_with_the_endpoints_headers(
    environment: Environment, proxy: Proxy, concurrency: int
) -> None:
    assert put(environment, concurrency) == (True, False, False, False)
    assert len(proxy.asked) == DOCUMENTS
    for address, headers in proxy.asked:
        assert address == f"{AWAY.url}/v1/completions"
        assert headers["Authorization"] == HEADERS["Authorization"]
        assert headers["X-Tenant"] == HEADERS["X-Tenant"]


def test_what_is_told_of_a_refusal_shows_no_header(environment: Environment, proxy: Proxy) -> None:
    proxy.refuses = True
    with pytest.raises(EvaluationError, match="nobody knows") as raised:
        put(environment, 3)
    told = f"{raised.value} {raised.value.log_tail}"
    assert "tenant-of-staging" not in told
    assert "a-key-of-staging" not in told
