"""Replies of users' endpoints, put together from parts, against a scripted double of a server."""

from __future__ import annotations

import asyncio
import itertools
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_server import Reply as Answer
from scripted_server import Script, ScriptedServer

from matrixrun.engines import Client, get, run_pass
from matrixrun.engines.http import Failed
from matrixrun.engines.protocol import ReplyingClient
from matrixrun.engines.replies import Parts, question
from matrixrun.engines.vllm.client import VLLMClient
from matrixrun.evidence.launches import Arm, ArmConfig, Checkpoint, Endpoint, Recipe
from matrixrun.evidence.replies import Ask, Form, Reply, Stream, Tool, ToolCall
from matrixrun.evidence.requests import Observation, Pass

TOOL = Tool(name="file_note", description="d", parameters='{"type": "object"}')
USAGE = {"prompt_tokens": 3, "completion_tokens": 4}


def ask(form: Form = Form.CHAT, *, streamed: bool = True) -> Ask:
    return Ask(
        id="surface.x", prompt="p", form=form, streamed=streamed, max_tokens=8,
        token_ids=(5, 6, 7) if form is Form.COMPLETION else (), message="hello",
        tool=TOOL if form.has_tools else None,
    )  # fmt: skip


def event(part: dict[str, Any]) -> str:
    return f"data: {json.dumps(part)}\n\n"


def delta(ids: list[int], reason: str | None = None, **message: Any) -> str:
    choice = {"index": 0, "delta": message, "token_ids": ids, "finish_reason": reason}
    return event({"choices": [choice]})


def put(lines: str, one: Ask | None = None) -> Parts:
    parts = Parts(one or ask())
    for line in lines.split("\n"):
        parts.line(line)
    return parts


def sent(script: Script, one: Ask) -> tuple[Observation, list[dict[str, Any]]]:
    async def run() -> tuple[Observation, list[dict[str, Any]]]:
        async with ScriptedServer(script) as server:
            client = VLLMClient(server.url, "key", request_timeout=5)
            pass_ = Pass(id="surface.b1", asks=(one,), salt="salt")
            (seen,) = await run_pass(client, pass_)
            await client.aclose()
            return seen, server.bodies

    return asyncio.run(run())


STREAM = (
    delta([], role="assistant", content="")
    + delta([11, 12], content="ab")
    + delta([13], content="c")
    + delta([1], "stop")
    + event({"choices": [], "usage": USAGE})
    + "data: [DONE]\n\n"
)


def test_a_stream_is_put_together_and_its_ids_are_detokenised_without_the_one_that_ends_it():
    def script(path: str, body: dict[str, Any]) -> Answer:
        if path == "/detokenize":
            assert body["tokens"] == [11, 12, 13]
            return Answer(body={"prompt": "abc"})
        return Answer(body=STREAM)

    seen, bodies = sent(script, ask())
    assert seen.error is None
    assert seen.token_ids.tolist() == [11, 12, 13, 1]
    assert seen.finish_reason == "stop"
    assert seen.reply == Reply(
        form=Form.CHAT, text="abc", completion_tokens=4, prompt_tokens=3, decoded="abc",
        stream=Stream(tokens=(2, 1, 1), finishes=1, usages=1, dones=1),
    )  # fmt: skip
    body = bodies[0]
    assert body["messages"] == [{"role": "user", "content": "hello"}]
    assert "prompt" not in body
    assert (body["temperature"], body["cache_salt"]) == (0.0, "salt")
    assert body["stream_options"] == {"include_usage": True}
    assert body["return_token_ids"] is True


