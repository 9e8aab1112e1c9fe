"""The llama.cpp client against a scripted double: what is sent, what is made of each answer."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
import numpy as np
import pytest
from scripted_server import Reply, Script, ScriptedServer

from matrixrun.engines import get
from matrixrun.engines.llamacpp import reports
from matrixrun.engines.llamacpp.client import LlamaCppClient
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

REQUEST = Request(id="r1", prompt="p1", category="natural", token_ids=(5, 6, 7), max_tokens=6)


def chunk(
    count: int,
    ids: list[int],
    text: str,
    *,
    draft: tuple[int, int] = (0, 0),
    row: list[tuple[int, float]] | None = None,
    stop: str | None = None,
) -> dict[str, Any]:
    """A part of a stream as the server writes it."""
    timings: dict[str, Any] = {"cache_n": 2, "prompt_n": 1}
    if draft[0]:
        timings |= {"draft_n": draft[0], "draft_n_accepted": draft[1]}
    part: dict[str, Any] = {
        "content": text, "tokens": ids, "stop": stop is not None,
        "tokens_predicted": count, "tokens_evaluated": 3, "timings": timings,
    }  # fmt: skip
    if row:
        part["completion_probabilities"] = [entry(ids[0], row)]
    if stop:
        part["stop_type"] = stop
    return part


def entry(token: int, row: list[tuple[int, float]]) -> dict[str, Any]:
    own = dict(row).get(token, -9.0)
    tops = [{"id": key, "logprob": value} for key, value in row]
    return {"id": token, "logprob": own, "top_logprobs": tops}


def stream(*parts: dict[str, Any]) -> str:
    return "".join(f"data: {json.dumps(part)}\n\n" for part in parts)


OFF = stream(
    chunk(1, [11], "a", row=[(11, -0.5), (9, -1.5)]),
    chunk(2, [12], "b", row=[(12, -0.25), (8, -3.0)]),
    chunk(2, [], "", stop="eos"),
)
ON = stream(
    chunk(1, [11], "a", row=[(11, -0.5), (9, -1.5)]),
    chunk(2, [12], "b", draft=(4, 1)),
    chunk(3, [13], "c", draft=(4, 1)),
    chunk(4, [14], "d", draft=(8, 1)),
    chunk(5, [15], "e", draft=(10, 2)),
    chunk(6, [16], "f", draft=(10, 2)),
    chunk(6, [], "", draft=(10, 2), stop="limit"),
)


def serving(completion: Callable[[dict[str, Any]], Reply], *, speculative: bool = False) -> Script:
    def script(path: str, body: dict[str, Any]) -> Reply:
        if path == "/slots":
            return Reply(body=json.dumps([{"id": 0, "speculative": speculative}]))
        if path == "/completion":
            return completion(body)
        if path == "/tokenize":
            return Reply(body={"tokens": [97]})
        return Reply(body={})

    return script


def talk(
    script: Script, say: Callable[[LlamaCppClient], Awaitable[Any]], *, timeout: float = 5.0,
    healthy: bool = True,
) -> tuple[Any, list[dict[str, Any]]]:  # fmt: skip
    async def run() -> tuple[Any, list[dict[str, Any]]]:
        async with ScriptedServer(script, healthy=healthy) as server:
            client = LlamaCppClient(server.url, "the-key", request_timeout=timeout)
            try:
                return await say(client), server.bodies
            finally:
                await client.aclose()

    return asyncio.run(run())


def generate(answer: Reply, **options: Any) -> Observation:
    speculative = options.pop("speculative", False)
    script = serving(lambda _: answer, speculative=speculative)
    return talk(script, lambda c: c.generate(REQUEST, salt="s", logprobs=2), **options)[0]


def score(script: Script, request: ScoreRequest) -> tuple[Score, list[dict[str, Any]]]:
    return talk(script, lambda c: c.score(request, salt="s"))


def test_an_answer_of_the_off_arm() -> None:
    seen = generate(Reply(body=OFF))
    assert seen.error is None
    assert seen.token_ids.tolist() == [11, 12]
    assert seen.logprobs.tolist() == [-0.5, -0.25]
    assert seen.top_ids.tolist() == [[11, 9], [12, 8]]
    assert (seen.text, seen.finish_reason, seen.cached_tokens) == ("ab", "stop", 2)
    assert seen.drafted.size == 0


def test_verification_steps_are_told_apart_by_the_running_sums() -> None:
    seen = generate(Reply(body=ON), speculative=True)
    assert seen.drafted.tolist() == [4, 4, 2]
    assert seen.accepted.tolist() == [1, 0, 1]
    assert seen.token_ids.tolist() == [11, 12, 13, 14, 15, 16]
    assert seen.finish_reason == "length"


def test_a_server_that_speculates_has_no_logprobs_rather_than_zeros() -> None:
    parts = [json.loads(line[6:]) for line in ON.splitlines() if line]
    parts[1]["completion_probabilities"] = [{"id": 12, "logprob": 0.0, "top_logprobs": []}]
    seen = generate(Reply(body=stream(*parts)), speculative=True)
    assert np.isnan(seen.logprobs).all()
    assert np.isnan(seen.top_logprobs).all()
    assert (seen.top_ids == -1).all()


def test_tokens_that_end_inside_a_character_are_fetched_and_must_fit() -> None:
    parts = stream(chunk(1, [11], "a"), chunk(3, [13], "é"), chunk(3, [], "", stop="limit"))

    def answer(tokens: list[int]) -> Callable[[dict[str, Any]], Reply]:
        def completion(body: dict[str, Any]) -> Reply:
            whole = {"tokens": tokens, "content": "aé"}
            return Reply(body=parts) if body["stream"] else Reply(body=whole)

        return completion

    def ask(client: LlamaCppClient) -> Awaitable[Observation]:
        return client.generate(REQUEST, salt="s", logprobs=0)

    seen, _ = talk(serving(answer([11, 12, 13])), ask)
    assert (seen.error, seen.token_ids.tolist()) == (None, [11, 12, 13])
    seen, _ = talk(serving(answer([10, 12, 13])), ask)
    assert "answered otherwise" in seen.error


def test_every_sampling_field_is_sent_and_top_k_is_not_left_to_the_server() -> None:
    _, bodies = talk(
        serving(lambda _: Reply(body=OFF)), lambda c: c.generate(REQUEST, salt="s", logprobs=2)
    )
    sent = bodies[2]  # after the slots were listed and erased
    assert sent["prompt"] == [5, 6, 7]
    assert (sent["temperature"], sent["top_k"], sent["top_p"], sent["min_p"]) == (0.0, 0, 1.0, 0.0)
    assert (sent["repeat_penalty"], sent["seed"], sent["ignore_eos"]) == (1.0, 0, False)
    assert "cache_prompt" not in sent  # the arm's own flag decides


def test_a_grammar_is_sent_in_the_engines_own_spelling() -> None:
    grammar = Grammar(regex="a+", gbnf='root ::= "a"+')
    request = msgspec.structs.replace(REQUEST, sampling=Sampling(grammar=grammar))
    _, bodies = talk(
        serving(lambda _: Reply(body=OFF)), lambda c: c.generate(request, salt="s", logprobs=2)
    )
    sent = bodies[2]
    assert sent["grammar"] == 'root ::= "a"+'


def test_slots_are_erased_when_the_salt_changes_and_only_then() -> None:
    paths: list[str] = []
    inner = serving(lambda _: Reply(body=OFF))

    def script(path: str, body: dict[str, Any]) -> Reply:
        paths.append(path)
        return inner(path, body)

    async def say(client: LlamaCppClient) -> None:
        for salt in ("one", "one", "two"):
            await client.generate(REQUEST, salt=salt, logprobs=0)

    talk(script, say)
    assert paths.count("/slots/0?action=erase") == 2


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (Reply(400, {"error": {"message": "Prompt contains invalid tokens"}}), "invalid tokens"),
        (Reply(500, "boom"), "HTTP 500: boom"),
        (Reply(body="data: {not json"), "no JSON"),
        (Reply(body='data: {"error": {"code": 500, "message": "no slot"}}\n\n'), "500: no slot"),
        (Reply(body='data: {"content": "a"}\n\n'), "without a token count"),
        (Reply(body='data: {"tokens_predicted": 1, "tokens": ["x"]}\n\n'), "token ids"),
        (Reply(body=stream(chunk(1, [11], "a"))), "broke off before its end"),
        (Reply(body=ON, cut=40), "connection broke"),
        (Reply(reset=True), "connection broke"),
        (Reply(body=stream(chunk(1, [11], "a", draft=(1, 2)))), "2 tokens accepted of 1"),
        (Reply(body=stream(chunk(1, [11, 12], "a"))), "2 tokens at 1"),
    ],
)
def test_a_broken_answer_is_an_error_of_its_request(answer: Reply, words: str) -> None:
    seen = generate(answer)
    assert seen.error is not None
    assert words in seen.error


def test_a_hanging_request_ends_in_time() -> None:
    assert "timeout" in (generate(Reply(hang=True), timeout=0.3).error or "")


def test_a_dead_engine_is_no_failed_request() -> None:
    with pytest.raises(EngineDied):
        generate(Reply(reset=True), healthy=False)


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(stop_token_ids=(3,)),
        Sampling(bad_words=(BadWord(text="is not", sequences=((6, 7),)),)),
    ],
)
def test_settings_that_have_no_field_are_an_error(sampling: Sampling) -> None:
    request = Request(
        id="r", prompt="p", category="c", token_ids=(1,), max_tokens=1, sampling=sampling
    )
    seen, _ = talk(serving(lambda _: Reply(body=OFF)),
                   lambda c: c.generate(request, salt="s", logprobs=0))  # fmt: skip
    assert "not expressible" in seen.error


def scorer(rows: list[tuple[int, float]], silent: frozenset[int] = frozenset()) -> Script:
    """A server that answers as one that holds a cache: it computes what is new in the slot."""
    held: list[int] = []

    def completion(body: dict[str, Any]) -> Reply:
        prompt = body["prompt"]
        same = 0
        while body["cache_prompt"] and same < min(len(held), len(prompt) - 1):
            if held[same] != prompt[same]:
                break
            same += 1
        held[:] = prompt
        token = body.get("logit_bias", [[rows[0][0], 0]])[0][0]
        found = [] if token in silent else [entry(token, rows[: max(1, body.get("n_probs", 0))])]
        timings = {"prompt_n": len(prompt) - same}
        return Reply(body={"completion_probabilities": found, "timings": timings})

    return serving(completion)


ROWS = [(1, -0.5), (2, -1.5), (3, -2.5)]


def test_decode_values_by_one_row_and_extend_by_as_many_as_asked() -> None:
    text = tuple(range(1, 31))
    for evaluation, rows, expected in (
        (Evaluation.DECODE, 0, 1),
        (Evaluation.EXTEND, 5, 5),
        (Evaluation.EXTEND, 0, 9),
    ):
        request = ScoreRequest(id="x", token_ids=text, start=29, evaluation=evaluation, rows=rows)
        found, _ = score(scorer(ROWS), request)
        assert (found.error, found.rows) == (None, expected)
        assert found.token_logprobs.tolist() == [-9.0]  # forced, so its own logprob is exact
        assert found.best_logprobs.tolist() == [-0.5]
        assert not found.bounded


def test_a_prefill_score_computes_many_rows_for_each_of_its_tokens() -> None:
    request = ScoreRequest(id="x", token_ids=tuple(range(1, 61)), start=20)
    found, bodies = score(scorer(ROWS), request)
    assert (found.error, found.rows, found.token_logprobs.size) == (None, 9, 40)
    forced = [body["logit_bias"][0][0] for body in bodies if body.get("logit_bias")]
    assert sorted(forced) == list(range(21, 61))


def test_a_token_that_cannot_be_forced_is_looked_up_or_bounded() -> None:
    text = tuple(range(10, 40))
    for last, expected, bounded in ((3, -2.5, False), (77, -2.5, True)):
        request = ScoreRequest(
            id="x", token_ids=(*text, last), start=30, evaluation=Evaluation.DECODE
        )
        found, _ = score(scorer(ROWS, frozenset({last})), request)
        assert (found.error, found.bounded) == (None, bounded)
        assert found.token_logprobs.tolist() == [expected]


@pytest.mark.parametrize(("start", "evaluation"), [
    (0, Evaluation.PREFILL), (3, Evaluation.PREFILL), (1, Evaluation.DECODE),
])  # fmt: skip
def test_what_cannot_be_scored_is_an_error(start: int, evaluation: Evaluation) -> None:
    request = ScoreRequest(id="x", token_ids=(1, 2, 3), start=start, evaluation=evaluation)
    assert score(scorer(ROWS), request)[0].error is not None


def test_facts_say_whether_the_server_speculates() -> None:
    props = {"model_ftype": "BF16", "build_info": "b1", "total_slots": 2}
    models = {"data": [{"meta": {"n_vocab": 512}}]}
    found = reports.facts(props, [{"speculative": False}, {"speculative": True}], models)
    assert (found["speculative"], found["dtype"], found["n_vocab"]) == (True, "bfloat16", 512)
    assert found["logprobs_when_speculating"].startswith("withheld")
    assert "dtype" not in reports.facts({"model_ftype": "Q4_K - Medium"}, None, None)


def test_counters_have_the_names_that_the_judge_knows() -> None:
    text = (
        "# TYPE llamacpp:spec_decode_num_drafts_total counter\n"
        "llamacpp:spec_decode_num_drafts_total 10\n"
        "# TYPE llamacpp:spec_decode_num_accepted_tokens_per_pos_total counter\n"
        'llamacpp:spec_decode_num_accepted_tokens_per_pos_total{position="1"} 3\n'
    )
    assert reports.counters(text) == {
        "spec_decode_num_drafts": 10.0,
        "spec_decode_num_accepted_tokens_per_pos.1": 3.0,
    }


def test_a_build_without_a_number_has_the_version_of_the_package_that_it_is_in() -> None:
    assert (
        reports.facts({"build_info": "b9876-0123abcd"}, None, None)["version"] == "b9876-0123abcd"
    )
    assert reports.facts({"build_info": "b0-unknown"}, None, None)["version"] is None
    log = "load: b0\nin_process.py: xllamacpp 2026.10.11549\nmain: server is listening\n"
    assert get("llamacpp").logged_facts(log) == {
        "package": "xllamacpp",
        "version": "2026.10.11549",
    }
    assert get("llamacpp").logged_facts("in_process.py: listening on http://x\n") == {}
