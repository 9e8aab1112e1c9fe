"""A server that runs already: asked like one of ours, never started and never stopped."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import Any

from matrixrun.engines.protocol import Client, Engine
from matrixrun.engines.reach import MODELS, Reach, headers_of
from matrixrun.evidence.errors import EngineDied, EngineHung
from matrixrun.evidence.launches import Endpoint
from matrixrun.evidence.requests import Observation, Request

POLL_SECONDS = 1.0
ANSWER_SECONDS = 10.0
# Waiting does not help against these: a wrong key, or no such path.
FINAL = frozenset({401, 403, 404, 405})
UNTRUSTED = "CERTIFICATE_VERIFY_FAILED"


@dataclass(frozen=True)
class Introduction:
    """What an endpoint told of itself: `facts`, its `unknown` parts among them."""

    seconds: float
    facts: dict[str, Any]


class Attached:
    """An endpoint in the place of a `Server`. It is waited for, and left as it is."""

    def __init__(self, endpoint: Endpoint, *, engine: Engine, ready_timeout: float) -> None:
        """Raises UserError when a variable that the endpoint names is not set here."""
        self._endpoint, self._engine = endpoint, engine
        self._ready_timeout = ready_timeout
        self._reach = Reach(headers_of(endpoint), endpoint.model)

    @property
    def argv(self) -> tuple[str, ...]:
        """What stands in the place of a command line."""
        return tuple(filter(None, ("attach", self._endpoint.url, self._reach.model)))

    @property
    def secrets(self) -> dict[str, str]:
        """What must not be written down, under names that say so."""
        values = [value.removeprefix("Bearer ") for value in self._reach.headers.values()]
        return {f"HEADER_{number}_SECRET": value for number, value in enumerate(values)}

    def start(self, first: Request) -> Introduction:
        """Wait until the endpoint is healthy, send it `first`, and ask what it says of itself.

        Raises EngineHung when it is not healthy in time, EngineDied when it cannot be used:
        a wrong key, no such model, answers without token ids.
        """
        began = time.monotonic()
        self._until_healthy(began)
        seconds = time.monotonic() - began
        if self._reach.model is None:
            self._reach = Reach(self._reach.headers, self._only_model())
        return Introduction(seconds, asyncio.run(self._introduced(first)))

    def client(self, *, request_timeout: float) -> Client:
        """A client for the endpoint."""
        return self._engine.client(
            self._endpoint.url, "", request_timeout=request_timeout, reach=self._reach
        )

    def _until_healthy(self, began: float) -> None:
        import httpx

        url = self._endpoint.url + self._engine.health_path
        words = "no answer"
        with httpx.Client(headers=dict(self._reach.headers), timeout=ANSWER_SECONDS) as http:
            while True:
                try:
                    status = http.get(url).status_code
                except httpx.HTTPError as error:
                    words = f"{type(error).__name__}: {error}".rstrip(": ")
                    if UNTRUSTED in words:
                        raise EngineDied(
                            f"{url}: {words}: name the bundle that knows it in SSL_CERT_FILE"
                        ) from error
                else:
                    if status == httpx.codes.OK:
                        return
                    words = f"HTTP {status}"
                    if status in FINAL:
                        raise EngineDied(f"{url} answers {words}: {_hint(status, self._endpoint)}")
                if time.monotonic() - began + POLL_SECONDS > self._ready_timeout:
                    raise EngineHung(
                        f"{url} gave no healthy answer within {self._ready_timeout:g} s ({words})"
                    )
                time.sleep(POLL_SECONDS)

    def _only_model(self) -> str | None:
        """The one model that the endpoint lists; None where it lists none."""
        import httpx

        try:
            answer = httpx.get(
                self._endpoint.url + MODELS,
                headers=dict(self._reach.headers),
                timeout=ANSWER_SECONDS,
            )
            names = [str(entry["id"]) for entry in answer.json()["data"]]
        except (httpx.HTTPError, ValueError, KeyError, TypeError):
            return None
        if len(names) > 1:
            raise EngineDied(
                f"{self._endpoint.url} serves {', '.join(names)}: which is the target?",
                remedy="name it with `model` under the engine's `attach`",
            )
        return names[0] if names else None

    async def _introduced(self, first: Request) -> dict[str, Any]:
        client = self.client(request_timeout=max(ANSWER_SECONDS, self._ready_timeout))
        try:
            seen = await client.generate(first, salt=first.id, logprobs=2)
            if seen.error is not None:
                raise EngineDied(f"{self._endpoint.url} cannot be compared: {seen.error}")
            facts, counters = await client.facts(), await client.counters()
        finally:
            await client.aclose()
        unknown = unknowns(facts, counters, seen)
        return {**facts, "attached": self._endpoint.url, "unknown": unknown}


def _hint(status: int, endpoint: Endpoint) -> str:
    if status in (401, 403):
        key = "attach.key_env names none" if endpoint.key_env is None else endpoint.key_env
        return f"is the key right ({key})?"
    return "is it an engine of this kind, and is the path in the address right?"


def unknowns(facts: dict[str, Any], counters: dict[str, float], seen: Observation) -> list[str]:
    """What is not known of an attached server, in words; `seen` is its answer to one request."""
    missing = {
        "the engine's version": facts.get("version") is None,
        "its arithmetic (dtype)": facts.get("dtype") is None,
        "its own counters": not counters,
        "what its slots hold (they cannot be erased, so that nothing is taken from them)": (
            facts.get("slots_erasable") is False
        ),
        "prompt tokens taken from its cache": seen.cached_tokens is None,
    }
    return [
        "its hardware",
        "its command line",
        "the bytes of its checkpoints",
        "who else it serves",
        *(name for name, holds in missing.items() if holds),
    ]
