"""llama.cpp: `command` and `refusals` are its pure half, `client`, `answers` and `reports` talk to
a server, `tokenizer` reads texts with one; `in_process` is the server inside a Python package."""

from __future__ import annotations

from typing import Any, ClassVar

from matrixrun.engines.llamacpp import command as _command
from matrixrun.engines.llamacpp import refusals as _refusals
from matrixrun.engines.protocol import Client, TextTokenizer
from matrixrun.engines.reach import Reach
from matrixrun.evidence.launches import ArmConfig, Command, Recipe
from matrixrun.evidence.replies import Form

CPU_START_SECONDS = 2.0  # a model of some MB on two idle cores; Python's own start is half of it
ACCELERATOR_START_SECONDS = 30.0  # a guess: some GB of weights
# Measured with 2.6 M parameters on one core: two requests a token.
SCORE_SECONDS_PER_TOKEN = 0.006


class LlamaCppTokenizing:
    """See matrixrun.engines.protocol.Tokenizing: the tokenizer is in the GGUF file."""

    def command(self, config: ArmConfig) -> Command:
        """See Tokenizing.command."""
        return _command.tokenizer_command(config)

    def connect(
        self, base_url: str, api_key: str, *, name: str, reach: Reach | None = None
    ) -> TextTokenizer:
        """See Tokenizing.connect."""
        from matrixrun.engines.llamacpp.tokenizer import ServerTokenizer

        return ServerTokenizer(base_url, api_key, name=name, reach=reach)


class LlamaCpp:
    """The engine behind `kind: llamacpp`."""

    kind = "llamacpp"
    health_path = "/health"
    stops_at_token_ids = False
    stops_at_strings = False
    kills_itself = None
    forbids_words = False
    default_recipe: Recipe = _command.CPU_RECIPE
    tokenizing = LlamaCppTokenizing()
    method_names: ClassVar[dict[str, str]] = _command.METHODS
    cache_variables: ClassVar[dict[str, str]] = {"CUDA_CACHE_PATH": "nv"}
    # Measured on two cores: 770 to 1,450 with models of some MB, 40 with 135 M parameters in Q4_1.
    cpu_tokens_per_second = 400.0

    def forms(self, config: ArmConfig) -> tuple[Form, ...]:  # noqa: ARG002 - the protocol's
        """See Engine.forms: none, its client puts no replies together."""
        return ()

    def refuse(self, config: ArmConfig) -> str | None:
        """See Engine.refuse: settings that change the output by design, or have no flag."""
        return _refusals.refuse(config)

    def command(self, config: ArmConfig) -> Command:
        """See Engine.command."""
        return _command.command(config)

    def forced(self, config: ArmConfig) -> ArmConfig | None:  # noqa: ARG002 - the protocol's
        """See Engine.forced: there is none."""
        return None

    def traced(self, config: ArmConfig) -> ArmConfig | None:  # noqa: ARG002 - the protocol's
        """See Engine.traced: there is none."""
        return None

    def follower_command(self, config: ArmConfig) -> Command:
        """See Engine.follower_command: `refuse` says no before."""
        raise NotImplementedError(f"llama.cpp over {config.nodes} nodes")

    def open_cache(self, config: ArmConfig) -> str | None:  # noqa: ARG002 - the protocol's
        """See Engine.open_cache: context and slots fix it."""
        return None

    def logged_facts(self, log: str) -> dict[str, Any]:
        """See Engine.logged_facts: within a Python package, that package's version."""
        from matrixrun.engines.llamacpp import reports

        return reports.logged(log)

    def recognise_refusal(self, log: str) -> str | None:
        """See Engine.recognise_refusal."""
        return _refusals.recognise(log)

    def start_seconds(self, config: ArmConfig) -> float:
        """See Engine.start_seconds."""
        return CPU_START_SECONDS if config.accelerator is None else ACCELERATOR_START_SECONDS

    def score_seconds(self, tokens: int) -> float:
        """See Engine.score_seconds: each token is a step of its own."""
        return tokens * SCORE_SECONDS_PER_TOKEN

    def client(
        self, base_url: str, api_key: str, *, request_timeout: float, reach: Reach | None = None
    ) -> Client:
        """See Engine.client."""
        from matrixrun.engines.llamacpp.client import LlamaCppClient

        return LlamaCppClient(
            base_url,
            api_key,
            request_timeout=request_timeout,
            transport=None if reach is None else reach.transport(),
            ours=reach is None,
        )


ENGINE = LlamaCpp()