def test_a_completion_in_one_piece_sends_the_prompts_ids_and_has_no_stream():
    choice = {"text": "abcd", "token_ids": [11, 12, 13, 14], "finish_reason": "length"}

    def script(path: str, _: dict[str, Any]) -> Answer:
        if path == "/detokenize":
            return Answer(body={"prompt": "abcd"})
        assert path == "/v1/completions"
        return Answer(body={"choices": [choice], "usage": USAGE})

    seen, bodies = sent(script, ask(Form.COMPLETION, streamed=False))
    assert bodies[0]["prompt"] == [5, 6, 7]
    assert "stream_options" not in bodies[0]
    assert bodies[1]["tokens"] == [11, 12, 13, 14]
    assert seen.reply is not None
    assert (seen.reply.text, seen.reply.decoded, seen.reply.stream) == ("abcd", "abcd", None)


def test_a_tool_is_offered_with_its_schema_and_must_be_called_or_may_be():
    body = question(ask(Form.TOOL_REQUIRED))
    assert body["tools"][0]["function"]["name"] == "file_note"
    assert body["tools"][0]["function"]["parameters"] == {"type": "object"}
    assert body["tools"][0]["function"]["strict"] is True
    assert body["tool_choice"] == "required"
    assert question(ask(Form.TOOL_AUTO))["tool_choice"] == "auto"
    assert "tools" not in question(ask(Form.CHAT))


def test_a_reply_with_tools_is_not_detokenised():
    call = {"index": 0, "function": {"name": "file_note", "arguments": "{}"}}
    lines = delta([11, 12], tool_calls=[call]) + delta([1], "tool_calls") + "data: [DONE]\n\n"
    seen, bodies = sent(lambda path, body: Answer(body=lines), ask(Form.TOOL_REQUIRED))
    assert len(bodies) == 1
    assert seen.reply is not None
    assert seen.reply.decoded is None
    assert seen.reply.tool_calls == (ToolCall(name="file_note", arguments="{}"),)


@given(st.text(min_size=1), st.data())
def test_however_a_reply_is_cut_into_parts_it_is_the_same(text: str, data: st.DataObject):
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=6)))
    bounds = [0, *cuts, len(text)]
    pieces = [text[a:b] for a, b in itertools.pairwise(bounds)]
    said = [{"content": piece, "reasoning": piece} for piece in pieces]
    calls = [{"tool_calls": [{"index": 1, "function": {"arguments": piece}}]} for piece in pieces]
    lines = "".join(delta([9], **one) for one in [*said, *calls]) + delta([1], "stop")
    seen = put(lines + "data: [DONE]\n").observation(seconds=1.0, decoded=None)
    reply, whole = seen.reply, text.encode("utf-8", "backslashreplace").decode()
    assert reply is not None
    assert (reply.text, reply.reasoning) == (whole, whole)
    assert reply.tool_calls == (ToolCall(name="", arguments=whole),)
    assert reply.stream == Stream(tokens=(1,) * (2 * len(pieces) + 1), finishes=1, dones=1)


def test_what_comes_behind_the_end_is_counted():
    late = put(STREAM + delta([], content="more"))
    assert (late.late, late.dones) == (1, 1)
    assert put(delta([5], "stop") + delta([6], content="x") + "data: [DONE]\n").late == 1
    assert put(STREAM).late == 0
    assert put(STREAM + "data: [DONE]\n").dones == 2


def test_a_stream_that_lost_its_end_says_so():
    cut = put(STREAM.replace("data: [DONE]\n\n", "").replace('"stop"', "null"))
    assert (cut.dones, cut.finishes) == (0, 0)


def spoken(**message: Any) -> dict[str, Any]:
    return {"choices": [{"message": message, "token_ids": [1]}]}


@pytest.mark.parametrize(
    "part",
    [
        {"error": {"message": "no"}},
        ["a"],
        {"choices": [{}, {}]},
        {"choices": [None]},
        {"choices": {"text": "a"}},
        {"choices": [{"text": "a", "token_ids": ["1"]}]},
        {"choices": [{"text": "a", "token_ids": [2**31]}]},
        {"choices": [], "usage": [1]},
        spoken(content=[{"type": "text", "text": "a"}]),
        spoken(tool_calls=[None]),
        spoken(tool_calls=[{"function": "file_note"}]),
        spoken(tool_calls=[{"function": {"name": "file_note", "arguments": {"a": 1}}}]),
        spoken(tool_calls=[{"index": "a", "function": {"name": "file_note"}}]),
    ],
)
def test_what_is_no_answer_is_a_failure(part: Any):
    with pytest.raises(Failed):
        put(event(part))


