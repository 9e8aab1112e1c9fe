"""A real llama.cpp server on small models of random weights.

The one inside a Python package, and in the long tier (`-m long`) `llama-server` built from source,
which takes a quarter of an hour the first time.
"""

from __future__ import annotations

import asyncio
import random
import socket
import stat
import subprocess
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import psutil
import pytest

from matrixrun import models
from matrixrun.engines import Client, Environment, Server, get, prepare, run_pass
from matrixrun.engines.llamacpp.command import LAUNCHER
from matrixrun.evidence.cells import Speculation
from matrixrun.evidence.errors import EngineDied, EngineRefused
from matrixrun.evidence.launches import Arm, ArmConfig, Checkpoint, Limits, Recipe
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

pytestmark = pytest.mark.engine

LONG = pytest.mark.long
LLAMACPP = get("llamacpp")
DRAFT = Speculation(method="draft-simple", draft="draft", num_speculative_tokens=4)
NGRAM = Speculation(
    method="ngram-simple", num_speculative_tokens=4, options={"spec_ngram_simple_size_n": 2}
)
TOKENS = 48
KV_ROUNDING = 5e-3  # nats: the KV cache holds half floats, whatever the weights are


def arm(
    quantization: str, speculation: Speculation | None = None, model: str = "gguf-dense"
) -> ArmConfig:
    draft = speculation is not None and speculation.draft is not None
    return ArmConfig(
        engine="llamacpp",
        kind="llamacpp",
        arm=Arm.OFF if speculation is None else Arm.ON,
        recipe=LLAMACPP.default_recipe,
        model=model,
        target=Checkpoint(path=f"builtin:{model}/{quantization}".removesuffix("/bf16")),
        draft=Checkpoint(path=f"builtin:{model}/draft") if draft else None,
        quantization=quantization,
        quantized_checkpoint=True,
        prefix_caching=False,
        speculation=speculation,
        limits=Limits(max_model_len=240, max_num_seqs=2),
    )


@pytest.fixture(scope="session", params=["package", pytest.param("source", marks=LONG)])
def recipe(request: pytest.FixtureRequest) -> Recipe:
    """The default one, or that of a real `llama-server`."""
    binary = "builtin:llama-server" if request.param == "source" else None
    return msgspec.structs.replace(LLAMACPP.default_recipe, binary=binary)


@pytest.fixture(scope="session")
def environment(cache: Path, recipe: Recipe) -> Environment:
    """Built once: the package is some 60 MB, the source takes its time."""
    return prepare(recipe, cache=cache, timeout=5400, on_line=print)


Started = Callable[[ArmConfig], Any]


@pytest.fixture
def started(environment: Environment, cache: Path, recipe: Recipe, tmp_path: Path) -> Started:
    """Starts a server of an arm; use it in a `with`."""

    @contextmanager
    def start(config: ArmConfig, place: Environment = environment) -> Iterator[Server]:
        if config.recipe.binary is None:
            config = msgspec.structs.replace(config, recipe=recipe)

        def local(checkpoint: Checkpoint | None) -> str | None:
            if checkpoint is None or not models.is_builtin(checkpoint.path):
                return None if checkpoint is None else checkpoint.path
            return str(models.build(checkpoint.path, environment.python, cache, print))

        with Server(
            LLAMACPP.command(config),
            place,
            engine=LLAMACPP,
            target=local(config.target) or "",
            draft=local(config.draft),
            log_path=tmp_path / f"{random.random()}.log",
            ready_timeout=120,
        ) as server:
            yield server

    return start


def talk(server: Server, say: Callable[[Client], Awaitable[Any]]) -> Any:
    async def run() -> Any:
        client = server.client(request_timeout=60)
        try:
            return await say(client)
        finally:
            await client.aclose()

    return asyncio.run(run())


def prompts(count: int) -> list[tuple[int, ...]]:
    """Bytes of English, the same ones every time."""
    text = (Path(__file__).parents[2] / "LICENSE").read_bytes()
    choice = random.Random(1)
    starts = [choice.randrange(len(text) - 100) for _ in range(count)]
    return [tuple(text[start : start + choice.randrange(24, 90)]) for start in starts]


def answers(
    server: Server,
    texts: list[tuple[int, ...]],
    sampling: Sampling = Sampling(ignore_eos=True),  # noqa: B008 - frozen
) -> list[Observation]:
    async def say(client: Client) -> list[Observation]:
        return [
            await client.generate(
                Request(
                    id=str(number), prompt=str(number), category="c", token_ids=text,
                    max_tokens=TOKENS, sampling=sampling,
                ),
                salt="answers", logprobs=2,
            )
            for number, text in enumerate(texts)
        ]  # fmt: skip

    found: list[Observation] = talk(server, say)
    assert not [one.error for one in found if one.error]
    return found


