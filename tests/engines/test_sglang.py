"""A real SGLang server on CPU with stand-in kernels (`sglang_cpu`): its arguments, processes, HTTP,
scheduler, radix cache and speculation workers are its own, attention and the walk along draft trees
are not. Its environment is 2.8 GB, hence the tier:

    pytest -m long tests/engines/test_sglang.py
"""

from __future__ import annotations

import asyncio
import random
import runpy
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from sglang_arms import DRAFT, NGRAM, OFF

from matrixrun import models
from matrixrun.engines import Client, Environment, Server, get, prepare, run_pass
from matrixrun.evidence.cells import Speculation
from matrixrun.evidence.errors import EngineRefused
from matrixrun.evidence.launches import Arm, ArmConfig, Checkpoint, Limits
from matrixrun.evidence.requests import (
    Evaluation,
    Observation,
    Pass,
    Request,
    Sampling,
    Score,
    ScoreRequest,
)
from matrixrun.judge.grammar import GRAMMAR, misfit

pytestmark = [pytest.mark.long, pytest.mark.timeout(1200)]

SGLANG = get("sglang")
TOKENS = 40
ROUNDING = 1e-3  # nats, float32: sums of one row and of many are not made in the same order
# float32, so that a token that differs is a fault and not a tie.
OFF_ARM = msgspec.structs.replace(
    OFF, dtype="float32", limits=Limits(max_model_len=512, max_num_seqs=4)
)
DRAFTS = {"draft": "builtin:tiny-dense/draft"}


def on_arm(speculation: Speculation, **changes: Any) -> ArmConfig:
    path = DRAFTS.get(speculation.draft or "")
    draft = None if path is None else Checkpoint(path=path)
    return msgspec.structs.replace(
        OFF_ARM, arm=Arm.ON, speculation=speculation, draft=draft, **changes
    )


@pytest.fixture(scope="module")
def environment(cache: Path) -> Environment:
    """SGLang itself and the stand-in kernels; the first use builds it, in some minutes."""
    return prepare(OFF.recipe, cache=cache, timeout=3600, on_line=print)


Started = Callable[[ArmConfig], Any]


@pytest.fixture(scope="module")
def started(
    environment: Environment, cache: Path, tmp_path_factory: pytest.TempPathFactory
) -> Started:
    """Starts a server of an arm; use it in a `with`."""

    @contextmanager
    def start(config: ArmConfig) -> Iterator[Server]:
        def local(checkpoint: Checkpoint | None) -> str | None:
            if checkpoint is None:
                return None
            return str(models.build(checkpoint.path, environment.python, cache, print))

        target = local(config.target)
        assert target is not None
        with Server(
            SGLANG.command(config), environment, engine=SGLANG, target=target,
            draft=local(config.draft), log_path=tmp_path_factory.mktemp("logs") / "engine.log",
            ready_timeout=600,
        ) as server:  # fmt: skip
            yield server

    return start