def test_what_is_null_is_lacking():
    nothing = {"content": None, "tool_calls": None, "reasoning": None}
    parts = put(event({"choices": [{"delta": nothing, "token_ids": None}], "usage": None}))
    assert (parts.text, parts.calls, parts.usages) == ("", {}, 0)


def test_a_malformed_reply_is_an_observation_with_an_error():
    seen, _ = sent(lambda path, body: Answer(body={"choices": [None]}), ask(streamed=False))
    assert seen.error is not None
    assert "$.choices[0]" in seen.error


@pytest.mark.parametrize("answer", [{"text": "abc"}, {"prompt": None}, ["abc"], None])
def test_a_detokeniser_that_gives_no_text_is_a_failure(answer: Any):
    def script(path: str, _: dict[str, Any]) -> Answer:
        return Answer(body=json.dumps(answer) if path == "/detokenize" else STREAM)

    seen, _ = sent(script, ask())
    assert seen.error is not None
    assert seen.error.startswith("/detokenize gives no text")


def test_a_gateway_without_a_detokeniser_is_no_refusal_and_other_errors_of_it_are_failures():
    def script(status: int) -> Script:
        def one(path: str, _: dict[str, Any]) -> Answer:
            return (
                Answer(status, {"detail": "no"}) if path == "/detokenize" else Answer(body=STREAM)
            )

        return one

    seen, _ = sent(script(404), ask())
    assert (seen.error, seen.reply and seen.reply.text) == (None, "abc")
    assert seen.reply is not None
    assert seen.reply.decoded is None
    seen, _ = sent(script(400), ask())
    assert (seen.error or "").startswith("/detokenize: HTTP 400")


def test_a_failed_request_keeps_its_form_and_the_engines_words():
    words = {"error": {"message": "no chat template"}}
    seen, _ = sent(lambda path, body: Answer(400, words), ask())
    assert seen.error == "HTTP 400: no chat template"
    assert seen.reply is not None
    assert seen.reply.form is Form.CHAT


def test_an_answer_without_token_ids_cannot_be_compared():
    lines = STREAM.replace("token_ids", "ids")
    seen, _ = sent(lambda path, body: Answer(body=lines), ask())
    assert seen.error == "token ids were asked for and none came"


def arm(*args: str, endpoint: Endpoint | None = None) -> ArmConfig:
    return ArmConfig(
        engine="e", kind="vllm", arm=Arm.OFF, recipe=Recipe(python="p"), model="m",
        target=Checkpoint(path="t"), args=args, endpoint=endpoint,
    )  # fmt: skip


def test_tools_are_asked_for_where_a_parser_of_them_is_named():
    forms = get("vllm").forms
    plain = (Form.COMPLETION, Form.CHAT)
    assert forms(arm()) == plain
    assert forms(arm("--tool-call-parser", "hermes")) == plain
    assert forms(arm("--enable-auto-tool-choice", "--tool-call-parser=hermes")) == tuple(Form)
    assert forms(arm(endpoint=Endpoint(url="http://h:1"))) == tuple(Form)


@pytest.mark.parametrize("kind", ["vllm", "sglang", "llamacpp"])
def test_an_engine_with_forms_has_a_client_that_replies(kind: str):
    engine = get(kind)
    client: Client = engine.client("http://127.0.0.1:1", "key", request_timeout=1)
    assert isinstance(client, ReplyingClient) == bool(engine.forms(arm()))
    asyncio.run(client.aclose())
