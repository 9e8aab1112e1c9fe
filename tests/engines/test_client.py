"""The client against a scripted double: what is sent, and what is made of broken answers."""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_server import Reply, Script, ScriptedServer

from matrixrun.engines.vllm import answers, reports
from matrixrun.engines.vllm.client import VLLMClient
from matrixrun.evidence.errors import EngineDied
from matrixrun.evidence.requests import (
    BadWord,
    Evaluation,
    Grammar,
    Observation,
    Request,
    Sampling,
    Score,
    ScoreRequest,
)

REQUEST = Request(id="r1", prompt="p1", category="natural", token_ids=(5, 6, 7), max_tokens=2)

ANSWER: dict[str, Any] = {
    "choices": [
        {
            "index": 0,
            "text": "ab",
            "token_ids": [11, 12],
            "finish_reason": "length",
            "logprobs": {
                "top_logprobs": [
                    {"token_id:11": -0.5, "token_id:9": -1.5},
                    {"token_id:12": -3.0, "token_id:8": -0.25, "token_id:7": -2.0},
                ]
            },
        }
    ],
    "usage": {"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 2}},
    "metrics": {
        "queue_time_ms": 10.0,
        "time_to_first_token_ms": 40.0,
        "speculative_decoding": {"per_step_accepted": [2, 0], "per_step_drafted": [3, 3]},
    },
}


def _client(url: str, timeout: float = 5.0) -> VLLMClient:
    return VLLMClient(url, "the-key", request_timeout=timeout)


def _generate(
    script: Script, request: Request = REQUEST, *, healthy: bool = True, timeout: float = 5.0
) -> Observation:
    async def run() -> Observation:
        async with ScriptedServer(script, healthy=healthy) as server:
            client = _client(server.url, timeout)
            try:
                return await client.generate(request, salt="s", logprobs=2)
            finally:
                await client.aclose()

    return asyncio.run(run())


def _score(score: ScoreRequest, script: Script) -> tuple[Score, list[dict[str, Any]]]:
    async def run() -> tuple[Score, list[dict[str, Any]]]:
        async with ScriptedServer(script) as server:
            client = _client(server.url)
            try:
                return await client.score(score, salt="s"), server.bodies
            finally:
                await client.aclose()

    return asyncio.run(run())


def test_an_answer_becomes_an_observation() -> None:
    seen = _generate(lambda path, body: Reply(body=ANSWER))
    assert seen.error is None
    assert (seen.request, seen.prompt, seen.category) == ("r1", "p1", "natural")
    assert seen.token_ids.tolist() == [11, 12]
    assert seen.logprobs.tolist() == [-0.5, -3.0]
    assert seen.top_ids.tolist() == [[11, 9], [8, 7]]
    assert seen.top_logprobs.tolist() == [[-0.5, -1.5], [-0.25, -2.0]]
    assert (seen.accepted.tolist(), seen.drafted.tolist()) == ([2, 0], [3, 3])
    assert (seen.cached_tokens, seen.prompt_tokens, seen.finish_reason) == (2, 3, "length")
    assert seen.first_token == pytest.approx(0.05)
    assert seen.finished > 0


def test_what_the_server_does_not_report_stays_unknown() -> None:
    bare = {"choices": [{"token_ids": [11], "text": "a", "finish_reason": "stop"}]}

    async def run() -> Observation:
        async with ScriptedServer(lambda path, body: Reply(body=bare)) as server:
            return await _client(server.url).generate(REQUEST, salt="", logprobs=0)

    seen = asyncio.run(run())
    assert seen.cached_tokens is None
    assert seen.accepted.size == 0
    assert math.isnan(seen.first_token)
    assert np.isnan(seen.logprobs).all()
    assert seen.top_ids.shape == (1, 0)


def test_every_sampling_field_is_sent() -> None:
    sent: list[dict[str, Any]] = []

    def script(path: str, body: dict[str, Any]) -> Reply:
        sent.append(body)
        return Reply(body=ANSWER)

    _generate(script)
    fields = set(Sampling.__struct_fields__) - {"allowed_token_ids", "grammar", "bad_words"}
    assert fields <= set(sent[0])
    assert sent[0]["prompt"] == [5, 6, 7]
    assert sent[0]["cache_salt"] == "s"
    assert "structured_outputs" not in sent[0]
    assert "bad_words" not in sent[0]


def test_a_grammar_is_sent_as_a_structured_output() -> None:
    sent: list[dict[str, Any]] = []

    def script(path: str, body: dict[str, Any]) -> Reply:
        sent.append(body)
        return Reply(body=ANSWER)

    grammar = Grammar(regex="a+", gbnf='root ::= "a"+')
    _generate(script, msgspec.structs.replace(REQUEST, sampling=Sampling(grammar=grammar)))
    assert sent[0]["structured_outputs"] == {"regex": "a+"}


def test_bad_words_are_sent_as_texts() -> None:
    sent: list[dict[str, Any]] = []

    def script(path: str, body: dict[str, Any]) -> Reply:
        sent.append(body)
        return Reply(body=ANSWER)

    words = (BadWord(text="one", sequences=((5,),)), BadWord(text="is not", sequences=((6, 7),)))
    _generate(script, msgspec.structs.replace(REQUEST, sampling=Sampling(bad_words=words)))
    assert sent[0]["bad_words"] == ["one", "is not"]


@pytest.mark.parametrize(
    ("reply", "words"),
    [
        (Reply(500, {"error": {"message": "list index out of range"}}), "HTTP 500: list index"),
        (Reply(400, {"error": {"message": "min_p is not supported"}}), "HTTP 400: min_p is not"),
        (Reply(404, "nothing here"), "HTTP 404: nothing here"),
        (Reply(200, "<html>busy</html>"), "no JSON"),
        (Reply(200, ANSWER, cut=40), "connection broke"),
        (Reply(200, json.dumps(ANSWER)[:60]), "no JSON"),
        (Reply(200, {"choices": []}), "no single choice"),
        (Reply(200, {"choices": [{"token_ids": None}]}), "token ids were asked for"),
        (Reply(200, {"choices": [{"token_ids": [1], "logprobs": None}]}), "logprobs were asked"),
        (Reply(reset=True), "connection broke"),
        (Reply(hang=True), "timeout: no answer within 0.5 s"),
    ],
)
def test_a_broken_answer_of_a_live_engine_is_an_error_of_that_request(
    reply: Reply, words: str
) -> None:
    seen = _generate(lambda path, body: reply, timeout=0.5)
    assert words in str(seen.error)
    assert seen.token_ids.size == 0


def test_a_failed_request_is_not_sent_again() -> None:
    calls: list[str] = []

    def script(path: str, body: dict[str, Any]) -> Reply:
        calls.append(path)
        return Reply(500)

    assert _generate(script).error is not None
    assert calls == ["/v1/completions"]


@pytest.mark.parametrize("reply", [Reply(500, "EngineDeadError"), Reply(reset=True)])
def test_a_broken_answer_of_a_dead_engine_is_its_death(reply: Reply) -> None:
    with pytest.raises(EngineDied):
        _generate(lambda path, body: reply, healthy=False)


def test_a_server_that_is_gone_is_a_death() -> None:
    async def run() -> None:
        async with ScriptedServer(lambda path, body: Reply()) as server:
            url = server.url
        client = _client(url)
        assert not await client.healthy()
        for call in (client.facts(), client.counters(), client.reset_prefix_cache()):
            with pytest.raises(EngineDied):
                await call
        with pytest.raises(EngineDied):
            await client.generate(REQUEST, salt="s", logprobs=2)

    asyncio.run(run())


def _prompt_logprobs(rows: list[dict[int, float | None] | None]) -> dict[str, Any]:
    listed = [
        None if row is None else {str(k): {"logprob": v, "rank": 1} for k, v in row.items()}
        for row in rows
    ]
    return {"choices": [{"token_ids": [1], "prompt_logprobs": listed}]}


def test_prefill_values_each_token_after_all_before_it() -> None:
    answer = _prompt_logprobs([None, {6: -0.5}, {7: -4.0, 3: -0.25}, {8: -9999.0, 3: -0.5}])
    wanted = ScoreRequest(id="s1", token_ids=(5, 6, 7, 8), start=2)
    score, bodies = _score(wanted, lambda path, body: Reply(body=answer))
    assert score.error is None
    assert score.token_logprobs.tolist() == [-4.0, -np.inf]
    assert score.best_logprobs.tolist() == [-0.25, -0.5]
    assert score.best_ids.tolist() == [3, 3]
    assert score.regret.tolist() == [3.75, np.inf]
    assert (bodies[0]["prompt_logprobs"], bodies[0]["max_tokens"]) == (1, 1)


def test_prefill_tells_the_best_tokens_where_they_are_wanted() -> None:
    answer = _prompt_logprobs([None, {7: -4.0, 3: -0.25, 9: -2.0}, {8: -0.5, 3: -1.5}])
    wanted = ScoreRequest(id="s1", token_ids=(5, 7, 8), start=1, top=2)
    score, bodies = _score(wanted, lambda path, body: Reply(body=answer))
    assert bodies[0]["prompt_logprobs"] == 2
    assert score.top_ids.tolist() == [[3, 9], [8, 3]]
    assert score.top_logprobs.tolist() == [[-0.25, -2.0], [-0.5, -1.5]]
    assert score.token_logprobs.tolist() == [-4.0, -0.5]


def test_prefill_with_nan_values_nothing_at_that_position() -> None:
    answer = _prompt_logprobs([None, {6: None, 3: -0.5}, {7: -1.0}])
    wanted = ScoreRequest(id="s1", token_ids=(5, 6, 7), start=1)
    score, _ = _score(wanted, lambda path, body: Reply(body=answer))
    assert np.isnan(score.regret[0])
    assert score.regret[1] == 0


def _completion(ids: list[int], rows: list[dict[int, float]], cached: int = 0) -> dict[str, Any]:
    tops = [{f"token_id:{k}": v for k, v in row.items()} for row in rows]
    return {
        "choices": [{"token_ids": ids, "logprobs": {"top_logprobs": tops}}],
        "usage": {"prompt_tokens_details": {"cached_tokens": cached}},
    }


def _top20(*, worst: float = -8.0) -> dict[int, float]:
    return {100 + i: worst * (i + 1) / 20 for i in range(20)}


def test_decode_forces_the_last_but_one_token_and_reads_the_row_after_it() -> None:
    rows = [{7: -1.0}, {7: -12.0, **_top20()}]
    wanted = ScoreRequest(id="s1", token_ids=(5, 6, 7, 119), start=3, evaluation=Evaluation.DECODE)
    score, bodies = _score(wanted, lambda path, body: Reply(body=_completion([7, 7], rows)))
    body = bodies[0]
    assert (body["prompt"], body["allowed_token_ids"], body["max_tokens"]) == ([5, 6], [7], 2)
    assert score.token_logprobs.tolist() == [-8.0]
    assert (score.best_ids.tolist(), score.rows, score.bounded) == ([100], 1, False)


def test_decode_bounds_a_token_outside_the_best_by_the_last_of_them() -> None:
    rows = [{7: -1.0}, {7: -12.0, **_top20(worst=-8.0)}]
    wanted = ScoreRequest(id="s1", token_ids=(5, 6, 7, 3), start=3, evaluation=Evaluation.DECODE)
    score, _ = _score(wanted, lambda path, body: Reply(body=_completion([7, 7], rows)))
    assert score.bounded
    assert score.token_logprobs.tolist() == [-8.0]  # not the forced token's -12


def test_decode_can_value_the_forced_token_itself() -> None:
    rows = [{7: -1.0}, {7: -12.0, **_top20()}]
    wanted = ScoreRequest(id="s1", token_ids=(5, 6, 7, 7), start=3, evaluation=Evaluation.DECODE)
    score, _ = _score(wanted, lambda path, body: Reply(body=_completion([7, 7], rows)))
    assert score.token_logprobs.tolist() == [-12.0]
    assert not score.bounded


def _extend(cached: int, length: int = 70) -> tuple[Score, list[dict[str, Any]]]:
    info = {"vllm_config": {"cache_config": {"block_size": 32}}}

    def script(path: str, body: dict[str, Any]) -> Reply:
        if path == "/version":
            return Reply(body={"version": "0.32.0"})
        if path.startswith("/server_info"):
            return Reply(body=info)
        return Reply(body=_completion([100], [_top20()], cached))

    wanted = ScoreRequest(
        id="s1",
        token_ids=(*range(length), 101),
        start=length,
        evaluation=Evaluation.EXTEND,
    )
    return _score(wanted, script)


def test_extend_primes_the_prefix_and_computes_only_what_follows_its_last_block() -> None:
    score, bodies = _extend(cached=64)
    first, second = (body for body in bodies if "prompt" in body)
    assert first["prompt"] == second["prompt"] == list(range(70))
    assert first["cache_salt"] == second["cache_salt"]
    assert (score.rows, score.error) == (6, None)
    assert score.best_ids.tolist() == [100]


def test_extend_says_so_when_the_prefix_was_not_cached() -> None:
    score, _ = _extend(cached=0)
    assert score.error == "nothing to extend: 70 of 70 tokens were not cached"


@pytest.mark.parametrize("evaluation", [Evaluation.DECODE, Evaluation.EXTEND])
def test_only_the_last_token_is_valued_by_a_single_row(evaluation: Evaluation) -> None:
    wanted = ScoreRequest(id="s1", token_ids=(5, 6, 7, 8), start=2, evaluation=evaluation)
    score, bodies = _score(wanted, lambda path, body: Reply(body=ANSWER))
    assert "last token only" in str(score.error)
    assert not bodies


@given(
    st.dictionaries(st.integers(0, 50), st.floats(-30, 0), min_size=1, max_size=21),
    st.integers(0, 50),
)
def test_a_valuation_never_understates_a_token(row: dict[int, float], token: int) -> None:
    value = answers.valuation(row, token)
    assert value.best == max(row.values())
    assert row[value.best_id] == value.best
    assert value.token <= value.best
    assert value.bounded == (token not in row)
    assert value.token == row.get(token, min(row.values()))


def test_counters_are_summed_over_processes_and_keep_further_labels() -> None:
    text = """
# TYPE vllm:spec_decode_num_draft_tokens counter
vllm:spec_decode_num_draft_tokens_total{engine="0",model_name="target"} 6.0
vllm:spec_decode_num_draft_tokens_total{engine="1",model_name="target"} 3.0
# TYPE vllm:spec_decode_num_accepted_tokens_per_pos counter
vllm:spec_decode_num_accepted_tokens_per_pos_total{engine="0",position="1"} 2.0
# TYPE vllm:e2e_request_latency_seconds histogram
vllm:e2e_request_latency_seconds_bucket{engine="0",le="1.0"} 4.0
vllm:e2e_request_latency_seconds_count{engine="0"} 4.0
vllm:e2e_request_latency_seconds_sum{engine="0"} 1.5
# TYPE python_gc_objects_collected counter
python_gc_objects_collected_total{generation="0"} 99.0
"""
    assert reports.counters(text) == {
        "spec_decode_num_draft_tokens": 9.0,
        "spec_decode_num_accepted_tokens_per_pos.1": 2.0,
        "e2e_request_latency_seconds_count": 4.0,
        "e2e_request_latency_seconds_sum": 1.5,
    }


def test_facts_are_flat_and_survive_a_closed_server_info() -> None:
    assert reports.facts({"version": "0.32.0"}, None) == {"engine": "vllm", "version": "0.32.0"}
    info = {
        "vllm_config": {
            "cache_config": {"block_size": 32, "other": 1},
            "speculative_config": {"method": "ngram"},
        },
        "system_env": {"torch_version": "2.13.0+cpu"},
    }
    facts = reports.facts({"version": "0.32.0"}, info)
    assert facts["block_size"] == 32
    assert facts["speculative_method"] == "ngram"
    assert facts["torch_version"] == "2.13.0+cpu"
    assert "other" not in facts


def test_where_server_info_is_closed_metrics_tell_the_caches_blocks() -> None:
    text = (
        "# TYPE vllm:cache_config_info gauge\n"
        'vllm:cache_config_info{block_size="16",cache_dtype="auto",enable_prefix_caching="True",'
        'engine="0",mamba_block_size="None",num_gpu_blocks="512",sliding_window="None"} 1.0\n'
    )
    assert reports.facts({"version": "0.32.0"}, None, text) == {
        "engine": "vllm", "version": "0.32.0", "block_size": 16, "cache_dtype": "auto",
        "enable_prefix_caching": True, "num_gpu_blocks": 512,
    }  # fmt: skip


def test_no_request_rides_on_a_connection_that_the_server_may_be_closing():
    connections = 0

    async def keep_alive(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        while await reader.readline():
            while (await reader.readline()).strip():
                pass
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
            await writer.drain()
        writer.close()

    async def run() -> None:
        server = await asyncio.start_server(keep_alive, "127.0.0.1", 0)
        client = _client(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        for _ in range(3):
            assert await client.healthy()
        await client.aclose()
        server.close()

    asyncio.run(run())
    assert connections == 3