def same(one: list[Observation], other: list[Observation]) -> int:
    pairs = zip(one, other, strict=True)
    return sum(np.array_equal(a.token_ids, b.token_ids) for a, b in pairs)


@pytest.mark.parametrize("speculation", [DRAFT, NGRAM], ids=lambda s: s.method)
def test_an_8_bit_target_answers_alike_and_each_step_is_accounted_for(
    started: Started, speculation: Speculation
) -> None:
    texts = prompts(12)
    with started(arm("q8_0")) as off, started(arm("q8_0", speculation)) as on:
        plain, speculated = answers(off, texts), answers(on, texts)
        counted = talk(on, lambda client: client.counters())
        facts = talk(on, lambda client: client.facts())
        assert talk(off, lambda client: client.facts())["speculative"] is False
    assert same(plain, speculated) == len(texts)
    assert facts["speculative"] is True
    assert all(len(one.token_ids) == TOKENS for one in speculated)
    assert np.isfinite(np.concatenate([one.logprobs for one in plain])).all()
    assert np.isnan(np.concatenate([one.logprobs for one in speculated])).all()
    for kind, name in (("drafted", "draft_tokens"), ("accepted", "accepted_tokens")):
        ours = sum(int(getattr(one, kind).sum()) for one in speculated)
        assert ours == counted[f"spec_decode_num_{name}"] > 0
    steps = sum(one.drafted.size for one in speculated)
    assert steps == counted["spec_decode_num_drafts"]
    assert max(int(one.drafted.max()) for one in speculated if one.drafted.size) == 4


def test_answers_with_a_grammar_hold_to_it_and_drafts_change_no_token(started: Started) -> None:
    texts = prompts(8)
    with started(arm("q8_0")) as off, started(arm("q8_0", DRAFT)) as on:
        plain, speculated = (
            answers(server, texts, Sampling(grammar=GRAMMAR)) for server in (off, on)
        )
    assert [one.text for one in plain] == [one.text for one in speculated]
    for one in plain:
        assert misfit(one.text or "", ended=one.finish_reason == "stop") is None
    assert any("\n" in (one.text or "") for one in plain)
    assert sum(int(one.accepted.sum()) for one in speculated) > 0


@pytest.mark.parametrize("method", ["ngram-map-k", "ngram-map-k4v", "ngram-mod"])
def test_further_ways_to_look_drafts_up_change_no_token_of_an_8_bit_target(
    started: Started, method: str
) -> None:
    size = {"ngram-mod": {"spec_ngram_mod_n_match": 4}}.get(
        method, {f"spec_{method.replace('-', '_')}_size_n": 2}
    )
    speculation = Speculation(method=method, num_speculative_tokens=4, options=size)
    # Texts that repeat themselves: these methods look for what has been there before.
    texts = [text[:12] * 6 for text in prompts(6)]
    with started(arm("q8_0")) as off, started(arm("q8_0", speculation)) as on:
        assert same(answers(off, texts), answers(on, texts)) == len(texts)
        assert talk(on, lambda client: client.facts())["speculative"] is True
        counted = talk(on, lambda client: client.counters())
    assert counted.get("spec_decode_num_draft_tokens", 0) > 0


def test_two_methods_in_a_chain_are_one_value_of_the_axis(started: Started) -> None:
    chain = msgspec.structs.replace(DRAFT, method="ngram-mod,draft-simple")
    texts = prompts(6)
    with started(arm("q8_0")) as off, started(arm("q8_0", chain)) as on:
        assert same(answers(off, texts), answers(on, texts)) == len(texts)
        assert talk(on, lambda client: client.counters())["spec_decode_num_draft_tokens"] > 0


@pytest.mark.parametrize(
    "speculation",
    [Speculation(method="draft-mtp", num_speculative_tokens=4), DRAFT, NGRAM],
    ids=lambda s: s.method,
)
def test_a_hybrids_recurrent_state_is_taken_back_with_its_rejected_drafts(
    started: Started, speculation: Speculation
) -> None:
    texts = prompts(8)
    hybrids = [arm("q8_0", one, "gguf-hybrid") for one in (None, speculation)]
    with started(hybrids[0]) as off, started(hybrids[1]) as on:
        plain, speculated = answers(off, texts), answers(on, texts)
        assert talk(on, lambda client: client.facts())["speculative"] is True
    assert same(plain, speculated) == len(texts)
    drafted, accepted = (
        np.concatenate([getattr(one, kind) for one in speculated])
        for kind in ("drafted", "accepted")
    )
    assert 0 < accepted.sum() < drafted.sum()
    assert (accepted < drafted).sum() >= len(texts)  # steps with something to take back


