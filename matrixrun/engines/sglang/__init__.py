"""SGLang: `command` and `refusals` are its pure half, `client`, `answers` and `reports` talk to a
server."""

from __future__ import annotations

from typing import Any, ClassVar

from matrixrun.engines.protocol import Client
from matrixrun.engines.reach import Reach
from matrixrun.engines.sglang import command as _command
from matrixrun.engines.sglang import refusals as _refusals
from matrixrun.evidence.launches import ArmConfig, Command, Recipe
from matrixrun.evidence.replies import Form

CPU_START_SECONDS = 60.0  # measured with stand-in kernels on two cores; imports are nearly all
GPU_START_SECONDS = 150.0  # a guess: weights, graph capture and compilation of a mid-sized model
SCORE_SECONDS = 0.06  # one prefill, however long; assumed
SECONDS_PER_FURTHER_RANK = 12.0  # each rank is one more process that imports the engine


class SGLang:
    """The engine behind `kind: sglang`."""

    kind = "sglang"
    health_path = "/health"
    default_recipe: Recipe = _command.DEFAULT_RECIPE
    tokenizing = None
    # The first is where SGLang puts most of what it and its libraries compile.
    method_names: ClassVar[dict[str, str]] = _command.METHODS
    cache_variables: ClassVar[dict[str, str]] = {
        "SGLANG_CACHE_DIR": "sglang",
        "SGLANG_JIT_CACHE_DIR": "sglang/jit",
        "TORCH_EXTENSIONS_DIR": "torch_extensions",
        "TVM_FFI_CACHE_DIR": "tvm_ffi",
    }
    cpu_tokens_per_second = 85.0  # assumed to be vLLM's: stand-in kernels, imports are most of it
    stops_at_token_ids = True
    stops_at_strings = False
    kills_itself = "Received sigquit from a child process."
    forbids_words = False

    def forms(self, config: ArmConfig) -> tuple[Form, ...]:  # noqa: ARG002 - the protocol's
        """See Engine.forms: none, its client puts no replies together."""
        return ()

    def refuse(self, config: ArmConfig) -> str | None:
        """See Engine.refuse: settings that change the output by design, or have no flag."""
        return _refusals.refuse(config)

    def command(self, config: ArmConfig) -> Command:
        """See Engine.command."""
        return _command.command(config)

    def follower_command(self, config: ArmConfig) -> Command:
        """See Engine.follower_command."""
        return _command.follower_command(config)

    def forced(self, config: ArmConfig) -> ArmConfig | None:  # noqa: ARG002 - the protocol's
        """See Engine.forced: there is none."""
        return None

    def traced(self, config: ArmConfig) -> ArmConfig | None:  # noqa: ARG002 - the protocol's
        """See Engine.traced: there is none."""
        return None

    def open_cache(self, config: ArmConfig) -> str | None:
        """See Engine.open_cache."""
        return None if _command.fixes_cache(config) else "--max-total-tokens in args"

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
        from matrixrun.engines.sglang.client import SGLangClient

        return SGLangClient(
            base_url,
            api_key,
            request_timeout=request_timeout,
            transport=None if reach is None else reach.transport(),
            ours=reach is None,
        )


ENGINE = SGLang()
