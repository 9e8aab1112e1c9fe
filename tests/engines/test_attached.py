"""Servers that run already: what is asked of them, what they need not give, how they fail.

The servers here are doubles that answer by a script; real ones are in tests/e2e/test_attach.py.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

import pytest
from scripted_server import Reply, ScriptedServer

from matrixrun.engines import Attached, get
from matrixrun.evidence.errors import EngineDied, EngineHung, UserError
from matrixrun.evidence.launches import Endpoint
from matrixrun.evidence.requests import Request

FIRST = Request(id="warm-up", prompt="p", category="c", token_ids=(5, 6, 7), max_tokens=2)
KEY = "a-secret-of-staging"
OLD_LOGPROBS = {
    "tokens": ["token_id:8", "token_id:9"],
    "top_logprobs": [{"token_id:8": -0.1, "token_id:1": -3.0}, {"token_id:9": -0.2}],
}
Wrong = Callable[[str, dict[str, Any]], Reply | None]


def vllm(wrong: Wrong = lambda path, body: None) -> Callable[[str, dict[str, Any]], Reply]:
    """A double of an old vLLM behind a gateway: one model, no metrics, no report of itself, and no
    `return_token_ids`; `wrong` answers first."""

    def script(path: str, body: dict[str, Any]) -> Reply:
        found = wrong(path, body)
        if found is not None:
            return found
        if path == "/v1/models":
            return Reply(body={"data": [{"id": "llama-staging"}]})
        if path == "/v1/completions":
            choice = {"index": 0, "text": "x", "finish_reason": "length", "logprobs": OLD_LOGPROBS}
            return Reply(body={"choices": [choice], "usage": {"prompt_tokens": 3}})
        return Reply(404, "<html>no such page</html>")

    return script


def start(server: ScriptedServer, *, ready: float = 5.0, **changes: Any) -> Any:
    """Attach to the double and start; returns the facts, or raises."""

    async def run() -> Any:
        async with server:
            endpoint = Endpoint(url=server.url, **changes)
            attached = Attached(endpoint, engine=get("vllm"), ready_timeout=ready)
            return (await asyncio.to_thread(attached.start, FIRST)).facts

    return asyncio.run(run())


def test_the_model_is_the_one_that_the_server_lists_and_ids_may_come_with_the_logprobs() -> None:
    server = ScriptedServer(vllm())
    facts = start(server)
    sent = next(body for body in server.bodies if "prompt" in body)
    assert sent["model"] == "llama-staging"
    assert facts["attached"] == server.url


def test_what_it_does_not_give_is_said_and_not_guessed() -> None:
    facts = start(ScriptedServer(vllm()))
    assert facts["version"] is None
    assert "dtype" not in facts
    assert facts["unknown"] == [
        "its hardware", "its command line", "the bytes of its checkpoints", "who else it serves",
        "the engine's version", "its arithmetic (dtype)", "its own counters",
        "prompt tokens taken from its cache",
    ]  # fmt: skip


def test_the_key_and_further_headers_come_from_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("STAGING_KEY", KEY)
    monkeypatch.setenv("STAGING_TENANT", "blue")
    server = ScriptedServer(vllm())
    start(server, key_env="STAGING_KEY", headers_env={"X-Tenant": "STAGING_TENANT"})
    assert server.heads
    for head in server.heads:
        assert f"\r\nauthorization: bearer {KEY}\r\n" in head.lower()
        assert "\r\nx-tenant: blue\r\n" in head.lower()


def test_a_variable_that_is_not_set_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("STAGING_KEY", raising=False)
    with pytest.raises(UserError, match="STAGING_KEY is not set"):
        start(ScriptedServer(vllm()), key_env="STAGING_KEY")


def test_several_models_have_to_be_told_apart_by_the_user() -> None:
    two = {"data": [{"id": "a"}, {"id": "b"}]}
    script = vllm(lambda path, _: Reply(body=two) if path == "/v1/models" else None)
    with pytest.raises(EngineDied, match="serves a, b: which is the target"):
        start(ScriptedServer(script))
    server = ScriptedServer(script)
    start(server, model="b")
    assert {body["model"] for body in server.bodies if "prompt" in body} == {"b"}


def test_a_server_without_token_ids_cannot_be_compared() -> None:
    text = {"choices": [{"index": 0, "text": "x", "finish_reason": "length"}]}
    script = vllm(lambda path, _: Reply(body=text) if path == "/v1/completions" else None)
    with pytest.raises(EngineDied, match=r"127\.0\.0\.1:\d+ cannot be compared"):
        start(ScriptedServer(script))


def test_a_wrong_key_is_said_at_once() -> None:
    began = time.monotonic()
    with pytest.raises(EngineDied, match=r"/health answers HTTP 401: is the key right"):
        start(ScriptedServer(vllm(), health=401), ready=60.0)
    assert time.monotonic() - began < 10


def test_a_server_that_is_not_healthy_in_time_is_named_with_its_last_answer() -> None:
    with pytest.raises(EngineHung, match=r"http://127.*no healthy answer within 1 s \(HTTP 503\)"):
        start(ScriptedServer(vllm(), health=503), ready=1.0)


def test_a_server_that_is_not_there_is_named() -> None:
    endpoint = Endpoint(url="http://127.0.0.1:9")
    attached = Attached(endpoint, engine=get("vllm"), ready_timeout=1.0)
    with pytest.raises(EngineHung, match=r"http://127\.0\.0\.1:9/health .*ConnectError"):
        attached.start(FIRST)