@pytest.mark.parametrize("kind", ["f16", "q8_0", "q4_0"])
def test_a_kv_cache_of_fewer_bits_is_the_same_in_both_arms(started: Started, kind: str) -> None:
    texts = prompts(6)
    both = [
        msgspec.structs.replace(arm("q8_0", speculation), kv_cache_dtype=kind)
        for speculation in (None, DRAFT)
    ]
    with started(both[0]) as off, started(both[1]) as on:
        plain, speculated = answers(off, texts), answers(on, texts)
        assert f"--cache-type-k {kind}" in " ".join(off.argv)
    assert same(plain, speculated) == len(texts)


def test_slots_at_once_each_answer_their_own_request(started: Started) -> None:
    """Two slots share each step, which moves ties; what another slot holds must not show. So the
    off arm, valuing each answer alone, finds it next to greedy."""
    texts = prompts(6)
    requests = tuple(
        Request(
            id=str(n), prompt=str(n), category="c", token_ids=text, max_tokens=TOKENS,
            sampling=Sampling(ignore_eos=True),
        )
        for n, text in enumerate(texts)
    )  # fmt: skip
    pass_ = Pass(id="p", requests=requests, concurrency=2, salt="together", logprobs=2)
    with started(arm("q8_0")) as off, started(arm("q8_0", DRAFT)) as on:
        together = talk(on, lambda client: run_pass(client, pass_))
        scores = tuple(
            ScoreRequest(
                id=one.request, token_ids=(*text, *one.token_ids.tolist()), start=len(text)
            )
            for one, text in zip(together, texts, strict=True)
        )
        valued = talk(off, lambda c: run_pass(c, Pass(id="s", scores=scores, salt="scores")))
    assert not [one.error for one in (*together, *valued) if one.error]
    assert max(float(one.regret.max()) for one in valued) < 0.5


def test_scores_agree_with_the_answers_own_logprobs(started: Started) -> None:
    (text,) = prompts(1)
    with started(arm("f32")) as off:
        (answer,) = answers(off, [text])
        whole = (*text, *answer.token_ids.tolist())

        def value(evaluation: Evaluation, start: int, rows: int = 0) -> Score:
            request = ScoreRequest(
                id="x", token_ids=whole, start=start, evaluation=evaluation, rows=rows
            )
            found: Score = talk(off, lambda client: client.score(request, salt="scores"))
            assert found.error is None
            return found

        prefill = value(Evaluation.PREFILL, len(text))
        decode = value(Evaluation.DECODE, len(whole) - 1)
        extend = value(Evaluation.EXTEND, len(whole) - 1, rows=5)
    assert np.abs(prefill.token_logprobs - answer.logprobs).max() < KV_ROUNDING
    assert prefill.best_ids.tolist() == answer.token_ids.tolist()
    assert (prefill.rows, decode.rows, extend.rows) == (9, 1, 5)
    for one in (decode, extend):
        assert abs(float(one.token_logprobs[0] - answer.logprobs[-1])) < KV_ROUNDING


@pytest.fixture
def workers(environment: Environment, tmp_path: Path) -> Iterator[dict[str, Path]]:
    """Two RPC workers, each with this machine's CPU for a device: their logs by address."""
    assert environment.binary is not None
    program = Path(environment.binary).with_name("ggml-rpc-server")
    logs: dict[str, Path] = {}
    running = []
    for number in range(2):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        log = logs[f"127.0.0.1:{port}"] = tmp_path / f"worker{number}.log"
        command = [program, "-p", str(port), "-t", "1"]
        running.append(subprocess.Popen(command, stdout=log.open("wb"), stderr=subprocess.STDOUT))
    try:
        yield logs
    finally:
        for worker in running:
            worker.terminate()
            worker.wait()


@LONG
@pytest.mark.parametrize("recipe", ["source"], indirect=True)
def test_a_model_split_over_two_rpc_workers_answers_as_in_one_piece(
    started: Started, workers: dict[str, Path]
) -> None:
    texts = prompts(4)
    split = [
        msgspec.structs.replace(
            arm("q8_0", speculation), pipeline_parallel_size=2, args=("--rpc", ",".join(workers))
        )
        for speculation in (None, DRAFT)
    ]
    with started(arm("q8_0")) as server:
        whole = answers(server, texts)
    with started(split[0]) as server:
        assert same(whole, answers(server, texts)) == len(texts)
    with started(split[1]) as server:  # a worker serves one server at a time
        assert same(whole, answers(server, texts)) == len(texts)
        assert talk(server, lambda client: client.counters())["spec_decode_num_draft_tokens"] > 0
    for worker in workers.values():
        assert "Accepted client connection" in worker.read_text()