def talk(server: Server, say: Callable[[Client], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        client = server.client(request_timeout=120)
        try:
            return await say(client)
        finally:
            await client.aclose()

    return asyncio.run(run())


def requests(count: int = 8) -> tuple[Request, ...]:
    """Prompts that repeat themselves, so that n-gram lookup has something to find."""
    chance = random.Random(3)
    phrases = [[chance.randrange(32, 120) for _ in range(5 + i)] for i in range(count)]
    return tuple(
        Request(
            id=f"r{i}", prompt=f"p{i}", category="copy", token_ids=tuple(phrase * 6)[: 30 + i],
            max_tokens=TOKENS, sampling=Sampling(ignore_eos=True),
        )
        for i, phrase in enumerate(phrases)
    )  # fmt: skip


def answers(
    server: Server,
    salt: str = "answers",
    concurrency: int = 2,
    sent: tuple[Request, ...] | None = None,
) -> list[Observation]:
    asked = requests() if sent is None else sent
    pass_ = Pass(id="equality", requests=asked, concurrency=concurrency, salt=salt, logprobs=2)
    found: list[Observation] = talk(server, lambda client: run_pass(client, pass_))
    assert [one.error for one in found] == [None] * len(found)
    return found


@pytest.fixture(scope="module")
def off(started: Started) -> Iterator[Server]:
    with started(OFF_ARM) as server:
        yield server


@pytest.fixture(scope="module")
def plain(off: Server) -> list[Observation]:
    return answers(off)


def test_the_server_says_what_it_is(off: Server) -> None:
    facts = talk(off, lambda client: client.facts())
    assert (facts["engine"], facts["version"]) == ("sglang", "0.5.23")
    assert (facts["device"], facts["dtype"]) == ("cpu", "float32")
    assert facts["attention_backend"] == "intel_amx"  # what the stand-in kernels stand in for
    assert (facts["max_running_requests"], facts["context_length"]) == (4, 512)
    assert not [name for name in facts if name.startswith("speculative")]


def test_an_observation_is_complete(plain: list[Observation]) -> None:
    for seen in plain:
        assert (len(seen.token_ids), seen.finish_reason) == (TOKENS, "length")
        assert np.isfinite(seen.logprobs).all()
        assert (seen.top_ids[:, 0] == seen.token_ids).all()
        assert (seen.logprobs == seen.top_logprobs[:, 0]).all()
        assert seen.cached_tokens is not None  # a first token that prompts share is cached
        assert seen.accepted.size == 0
        assert seen.started < seen.first_token < seen.finished
        assert seen.text


def test_a_reproductions_own_http_gets_the_same_tokens_and_values_them(
    off: Server, plain: list[Observation]
) -> None:
    path = files("matrixrun.signoff") / "templates" / "reproduce" / "engines" / "sglang.py"
    engine = runpy.run_path(str(path))
    sampling = msgspec.to_builtins(Sampling(ignore_eos=True))
    engine["begin"](off.base_url, off.key)

    request = requests()[0]
    asked = {"prompt": list(request.token_ids), "max_tokens": TOKENS}
    tokens = engine["emitted"](off.base_url, off.key, asked, sampling, "reproduction")

    assert tokens == plain[0].token_ids.tolist()
    prefix, best = [*request.token_ids, *tokens[:5]], tokens[5]
    second, gap = int(plain[0].top_ids[5, 1]), float(np.diff(plain[0].top_logprobs[5])[0])
    assert engine["regret"](off.base_url, off.key, prefix, best) == pytest.approx(0, abs=ROUNDING)
    found = engine["regret"](off.base_url, off.key, prefix, second)
    assert found == pytest.approx(-gap, abs=ROUNDING)


@pytest.mark.parametrize("speculation", [NGRAM, DRAFT], ids=["ngram", "standalone"])
def test_with_stand_in_kernels_no_token_changes_and_each_step_is_accounted_for(
    started: Started, plain: list[Observation], speculation: Speculation
) -> None:
    with started(on_arm(speculation)) as on:
        before = talk(on, lambda client: client.counters())  # its own warm-up is counted too
        speculated = answers(on)
        after = talk(on, lambda client: client.counters())
        facts = talk(on, lambda client: client.facts())
    assert facts["speculative_num_steps"] >= 1
    assert [o.token_ids.tolist() for o in speculated] == [o.token_ids.tolist() for o in plain]
    for seen, one in zip(speculated, plain, strict=True):
        assert seen.logprobs == pytest.approx(one.logprobs, abs=ROUNDING)
        assert set(seen.drafted.tolist()) == {3}
        # The first token is the prefill's; the last step may go beyond the limit.
        emitted = 1 + int((seen.accepted + 1).sum())
        assert TOKENS <= emitted <= TOKENS + 3
    assert sum(int(seen.accepted.sum()) for seen in speculated) > 0
    steps = after["spec_decode_num_drafts"] - before.get("spec_decode_num_drafts", 0.0)
    assert sum(seen.drafted.size for seen in speculated) == steps
    assert any(seen.steps_ordered for seen in speculated)


def score(server: Server, scores: tuple[ScoreRequest, ...], salt: str) -> list[Score]:
    pass_ = Pass(id="score", scores=scores, concurrency=2, salt=salt)
    found: list[Score] = talk(server, lambda client: run_pass(client, pass_))
    assert [one.error for one in found] == [None] * len(found)
    return found


def texts(plain: list[Observation]) -> list[tuple[int, ...]]:
    return [
        request.token_ids + tuple(seen.token_ids.tolist())
        for request, seen in zip(requests(), plain, strict=True)
    ]


def test_three_evaluations_agree_on_right_and_wrong_tokens_after_any_text(
    off: Server, plain: list[Observation]
) -> None:
    """Also after a token that the target would not have emitted, which has to be forced."""
    whole = texts(plain)
    cases = {
        **{f"right{i}": text for i, text in enumerate(whole[:4])},
        **{f"wrong{i}": (*text[:-1], 5) for i, text in enumerate(whole[:4])},
        **{f"forced{i}": (*text[:-2], 5, text[-1]) for i, text in enumerate(whole[:4])},
    }
    found = {
        evaluation: score(
            off,
            tuple(
                ScoreRequest(
                    id=name, token_ids=text, start=len(text) - 1, evaluation=evaluation, rows=4
                )
                for name, text in cases.items()
            ),
            f"score-{evaluation}",
        )
        for evaluation in Evaluation
    }
    for prefill, decode, extend in zip(*found.values(), strict=True):
        assert (decode.rows, extend.rows) == (1, 4)
        assert prefill.rows == len(cases[prefill.request])
        assert float(prefill.regret[0]) > 0 or not prefill.request.startswith("wrong")
        for other in (decode, extend):
            assert other.token_logprobs == pytest.approx(prefill.token_logprobs, abs=ROUNDING)
            assert other.best_logprobs == pytest.approx(prefill.best_logprobs, abs=ROUNDING)
            assert other.best_ids.tolist() == prefill.best_ids.tolist()
            assert not other.bounded


def test_answers_with_a_grammar_hold_to_it_and_drafts_change_no_token(
    off: Server, started: Started
) -> None:
    sent = tuple(
        msgspec.structs.replace(one, sampling=Sampling(grammar=GRAMMAR)) for one in requests()
    )
    plain = answers(off, "grammar", sent=sent)
    with started(on_arm(DRAFT)) as on:
        speculated = answers(on, "grammar", sent=sent)
    assert [one.text for one in plain] == [one.text for one in speculated]
    for one in plain:
        assert misfit(one.text or "", ended=one.finish_reason == "stop") is None
    assert any("\n" in (one.text or "") for one in plain)
    assert sum(int(one.accepted.sum()) for one in speculated) > 0


def test_prefill_scores_a_whole_text_at_once(off: Server, plain: list[Observation]) -> None:
    scores = tuple(
        ScoreRequest(id=request.id, token_ids=text, start=len(request.token_ids))
        for request, text in zip(requests(), texts(plain), strict=True)
    )
    for one, seen in zip(score(off, scores, "whole"), plain, strict=True):
        assert one.token_logprobs == pytest.approx(seen.logprobs, abs=ROUNDING)
        assert one.best_ids.tolist() == seen.token_ids.tolist()


def test_a_salt_is_a_cache_of_its_own_and_stays_warm_within_a_pass(off: Server) -> None:
    async def cached(client: Client) -> list[int | None]:
        request = requests(1)[0]
        salts = ("one", "one", "two", "one")
        seen = [await client.generate(request, salt=salt, logprobs=0) for salt in salts]
        return [one.cached_tokens for one in seen]

    length = len(requests(1)[0].token_ids)
    assert talk(off, cached) == [0, length - 1, 0, 0]


def test_a_request_that_the_engine_turns_down_is_quoted(off: Server) -> None:
    long = Request(id="long", prompt="p", category="c", token_ids=(5,) * 600, max_tokens=8)
    seen = talk(off, lambda client: client.generate(long, salt="long", logprobs=1))
    assert "600 tokens" in seen.error
    assert "512 tokens" in seen.error
    assert talk(off, lambda client: client.healthy())


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (msgspec.structs.replace(OFF_ARM, args=("--no-such-flag",)), "arguments: --no-such-flag"),
        (on_arm(Speculation(method="telepathy", num_speculative_tokens=3)), "TELEPATHY"),
        (on_arm(Speculation(method="dflash", num_speculative_tokens=3)), "not supported by"),
    ],
    ids=["flag", "unknown-algorithm", "algorithm-without-a-cpu-path"],
)
def test_the_engine_refuses_in_its_own_words(
    started: Started, config: ArmConfig, words: str
) -> None:
    with pytest.raises(EngineRefused, match=words), started(config):
        pass
