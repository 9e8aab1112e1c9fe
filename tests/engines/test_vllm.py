"""A real vLLM on CPU, started, spoken to and ended as the program does it."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import psutil
import pytest
from vllm_arms import NGRAM, OFF

from matrixrun.engines import Client, Environment, Server, get, run_pass
from matrixrun.engines.processes import MARKER
from matrixrun.evidence.cells import Speculation
from matrixrun.evidence.errors import EngineRefused
from matrixrun.evidence.launches import Arm, ArmConfig, Limits
from matrixrun.evidence.requests import (
    Evaluation,
    Observation,
    Pass,
    Request,
    Sampling,
    Score,
    ScoreRequest,
)

pytestmark = pytest.mark.engine

VLLM = get("vllm")
BLOCK = 32
LIMITS = Limits(
    max_model_len=256, max_num_seqs=8, max_num_batched_tokens=512, block_size=BLOCK,
    kv_cache_bytes=1 << 26,
)  # fmt: skip
OFF_ARM = msgspec.structs.replace(OFF, limits=LIMITS)
EAGER_NGRAM = msgspec.structs.replace(
    NGRAM, options={"prompt_lookup_max": 3, "prompt_lookup_min": 1}
)
ON_ARM = msgspec.structs.replace(OFF_ARM, arm=Arm.ON, speculation=EAGER_NGRAM)


@dataclass(frozen=True)
class Pair:
    off: Server
    on: Server


def _server(config: ArmConfig, environment: Environment, target: Path, log: Path) -> Server:
    command = VLLM.command(config)
    return Server(
        command,
        environment,
        engine=VLLM,
        target=str(target),
        log_path=log,
        ready_timeout=400,
    )


@pytest.fixture(scope="module")
def target(vllm_python: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("checkpoint")
    script = Path(__file__).with_name("tiny_checkpoint.py")
    subprocess.run([vllm_python, script, folder], check=True, capture_output=True)
    return folder


@pytest.fixture(scope="module")
def pair(
    vllm_environment: Environment, target: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Pair]:
    logs = tmp_path_factory.mktemp("logs")
    off = _server(OFF_ARM, vllm_environment, target, logs / "off.log")
    on = _server(ON_ARM, vllm_environment, target, logs / "on.log")
    try:
        with ThreadPoolExecutor() as pool:
            list(pool.map(Server.start, (off, on)))
        yield Pair(off, on)
    finally:
        off.stop()
        on.stop()


def _talk(server: Server, conversation: Callable[[Client], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        client = server.client(request_timeout=120)
        try:
            return await conversation(client)
        finally:
            await client.aclose()

    return asyncio.run(run())


def _requests(count: int = 6, max_tokens: int = 24) -> tuple[Request, ...]:
    """Prompts that repeat themselves, so that n-gram speculation has something to propose."""
    chance = random.Random(7)
    phrases = [[chance.randrange(500) for _ in range(7 + i)] for i in range(count)]
    return tuple(
        Request(
            id=f"r{i}",
            prompt=f"p{i}",
            category="copy",
            token_ids=tuple(phrase * 8)[: 50 + i],
            max_tokens=max_tokens,
            sampling=Sampling(ignore_eos=True),
        )
        for i, phrase in enumerate(phrases)
    )


def _generate(server: Server, salt: str, concurrency: int = 4) -> list[Observation]:
    pass_ = Pass(
        id="equality", requests=_requests(), concurrency=concurrency, salt=salt, logprobs=3
    )
    return _talk(server, lambda client: run_pass(client, pass_))


@pytest.fixture(scope="module")
def off_text(pair: Pair) -> list[Observation]:
    return _generate(pair.off, "generate")


def _texts(off_text: list[Observation], cut: int = 0) -> list[tuple[int, ...]]:
    """Prompts with what was generated for them, less the last `cut` tokens."""
    pairs = zip(_requests(), off_text, strict=True)
    return [
        request.token_ids + tuple(seen.token_ids.tolist()[: len(seen.token_ids) - cut])
        for request, seen in pairs
    ]


def _score(server: Server, scores: tuple[ScoreRequest, ...], salt: str) -> list[Score]:
    pass_ = Pass(id="score", scores=scores, concurrency=4, salt=salt)
    answers = _talk(server, lambda client: run_pass(client, pass_))
    assert [answer.error for answer in answers] == [None] * len(answers)
    return answers


def test_the_server_says_what_it_is(pair: Pair) -> None:
    off = _talk(pair.off, lambda client: client.facts())
    on = _talk(pair.on, lambda client: client.facts())
    assert off["version"].startswith("0.32.0")
    assert (off["block_size"], off["max_num_seqs"], off["device"]) == (BLOCK, 8, "cpu")
    assert off["torch_version"].endswith("+cpu")
    assert "speculative_method" not in off
    assert (on["speculative_method"], on["speculative_num_speculative_tokens"]) == ("ngram", 4)
    assert on["num_gpu_blocks"] == off["num_gpu_blocks"]


def test_an_observation_is_complete(pair: Pair, off_text: list[Observation]) -> None:
    for seen in off_text:
        assert seen.error is None
        assert (len(seen.token_ids), seen.finish_reason) == (24, "length")
        assert np.isfinite(seen.logprobs).all()
        assert (seen.top_ids[:, 0] == seen.token_ids).all()  # greedy: the best is the emitted one
        assert (np.diff(seen.top_logprobs, axis=1) <= 0).all()
        assert seen.cached_tokens == 0
        assert seen.accepted.size == 0
        assert seen.started < seen.first_token < seen.finished
        assert seen.text


def test_speculation_changes_no_token_and_reports_its_steps(
    pair: Pair, off_text: list[Observation]
) -> None:
    before = _talk(pair.on, lambda client: client.counters())
    on_text = _generate(pair.on, "generate")
    after = _talk(pair.on, lambda client: client.counters())
    assert [o.token_ids.tolist() for o in on_text] == [o.token_ids.tolist() for o in off_text]
    assert sum(seen.accepted.sum() for seen in on_text) > 0
    assert sum(seen.drafted.size for seen in on_text) >= 10
    for seen in on_text:
        assert (seen.accepted <= seen.drafted).all()
        assert (seen.drafted <= 4).all()
        # Steps without a proposal are not listed; each emits one token.
        assert seen.accepted.sum() + seen.accepted.size <= len(seen.token_ids) - 1 + 4
    for name, steps in (("draft", "drafted"), ("accepted", "accepted")):
        counter = f"spec_decode_num_{name}_tokens"
        counted = after[counter] - before.get(counter, 0.0)
        assert counted == sum(getattr(seen, steps).sum() for seen in on_text)


def test_three_evaluations_of_the_same_tokens_agree(
    pair: Pair, off_text: list[Observation]
) -> None:
    texts = [text for cut in (0, 9) for text in _texts(off_text, cut)]
    values = {}
    for evaluation in Evaluation:
        scores = tuple(
            ScoreRequest(id=f"s{i}", token_ids=t, start=len(t) - 1, evaluation=evaluation)
            for i, t in enumerate(texts)
        )
        values[evaluation] = _score(pair.off, scores, f"score-{evaluation}")
    for prefill, decode, extend in zip(*values.values(), strict=True):
        assert float(prefill.regret[0]) < 0.1
        for other in (decode, extend):
            assert other.best_ids.tolist() == prefill.best_ids.tolist()
            assert other.token_logprobs[0] == pytest.approx(prefill.token_logprobs[0], abs=0.1)
        assert decode.rows == 1
        assert 1 <= extend.rows <= BLOCK
        assert prefill.rows > BLOCK


def test_a_wrong_token_has_regret_in_every_evaluation(
    pair: Pair, off_text: list[Observation]
) -> None:
    text = _texts(off_text)[0]
    last = off_text[0].top_ids[-1]
    second, far = int(last[1]), next(i for i in range(500) if i not in last)
    for evaluation in Evaluation:
        scores = tuple(
            ScoreRequest(
                id=str(token),
                token_ids=(*text[:-1], token),
                start=len(text) - 1,
                evaluation=evaluation,
            )
            for token in (second, far)
        )
        near, wrong = _score(pair.off, scores, f"wrong-{evaluation}")
        gap = off_text[0].top_logprobs[-1]
        assert near.regret[0] == pytest.approx(gap[0] - gap[1], abs=0.1)
        assert wrong.regret[0] > near.regret[0]
        assert not (evaluation is Evaluation.PREFILL and wrong.bounded)


def test_prefill_scores_a_whole_text_at_once(pair: Pair, off_text: list[Observation]) -> None:
    scores = tuple(
        ScoreRequest(id=request.id, token_ids=text, start=len(request.token_ids))
        for request, text in zip(_requests(), _texts(off_text), strict=True)
    )
    for score, seen in zip(_score(pair.off, scores, "whole"), off_text, strict=True):
        assert score.token_logprobs == pytest.approx(seen.logprobs, abs=0.1)
        assert score.regret.max() < 0.1


def test_a_salt_is_a_cache_of_its_own_and_a_reset_empties_all(pair: Pair) -> None:
    def cached(salt: str) -> list[int | None]:
        return [seen.cached_tokens for seen in _generate(pair.off, salt)]

    assert set(cached("one")) == {0}
    assert all(tokens and tokens % BLOCK == 0 for tokens in cached("one"))
    assert set(cached("two")) == {0}
    _talk(pair.off, lambda client: client.reset_prefix_cache())
    assert set(cached("one")) == {0}


def test_a_request_that_the_engine_turns_down_is_quoted(pair: Pair) -> None:
    long = Request(id="long", prompt="p", category="c", token_ids=tuple(range(400)), max_tokens=8)
    seen = _talk(pair.off, lambda client: client.generate(long, salt="long", logprobs=1))
    assert "HTTP 400: This model's maximum context length is 256" in seen.error
    assert _talk(pair.off, lambda client: client.healthy())


def test_a_configuration_that_vllm_turns_down_is_refused_in_its_words(
    vllm_environment: Environment, target: Path, tmp_path: Path
) -> None:
    suffix = Speculation(method="suffix", num_speculative_tokens=3)
    config = msgspec.structs.replace(ON_ARM, speculation=suffix)
    server = _server(config, vllm_environment, target, tmp_path / "refused.log")
    with pytest.raises(EngineRefused, match="Arctic Inference is required"):
        server.start()
    assert not server.alive


OWNER = """
import sys
from pathlib import Path
import msgspec
sys.path[:0] = sys.argv[1].split(":")
from matrixrun.engines import get, prepare, Server
from matrixrun.evidence.launches import Recipe
from test_vllm import VLLM, OFF_ARM
python, target, log = sys.argv[2:]
recipe = Recipe(python=python, overlay=VLLM.default_recipe.overlay)
environment = prepare(recipe, cache=Path(log).parent, timeout=60, on_line=print)
Server(VLLM.command(OFF_ARM), environment, engine=VLLM, target=target, log_path=Path(log)).start()
"""


def test_nothing_is_left_when_the_owner_is_killed(
    vllm_python: Path, target: Path, tmp_path: Path
) -> None:
    paths = ":".join([str(Path(__file__).parent), *sys.path])
    log = tmp_path / "engine.log"
    owner = subprocess.Popen([sys.executable, "-c", OWNER, paths, vllm_python, target, log])
    try:
        until = time.monotonic() + 200
        while len(engine := _processes_of(owner.pid)) < 4:  # keeper, guard, server, engine core
            assert time.monotonic() < until
            assert owner.poll() is None
            time.sleep(0.2)
    finally:
        owner.send_signal(signal.SIGKILL)
        owner.wait()
    _, left = psutil.wait_procs(engine, timeout=30)
    assert left == []
    assert _processes_of(owner.pid) == []


def _processes_of(owner: int) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        try:
            marker = process.environ().get(MARKER, "")
        except psutil.Error:
            continue
        if marker.split(":")[1:2] == [str(owner)]:
            found.append(process)
    return found


def test_the_environment_is_in_the_users_cache(vllm_environment: Environment, cache: Path) -> None:
    assert vllm_environment.path is not None
    assert vllm_environment.path.is_relative_to(cache)
    assert os.access(vllm_environment.python, os.X_OK)