def test_a_4_bit_target_differs_by_the_width_of_its_steps_and_by_no_more_than_it_differs_itself(
    started: Started,
) -> None:
    """The public report #25618: the kernels of four rows and more give other sums than those of
    fewer. The drafter and the acceptance logic are the same at every width."""
    texts = prompts(16)
    regrets: list[float] = []
    with started(arm("q4_k_m")) as off:
        plain = answers(off, texts)
        shares = {}
        for width in (2, 3, 5):
            speculation = msgspec.structs.replace(DRAFT, num_speculative_tokens=width - 1)
            with started(arm("q4_k_m", speculation)) as on:
                speculated = answers(on, texts)
            shares[width] = same(plain, speculated)
        forked = [
            (text, one.token_ids, int(np.flatnonzero(one.token_ids != other.token_ids)[0]))
            for text, one, other in zip(texts, speculated, plain, strict=True)
            if not np.array_equal(one.token_ids, other.token_ids)
        ]
        for text, ids, place in forked:
            for evaluation in Evaluation:
                request = ScoreRequest(
                    id="x", token_ids=(*text, *ids[: place + 1].tolist()),
                    start=len(text) + place, evaluation=evaluation, rows=5,
                )  # fmt: skip
                found = talk(off, lambda client, r=request: client.score(r, salt="scores"))
                regrets.append(float(found.regret[0]))
    assert shares[2] == shares[3] == len(texts)
    assert shares[5] < len(texts)
    assert max(regrets) < 0.5  # the target's own leads move by as much between its evaluations


def test_prompts_are_tokenized_by_the_server(environment: Environment, cache: Path, recipe: Recipe,
                                             tmp_path: Path) -> None:  # fmt: skip
    assert LLAMACPP.tokenizing is not None
    target = str(models.build("builtin:gguf-dense", environment.python, cache, print))
    config = msgspec.structs.replace(arm("bf16"), recipe=recipe)
    command = LLAMACPP.tokenizing.command(config)
    with Server(
        command, environment, engine=LLAMACPP, target=target, log_path=tmp_path / "log"
    ) as server:
        tokenizer = LLAMACPP.tokenizing.connect(server.base_url, server.key, name="gguf-dense")
        text = "Grüße, 2 < 3"
        assert tokenizer.decode(tokenizer.encode(text)) == text
        assert tokenizer.vocabulary_size == 512
        tokenizer.close()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"args": ("--no-such-flag",)}, "invalid argument: --no-such-flag"),
        ({"kv_cache_dtype": "fp8"}, "Unsupported cache type: fp8"),
        ({"speculation": Speculation(method="draft-mtp")}, "doesn't contain MTP layers"),
        ({"speculation": Speculation(method="telepathy")}, "unknown speculative type"),
    ],
)
def test_the_engine_refuses_in_its_own_words(
    started: Started, changes: dict[str, Any], words: str
) -> None:
    with (
        pytest.raises(EngineRefused, match=words),
        started(msgspec.structs.replace(arm("bf16"), **changes)),
    ):
        pass


def test_a_file_that_is_no_model_is_no_refusal(started: Started, tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(100))
    config = msgspec.structs.replace(arm("bf16"), target=Checkpoint(path=str(broken)))
    with pytest.raises(EngineDied), started(config):
        pass


def test_a_server_killed_in_a_request_is_dead_and_no_failed_request(started: Started) -> None:
    async def say(client: Client, server: Server) -> None:
        request = Request(
            id="x", prompt="x", category="c", token_ids=prompts(1)[0], max_tokens=160,
            sampling=Sampling(ignore_eos=True),
        )  # fmt: skip
        ours = server.argv[0] if server.argv[0].endswith("llama-server") else str(LAUNCHER)
        victims = [
            process
            for process in psutil.process_iter(["cmdline"])
            if ours in (words := process.info["cmdline"] or [])[:2] and str(server.port) in words
        ]
        task = asyncio.create_task(client.generate(request, salt="s", logprobs=64))
        await asyncio.sleep(0.05)
        for process in victims:
            process.kill()
        await task

    with started(arm("f32")) as server, pytest.raises(EngineDied):
        talk(server, lambda client: say(client, server))


def test_a_binary_takes_the_place_of_the_package(
    started: Started, environment: Environment, cache: Path, tmp_path: Path
) -> None:
    binary = tmp_path / "llama-server"
    binary.write_text(f'#!/bin/sh\nexec {environment.python} {LAUNCHER} "$@"\n')
    binary.chmod(binary.stat().st_mode | stat.S_IXUSR)
    recipe = msgspec.structs.replace(LLAMACPP.default_recipe, binary=str(binary))
    place = prepare(recipe, cache=cache, timeout=900, on_line=print)
    with started(msgspec.structs.replace(arm("bf16"), recipe=recipe), place) as server:
        assert server.argv[0] == str(binary)
        assert len(answers(server, prompts(1))[0].token_ids) == TOKENS
