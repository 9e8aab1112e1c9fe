"""vLLM: `command` and `refusals` are its pure half, `client` and `answers` talk to a server."""

from __future__ import annotations

from typing import Any, ClassVar

from matrixrun.engines.protocol import Client
from matrixrun.engines.reach import Reach
from matrixrun.engines.vllm import command as _command
from matrixrun.engines.vllm import forcing as _forcing
from matrixrun.engines.vllm import refusals as _refusals
from matrixrun.evidence.launches import ArmConfig, Command, Recipe
from matrixrun.evidence.replies import Form

CPU_START_SECONDS = 50.0  # plain `vllm serve` of 0.32 on two idle cores; imports are nearly all
GPU_START_SECONDS = 150.0  # a guess: weights, graph capture and compilation of a mid-sized model
SCORE_SECONDS = 0.06  # one prefill, however long; assumed
SECONDS_PER_FURTHER_RANK = 12.0  # each rank is one more process that imports the engine


class VLLM:
    """The engine behind `kind: vllm`."""

    kind = "vllm"
    health_path = "/health"
    stops_at_token_ids = True
    stops_at_strings = True
    kills_itself = None
    forbids_words = True
    default_recipe: Recipe = _command.CPU_RECIPE
    tokenizing = None
    method_names: ClassVar[dict[str, str]] = {}
    cache_variables: ClassVar[dict[str, str]] = {
        "VLLM_CACHE_ROOT": "vllm",
        "TRITON_CACHE_DIR": "triton",
        "TORCHINDUCTOR_CACHE_DIR": "inductor",
        "FLASHINFER_WORKSPACE_BASE": "flashinfer",
        "CUDA_CACHE_PATH": "nv",
    }
    # Measured: 77 to 92 with a checkpoint of 2 M parameters on two idle cores.
    cpu_tokens_per_second = 85.0

    def forms(self, config: ArmConfig) -> tuple[Form, ...]:
        """See Engine.forms: tools are refused unless a parser for them was named."""
        return _command.forms(config)

    def refuse(self, config: ArmConfig) -> str | None:
        """See Engine.refuse: settings that change the output by design."""
        return _refusals.refuse(config)

    def command(self, config: ArmConfig) -> Command:
        """See Engine.command."""
        return _command.command(config)

    def forced(self, config: ArmConfig) -> ArmConfig | None:
        """See Engine.forced."""
        return _forcing.forced(config)

    def traced(self, config: ArmConfig) -> ArmConfig | None:
        """See Engine.traced."""
        return _forcing.traced(config)

    def follower_command(self, config: ArmConfig) -> Command:
        """See Engine.follower_command."""
        return _command.follower_command(config)

    def open_cache(self, config: ArmConfig) -> str | None:
        """See Engine.open_cache."""
        return None if _command.fixes_cache(config) else "limits.kv_cache_bytes"

    def logged_facts(self, log: str) -> dict[str, Any]:  # noqa: ARG002 - the protocol's
        """See Engine.logged_facts: its endpoints say all."""
        return {}

    def recognise_refusal(self, log: str) -> str | None:
        """See Engine.recognise_refusal."""
        return _refusals.recognise(log)

    def start_seconds(self, config: ArmConfig) -> float:
        """See Engine.start_seconds."""
        base = CPU_START_SECONDS if config.accelerator is None else GPU_START_SECONDS
        ranks = (
            config.tensor_parallel_size * config.pipeline_parallel_size * config.data_parallel_size
        )
        return base + SECONDS_PER_FURTHER_RANK * (ranks - 1)

    def score_seconds(self, tokens: int) -> float:  # noqa: ARG002 - the protocol's
        """See Engine.score_seconds: a whole text is one prefill."""
        return SCORE_SECONDS

    def client(
        self, base_url: str, api_key: str, *, request_timeout: float, reach: Reach | None = None
    ) -> Client:
        """See Engine.client."""
        from matrixrun.engines.vllm.client import VLLMClient

        return VLLMClient(
            base_url,
            api_key,
            request_timeout=request_timeout,
            transport=None if reach is None else reach.transport(),
            model=(reach and reach.model) or _command.MODEL_NAME,
        )


ENGINE = VLLM()
