"""A real vLLM whose two ranks are two process groups, as on two nodes: here both on this machine,
and what they meet at is a port of the loopback address."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest
from vllm_arms import OFF

from matrixrun import models
from matrixrun.engines import Environment, Follower, Server, free_port, get, run_pass
from matrixrun.evidence.launches import ArmConfig, Limits
from matrixrun.evidence.requests import Observation, Pass, Request, Sampling

pytestmark = pytest.mark.engine

VLLM = get("vllm")
LIMITS = Limits(
    max_model_len=128, max_num_seqs=2, max_num_batched_tokens=256, kv_cache_bytes=1 << 26
)
ASKED = Pass(
    id="p", salt="s", concurrency=1, logprobs=1,
    requests=(
        Request(id="r", prompt="p", category="c", token_ids=tuple(range(20, 40)), max_tokens=8,
                sampling=Sampling(ignore_eos=True)),
    ),
)  # fmt: skip


@pytest.mark.parametrize("axis", ["tensor_parallel_size", "pipeline_parallel_size"])
def test_two_process_groups_are_one_engine_and_end_together(
    vllm_environment: Environment, cache: Path, tmp_path: Path, axis: str
) -> None:
    target = str(models.build("builtin:tiny-dense", vllm_environment.python, cache, print))
    config = msgspec.structs.replace(OFF, limits=LIMITS, nodes=2, **{axis: 2})
    places = {"$HEAD": "127.0.0.1", "$HEAD_PORT": str(free_port("127.0.0.1")),
              "$NODE_IP": "127.0.0.1"}  # fmt: skip
    follower = Follower(
        VLLM.follower_command(config), vllm_environment, engine=VLLM, target=target,
        log_path=tmp_path / "follower.log", places={**places, "$NODE_RANK": "1"},
    )  # fmt: skip
    head = Server(
        VLLM.command(config), vllm_environment, engine=VLLM, target=target, ready_timeout=400,
        log_path=tmp_path / "head.log", places={**places, "$NODE_RANK": "0"},
    )  # fmt: skip
    try:
        follower.start()
        head.start()
        assert follower.alive
        (answer,) = asyncio.run(_send(head, config))
        assert isinstance(answer, Observation)
        assert answer.error is None, answer.error
        assert len(answer.token_ids) == 8
        head.stop()
        assert follower.wait() is not None
    finally:
        head.stop()
        follower.stop()


async def _send(head: Server, config: ArmConfig) -> list[object]:
    client = head.client(request_timeout=200)
    try:
        assert (await client.facts())["tensor_parallel_size"] == config.tensor_parallel_size
        return list(await run_pass(client, ASKED))
    finally:
        await client.aclose()
