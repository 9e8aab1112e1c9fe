"""The seam behind which every engine stands: a pure half that plans, a client half that talks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, runtime_checkable

from matrixrun.engines.reach import Reach
from matrixrun.evidence.launches import ArmConfig, Command, Recipe
from matrixrun.evidence.replies import Ask, Form
from matrixrun.evidence.requests import Observation, Request, Score, ScoreRequest


class Client(Protocol):
    """One running server. Every method raises EngineDied when the server no longer answers."""

    async def healthy(self) -> bool:
        """Whether the server says that it can serve; never raises."""
        ...

    async def facts(self) -> dict[str, Any]:
        """What the engine reports of itself: version, block size, KV blocks, runner ..."""
        ...

    async def counters(self) -> dict[str, float]:
        """The engine's own counters, by name, summed over its processes."""
        ...

    async def generate(self, request: Request, *, salt: str, logprobs: int) -> Observation:
        """Send one request; times in the answer are seconds since this call.

        `salt` is the cache namespace, `logprobs` the number of top logprobs asked for at each
        token (0 asks for none at all). A failed request is an answer too: its `error` says why.
        """
        ...

    async def score(self, score: ScoreRequest, *, salt: str) -> Score:
        """Value given tokens as the score's evaluation says; a failure is in `error`."""
        ...

    async def reset_prefix_cache(self) -> None:
        """Forget every cached prefix."""
        ...

    async def enter(self, salt: str) -> None:
        """Begin a cache namespace for requests that are not sent from here; what `generate` and
        `score` send begins its own."""
        ...

    async def aclose(self) -> None:
        """Release the connections."""
        ...


@runtime_checkable
class ReplyingClient(Client, Protocol):
    """A client of an engine whose `forms` are some."""

    async def reply(self, ask: Ask, *, salt: str) -> Observation:
        """Ask as a user's program does and take all that it reads; failures as in `generate`."""
        ...


class TextTokenizer(Protocol):
    """A tokenizer that only the engine can read, by way of a running server of it.

    `prefix` are the ids that it puts before every plain text, `special` its special tokens' texts
    by name (`bos_token`, `eos_token`), `chat_template` Jinja source.
    """

    name: str
    vocabulary_size: int
    prefix: tuple[int, ...]
    chat_template: str | None
    special: dict[str, str]

    def encode(self, text: str) -> tuple[int, ...]:
        """The ids of `text` alone, with nothing put before or after it."""
        ...

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of `token_ids`, special tokens included."""
        ...

    def close(self) -> None:
        """Release the connections."""
        ...


class Tokenizing(Protocol):
    """How an engine tokenizes whose checkpoints hold no `tokenizer.json`."""

    def command(self, config: ArmConfig) -> Command:
        """A command line as Engine.command's, of a server that is only asked to tokenize."""
        ...

    def connect(
        self, base_url: str, api_key: str, *, name: str, reach: Reach | None = None
    ) -> TextTokenizer:
        """The tokenizer of a server started so; `name` is the checkpoint's, for messages. `reach`
        as for Engine.client."""
        ...


class Engine(Protocol):
    """What one kind of engine is. All but `client` is pure."""

    @property
    def kind(self) -> str:
        """The word after `kind:` in a matrix file."""
        ...

    @property
    def default_recipe(self) -> Recipe:
        """The environment when a matrix names none; on CPU wherever packages allow it."""
        ...

    @property
    def health_path(self) -> str:
        """The path that answers 200 once the engine can serve."""
        ...

    @property
    def method_names(self) -> Mapping[str, str]:
        """What other engines call a speculation method, with this engine's own name for it."""
        ...

    @property
    def stops_at_token_ids(self) -> bool:
        """Whether a request can name token ids at which its answer stops."""
        ...

    @property
    def stops_at_strings(self) -> bool:
        """Whether a request can name strings at which its answer stops, and the answer's token ids
        end with the token that completes one."""
        ...

    @property
    def kills_itself(self) -> str | None:
        """What the log of an engine says that kills all its processes where one of them has failed;
        None of one that ends otherwise."""
        ...

    @property
    def forbids_words(self) -> bool:
        """Whether a request can forbid words, of several tokens too, in its answer."""
        ...

    def forms(self, config: ArmConfig) -> tuple[Form, ...]:
        """What a user's program can ask of such a server and this client can put together; none
        where no endpoint gives token ids beside the texts."""
        ...

    @property
    def tokenizing(self) -> Tokenizing | None:
        """How texts become ids; None where the checkpoint's own `tokenizer.json` says it."""
        ...

    @property
    def cache_variables(self) -> Mapping[str, str]:
        """The variables that name where the engine and its libraries keep what they compile, with
        the folder of each below one that is this environment's own."""
        ...

    def refuse(self, config: ArmConfig) -> str | None:
        """Why this arm must not be launched (lossy by design, or not expressible), or None."""
        ...

    def command(self, config: ArmConfig) -> Command:
        """The exact command line, with the placeholders of Command and `$KEY` to fill in.

        Raises UserError when the user's own arguments take over what matrixrun must decide.
        """
        ...

    def forced(self, config: ArmConfig) -> ArmConfig | None:
        """The same on arm with a drafter that is right and wrong where it was planned; None where
        the engine has no place for a drafter of one's own. Traced where that can be had."""
        ...

    def traced(self, config: ArmConfig) -> ArmConfig | None:
        """The same arm with a scheduler that writes down what it does, as lines of
        `evidence.ledger`, into the file `$LEDGER`; None where the engine has no place for one."""
        ...

    def follower_command(self, config: ArmConfig) -> Command:
        """The command line of the process group on each further node of an arm that spans nodes
        (`config.nodes`), with `$HEAD`, `$HEAD_PORT`, `$NODE_RANK` and `$NODE_IP` to fill in too.

        It serves no HTTP and ends with the head's. `refuse` has said no where there is none.
        """
        ...

    def open_cache(self, config: ArmConfig) -> str | None:
        """What would fix the size of the KV cache, which this configuration leaves to the engine:
        a limit or a flag in `args`; None where it is fixed."""
        ...

    def recognise_refusal(self, log: str) -> str | None:
        """The engine's own words when its log ends in a deliberate refusal; None for a crash."""
        ...

    def logged_facts(self, log: str) -> dict[str, Any]:
        """What only the log of a server that serves tells of it, such as the version of the package
        that it is part of; these go before what its endpoints say."""
        ...

    @property
    def cpu_tokens_per_second(self) -> float:
        """A rough guess at the tokens a second on CPU, one request in flight, small model."""
        ...

    def start_seconds(self, config: ArmConfig) -> float:
        """A rough guess at the seconds from spawn to the first healthy answer."""
        ...

    def score_seconds(self, tokens: int) -> float:
        """A rough guess at the seconds that scoring a text of so many emitted tokens takes."""
        ...

    def client(
        self, base_url: str, api_key: str, *, request_timeout: float, reach: Reach | None = None
    ) -> Client:
        """A client for a server of this kind; `request_timeout` in seconds for each request.
        `reach` says how one that is not ours is reached."""
        ...
