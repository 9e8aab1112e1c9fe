"""The SGLang client against a scripted double: what is sent, what is made of each answer."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted_server import Reply, Script, ScriptedServer

from matrixrun.engines.sglang import answers, reports
from matrixrun.engines.sglang.client import SGLangClient
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

REQUEST = Request(id="r1", prompt="p1", category="natural", token_ids=(5, 6, 7), max_tokens=9)
CHAIN = {
    "version": "0.5.23", "speculative_algorithm": "NGRAM", "speculative_num_draft_tokens": 4,
    "speculative_num_steps": 4, "speculative_eagle_topk": 1,
}  # fmt: skip


def part(ids: list[int], total: int, *, finish: str | None = None, **meta: Any) -> dict[str, Any]:
    """A part of a stream as SGLang writes it, logprobs of the tokens in it included."""
    own = [[-0.5, token, None] for token in ids]
    tops = [[[-0.5, token, None], [-1.5, token + 100, None]] for token in ids]
    account: dict[str, Any] = {
        "id": "x", "finish_reason": None, "prompt_tokens": 3, "completion_tokens": total,
        "cached_tokens": 2, "output_token_logprobs": own, "output_top_logprobs": tops,
    }  # fmt: skip
    if finish:
        account["finish_reason"] = {"type": finish, "length": total}
    return {"text": f"<{len(ids)}>", "output_ids": ids, "meta_info": account | meta}


def stream(*parts: dict[str, Any]) -> str:
    return "".join(f"data: {json.dumps(one)}\n\n" for one in parts) + "data: [DONE]\n\n"


OFF = stream(part([11], 1), part([12], 2, finish="stop"))
# Steps accepted 2, 0, 3 drafts; the last one emits two tokens, since the ninth is the limit.
COUNTS = {"spec_verify_ct": 3, "spec_correct_drafts_histogram": [1, 0, 1, 1]}
ON = stream(
    part([11], 1),
    part([12, 13, 14], 4),
    part([15], 5),
    part([16, 17], 7, finish="length", **COUNTS),
)


def serving(generate: Callable[[dict[str, Any]], Reply], info: dict[str, Any]) -> Script:
    def script(path: str, body: dict[str, Any]) -> Reply:
        if path == "/server_info":
            return Reply(body=info)
        if path == "/generate":
            return generate(body)
        assert path.startswith("/flush_cache")
        return Reply(body="Cache flushed.")

    return script


def talk(
    script: Script, say: Callable[[SGLangClient], Awaitable[Any]], *, timeout: float = 5.0,
    healthy: bool = True,
) -> tuple[Any, list[dict[str, Any]]]:  # fmt: skip
    async def run() -> tuple[Any, list[dict[str, Any]]]:
        async with ScriptedServer(script, healthy=healthy) as server:
            client = SGLangClient(server.url, "the-key", request_timeout=timeout)
            try:
                return await say(client), server.bodies
            finally:
                await client.aclose()

    return asyncio.run(run())


def generate(answer: Reply, info: dict[str, Any] | None = None, **options: Any) -> Observation:
    script = serving(lambda _: answer, info or {})
    return talk(script, lambda c: c.generate(REQUEST, salt="s", logprobs=2), **options)[0]


def test_an_answer_of_the_off_arm() -> None:
    seen = generate(Reply(body=OFF))
    assert seen.error is None
    assert (seen.request, seen.prompt, seen.category) == ("r1", "p1", "natural")
    assert seen.token_ids.tolist() == [11, 12]
    assert seen.logprobs.tolist() == [-0.5, -0.5]
    assert seen.top_ids.tolist() == [[11, 111], [12, 112]]
    assert seen.top_logprobs.tolist() == [[-0.5, -1.5], [-0.5, -1.5]]
    assert (seen.text, seen.finish_reason) == ("<1><1>", "stop")
    assert (seen.prompt_tokens, seen.cached_tokens) == (3, 2)
    assert 0 < seen.first_token <= seen.finished
    assert seen.drafted.size == 0


@pytest.mark.parametrize("odd", ["\u2028", "\x85", "\u2029"])
def test_a_text_may_hold_what_python_takes_for_the_end_of_a_line(odd: str) -> None:
    whole = part([11], 1, finish="stop") | {"text": f"a{odd}b"}
    seen = generate(Reply(body=f"data: {json.dumps(whole, ensure_ascii=False)}\n\n"))
    assert (seen.error, seen.text) == (None, f"a{odd}b")


def test_steps_are_in_the_order_of_the_stream_and_the_last_one_is_counted_whole() -> None:
    seen = generate(Reply(body=ON), CHAIN)
    assert seen.accepted.tolist() == [2, 0, 3]
    assert seen.drafted.tolist() == [3, 3, 3]
    assert seen.steps_ordered


def test_parts_that_came_together_leave_the_steps_without_an_order() -> None:
    merged = stream(
        part([11], 1), part([12, 13, 14, 15], 5), part([16, 17], 7, finish="length", **COUNTS)
    )
    seen = generate(Reply(body=merged), CHAIN)
    assert sorted(seen.accepted.tolist()) == [0, 2, 3]
    assert not seen.steps_ordered


def test_a_stream_that_does_not_fit_the_engines_counts_gives_no_order() -> None:
    counts = {"spec_verify_ct": 3, "spec_correct_drafts_histogram": [2, 0, 0, 1]}
    odd = stream(
        part([11], 1), part([12, 13, 14], 4), part([15], 5), part([16], 6, finish="stop", **counts)
    )
    seen = generate(Reply(body=odd), CHAIN)
    assert seen.accepted.tolist() == [0, 0, 3]
    assert not seen.steps_ordered


@given(st.lists(st.integers(0, 4), min_size=1, max_size=12), st.data())
def test_any_stream_of_one_part_a_step_tells_the_steps(
    accepted: list[int], data: st.DataObject
) -> None:
    kept = data.draw(st.integers(0, accepted[-1]))
    sizes = [1, *(count + 1 for count in accepted[:-1]), kept + 1]
    histogram = [accepted.count(k) for k in range(max(accepted) + 1)]
    emission, total = answers.Emission(), 0
    for number, size in enumerate(sizes):
        total += size
        last = number == len(sizes) - 1
        meta = {"spec_correct_drafts_histogram": histogram} if last else {}
        one = part([7] * size, total, finish="length" if last else None, **meta)
        emission.add(one, 0.1, logprobs=0)
    seen = emission.observation(REQUEST, logprobs=0, offered=4, seconds=1.0)
    assert (seen.accepted.tolist(), seen.steps_ordered) == (accepted, True)


def test_a_server_that_sends_everything_so_far_each_time_is_understood_too() -> None:
    whole = stream(
        part([11], 1), part([11, 12, 13], 3),
        part([11, 12, 13, 14], 4, finish="length", spec_correct_drafts_histogram=[1, 1]),
    )  # fmt: skip
    seen = generate(Reply(body=whole), CHAIN)
    assert seen.token_ids.tolist() == [11, 12, 13, 14]
    assert seen.logprobs.size == len(seen.top_ids) == 4
    assert (seen.text, seen.accepted.tolist()) == ("<4>", [1, 0])


def test_a_tree_offers_its_depth_and_what_adapts_is_unknown() -> None:
    tree = CHAIN | {
        "speculative_algorithm": "EAGLE3", "speculative_eagle_topk": 4,
        "speculative_num_steps": 3, "speculative_num_draft_tokens": 16,
    }  # fmt: skip
    assert generate(Reply(body=ON), tree).drafted.tolist() == [3, 3, 3]
    adaptive = generate(Reply(body=ON), tree | {"speculative_adaptive": True})
    assert (adaptive.error, adaptive.drafted.size) == (None, 0)


def test_every_sampling_field_is_sent() -> None:
    script = serving(lambda _: Reply(body=OFF), {})
    _, bodies = talk(script, lambda c: c.generate(REQUEST, salt="s", logprobs=2))
    sent = bodies[-1]
    assert (sent["input_ids"], sent["extra_key"], sent["stream"]) == ([5, 6, 7], "s", True)
    assert (sent["return_logprob"], sent["top_logprobs_num"]) == (True, 2)
    params = sent["sampling_params"]
    fields = set(Sampling.__struct_fields__) - {
        "allowed_token_ids", "bad_words", "grammar", "seed", "min_tokens"
    }  # fmt: skip
    assert fields | {"sampling_seed", "max_new_tokens", "min_new_tokens"} <= set(params)
    assert (params["temperature"], params["top_k"], params["repetition_penalty"]) == (0.0, -1, 1.0)


def test_a_grammar_is_sent_in_the_engines_own_spelling() -> None:
    grammar = Grammar(regex="a+", gbnf='root ::= "a"+')
    request = msgspec.structs.replace(REQUEST, sampling=Sampling(grammar=grammar))
    _, bodies = talk(
        serving(lambda _: Reply(body=OFF), {}), lambda c: c.generate(request, salt="s", logprobs=2)
    )
    sent = bodies[-1]
    assert sent["sampling_params"]["regex"] == "a+"


def test_bad_words_are_an_error_of_the_request() -> None:
    words = (BadWord(text="is not", sequences=((6, 7),)),)
    request = msgspec.structs.replace(REQUEST, sampling=Sampling(bad_words=words))
    seen, _ = talk(
        serving(lambda _: Reply(body=OFF), {}), lambda c: c.generate(request, salt="s", logprobs=2)
    )
    assert "bad words of several tokens are not expressible" in (seen.error or "")


def test_everything_is_flushed_when_the_salt_changes_and_only_then() -> None:
    paths: list[str] = []
    inner = serving(lambda _: Reply(body=OFF), {})

    def script(path: str, body: dict[str, Any]) -> Reply:
        paths.append(path)
        return inner(path, body)

    async def say(client: SGLangClient) -> None:
        for salt in ("one", "one", "two"):
            await client.generate(REQUEST, salt=salt, logprobs=0)

    talk(script, say)
    assert [path for path in paths if path.startswith("/flush_cache")] == (
        ["/flush_cache?timeout=20"] * 2
    )


ABORTED = {"finish_reason": {"type": "abort", "message": "out of memory", "status_code": 503}}


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Reply(400, {"error": {"message": "The input is too long"}}), "HTTP 400: The input is too"),
        (Reply(500, "boom"), "HTTP 500: boom"),
        (Reply(body="data: {not json\n\n"), "no JSON"),
        (Reply(body='data: {"error": {"code": 400, "message": "too long"}}\n\n'), "400: too long"),
        (Reply(body='data: {"output_ids": [1]}\n\n'), "no single answer"),
        (Reply(body=stream({"output_ids": [1], "meta_info": {}})), "without a token count"),
        (Reply(body=stream(part([11], 1) | {"output_ids": None})), "token ids were asked for"),
        (Reply(body=stream(part([11, 12], 3))), "2 tokens at 3 after 0"),
        (Reply(body=stream(part([11], 1, output_token_logprobs=None))), "logprobs were asked"),
        (Reply(body=stream(part([11], 1, output_token_logprobs=[[-1, 9, None]]))), "logprobs of"),
        (Reply(body=stream(part([11], 1, output_token_logprobs=[["x"]]))), "without ids"),
        (Reply(body=stream(part([11], 1, **ABORTED))), "aborted: out of memory"),
        (Reply(body=stream(part([11], 1))), "broke off before its end"),
        (Reply(body=ON, cut=40), "connection broke"),
        (Reply(reset=True), "connection broke"),
    ],
)
def test_a_broken_answer_is_an_error_of_its_request(answer: Reply, words: str) -> None:
    seen = generate(answer)
    assert words in str(seen.error)
    assert seen.token_ids.size == 0


def test_more_accepted_than_drafted_is_an_error() -> None:
    counts = {"spec_correct_drafts_histogram": [0, 0, 0, 0, 1]}
    body = stream(part([11], 1), part([1, 2, 3, 4, 5], 6, finish="length", **counts))
    assert "4 tokens accepted of 3 drafted" in str(generate(Reply(body=body), CHAIN).error)


def test_a_hanging_request_ends_in_time() -> None:
    assert "timeout" in (generate(Reply(hang=True), timeout=0.3).error or "")


def test_a_dead_engine_is_no_failed_request() -> None:
    with pytest.raises(EngineDied):
        generate(Reply(reset=True), healthy=False)


def test_a_cache_that_is_not_flushed_is_no_clean_pass() -> None:
    def script(path: str, body: dict[str, Any]) -> Reply:
        return Reply(body={}) if path == "/server_info" else Reply(400, "requests are running")

    with pytest.raises(EngineDied, match="requests are running"):
        talk(script, lambda c: c.generate(REQUEST, salt="s", logprobs=0))


# ---- scores ----


LOGITS = {1: 2.0, 2: 1.0, 3: -1.0, 4: 0.5}


def logprobs(bias: dict[int, float]) -> dict[int, float]:
    """What a model with these logits everywhere gives under a bias."""
    logits = {token: value + bias.get(token, 0.0) for token, value in LOGITS.items()}
    whole = math.log(sum(math.exp(value) for value in logits.values()))
    return {token: value - whole for token, value in logits.items()}


def model(cached: Callable[[dict[str, Any]], int]) -> Script:
    """A server that values every position by LOGITS, as SGLang words it."""

    def generate(body: dict[str, Any]) -> Reply:
        params, ids = body["sampling_params"], body["input_ids"]
        bias = {int(key): value for key, value in params.get("logit_bias", {}).items()}
        row = logprobs(bias)
        best = max(row, key=lambda key: row[key])
        count = params["max_new_tokens"]
        ranked = sorted(row, key=lambda key: -row[key])[: body["top_logprobs_num"]]
        top = [[row[token], token, None] for token in ranked]
        asked = [[row[token], token, None] for token in body.get("token_ids_logprob", [])]
        meta: dict[str, Any] = {
            "finish_reason": {"type": "length"},
            "completion_tokens": count,
            "cached_tokens": cached(body),
            "output_token_logprobs": top[:1] * count,
            "output_top_logprobs": [top] * count,
            "output_token_ids_logprobs": [asked] * count,
        }
        start = body.get("logprob_start_len", -1)
        if start >= 0:
            own = [[row[token], token, None] for token in ids[start:]]
            meta["input_token_logprobs"] = [[None, ids[start], None], *own[1:]]
            meta["input_top_logprobs"] = [None, *[top] * (len(own) - 1)]
        return Reply(body={"text": "", "output_ids": [best] * count, "meta_info": meta})

    return serving(generate, {})


def score(request: ScoreRequest, cached: int = 0) -> tuple[Score, list[dict[str, Any]]]:
    found, bodies = talk(model(lambda _: cached), lambda c: c.score(request, salt="s"))
    return found, [body for body in bodies if "input_ids" in body]


def test_a_prefill_values_every_token_of_a_text_and_emits_none() -> None:
    found, bodies = score(ScoreRequest(id="x", token_ids=(1, 2, 3, 4, 1), start=2), cached=1)
    row = logprobs({})
    assert (found.error, found.rows, found.bounded) == (None, 4, False)
    assert found.token_logprobs == pytest.approx([row[3], row[4], row[1]])
    assert found.best_ids.tolist() == [1, 1, 1]
    assert bodies[0]["logprob_start_len"] == 1
    assert bodies[0]["sampling_params"]["max_new_tokens"] == 0


def test_a_decoded_row_needs_no_bias_where_the_target_says_the_same() -> None:
    request = ScoreRequest(id="x", token_ids=(4, 4, 1, 3), start=3, evaluation=Evaluation.DECODE)
    found, bodies = score(request)
    assert (found.error, found.rows, len(bodies)) == (None, 1, 1)
    assert bodies[0]["input_ids"] == [4, 4]
    assert found.token_logprobs == pytest.approx([logprobs({})[3]])


@pytest.mark.parametrize(("forced", "token"), [(3, 2), (3, 3), (2, 1), (4, 3)])
def test_a_decoded_row_after_a_forced_token_is_as_it_would_be_without_the_force(
    forced: int, token: int
) -> None:
    request = ScoreRequest(
        id="x", token_ids=(4, 4, forced, token), start=3, evaluation=Evaluation.DECODE
    )
    found, bodies = score(request)
    assert (found.error, len(bodies)) == (None, 2)
    assert found.token_logprobs == pytest.approx([logprobs({})[token]], abs=1e-5)
    assert found.best_logprobs == pytest.approx([logprobs({})[1]], abs=1e-5)


@given(st.floats(0.0, 12.0), st.sampled_from(sorted(LOGITS)))
def test_taking_a_bias_away_gives_the_row_without_it(bias: float, forced: int) -> None:
    found = answers.without_bias(logprobs({forced: bias}), forced, bias)
    assert found == pytest.approx(logprobs({}), abs=1e-6)


def test_an_extension_computes_what_is_left_out_of_the_cache() -> None:
    text = tuple([1, 2, 3, 4] * 5)
    request = ScoreRequest(id="x", token_ids=text, start=19, evaluation=Evaluation.EXTEND, rows=4)
    found, bodies = score(request, cached=15)
    assert [len(body["input_ids"]) for body in bodies] == [15, 19]
    assert bodies[0]["extra_key"] == bodies[1]["extra_key"]
    assert (found.error, found.rows) == (None, 4)
    assert found.token_logprobs == pytest.approx([logprobs({})[4]])
    assert "nothing to extend" in str(score(request, cached=0)[0].error)


def test_one_score_leaves_nothing_for_the_next_one_to_find() -> None:
    async def say(client: SGLangClient) -> None:
        for _ in range(2):
            await client.score(ScoreRequest(id="x", token_ids=(1, 2, 3), start=1), salt="s")

    _, bodies = talk(model(lambda _: 0), say)
    keys = [body["extra_key"] for body in bodies if "input_ids" in body]
    assert len(set(keys)) == len(keys) == 2


@pytest.mark.parametrize(
    ("start", "evaluation"),
    [
        *((0, Evaluation.PREFILL), (3, Evaluation.PREFILL), (1, Evaluation.DECODE)),
        *((1, Evaluation.EXTEND), (2, Evaluation.EXTEND)),
    ],
)
def test_what_cannot_be_scored_is_an_error(start: int, evaluation: Evaluation) -> None:
    request = ScoreRequest(id="x", token_ids=(1, 2, 3), start=start, evaluation=evaluation)
    found, _ = score(request)
    assert found.error is not None
    assert found.token_logprobs.size == 0


# ---- reports ----


def test_facts_name_speculation_only_where_there_is_some() -> None:
    defaults = {"speculative_attention_mode": "prefill", "speculative_accept_threshold_acc": 1.0}
    off = reports.facts(
        {"version": "0.5.23", "page_size": 1, "speculative_algorithm": None, **defaults}
    )
    assert off == {"engine": "sglang", "version": "0.5.23", "page_size": 1}
    on = reports.facts(CHAIN | defaults)
    assert on["speculative_algorithm"] == "NGRAM"
    assert on["speculative_attention_mode"] == "prefill"


def test_counters_are_summed_over_processes_and_settings_are_none() -> None:
    text = (
        "# TYPE sglang:spec_verify_calls_total counter\n"
        'sglang:spec_verify_calls_total{model_name="m",tp_rank="0"} 10\n'
        'sglang:spec_verify_calls_total{model_name="m",tp_rank="1"} 3\n'
        "# TYPE sglang:spec_num_draft_tokens gauge\n"
        'sglang:spec_num_draft_tokens{model_name="m"} 4\n'
        "# TYPE sglang:cached_tokens_total counter\n"
        'sglang:cached_tokens_total{cache_source="device",model_name="m"} 7\n'
    )
    assert reports.counters(text) == {
        "spec_verify_calls": 13.0,
        "spec_decode_num_drafts": 13.0,
        "cached_tokens.device": 7.0,
    }


def test_a_missing_logprob_is_no_number() -> None:
    body = stream(part([11], 1, finish="stop", output_token_logprobs=[[None, 11, None]]))
    assert np.isnan(generate(Reply(body=body)).logprobs).all()
