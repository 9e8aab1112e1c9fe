"""HTTP to one engine's server: what every client does alike, and what each failure means.

Imported by the client halves only; the pure halves never see httpx.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, Callable
from typing import Any

import httpx

from matrixrun.evidence.errors import EngineDied
from matrixrun.evidence.requests import Observation, Request

CONTROL_TIMEOUT = 30.0  # seconds for health, facts and metrics; they queue behind nothing


class Failed(Exception):
    """A request that did not work out on a live engine; the text is the engine's own."""


class Refused(Failed):
    """A request that was answered with an HTTP `status` that is none of success."""

    def __init__(self, words: str, status: int) -> None:
        super().__init__(words)
        self.status = status


class Connection:
    """One server. Control calls raise EngineDied when it does not answer; requests raise Failed
    while it lives, and EngineDied once its health says that it does not."""

    def __init__(
        self,
        base_url: str,
        api_key: str,
        *,
        request_timeout: float,
        idle_seconds: float | None = None,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """`request_timeout` in seconds bounds a request. An idle connection is used again for
        `idle_seconds`; None gives each request one of its own. A server drops an idle one at a
        time of its own choosing, and a request that crosses with that is lost, which looks like a
        fault of the engine."""
        self.request_timeout = request_timeout
        reused = 0 if idle_seconds is None else None
        self._http = httpx.AsyncClient(
            base_url=base_url,
            headers={"Authorization": f"Bearer {api_key}"},
            timeout=httpx.Timeout(CONTROL_TIMEOUT),
            limits=httpx.Limits(
                max_connections=None,
                max_keepalive_connections=reused,
                keepalive_expiry=idle_seconds,
            ),
            transport=transport,
            trust_env=False,  # a proxy has no business between us and a server of our own
        )

    async def healthy(self) -> bool:
        """Whether /health answers 200; never raises."""
        try:
            return (await self._http.get("/health")).status_code == httpx.codes.OK
        except httpx.HTTPError:
            return False

    async def aclose(self) -> None:
        """Release the connections."""
        await self._http.aclose()

    async def control(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Whatever the server answers; EngineDied when it does not."""
        try:
            return await self._http.request(method, path, **options)
        except httpx.HTTPError as error:
            raise EngineDied(f"{path} does not answer: {name(error)}") from error

    async def report(self, path: str) -> Any:
        """What a server says of itself at `path` (JSON), None where it says nothing there."""
        answer = await self.control("GET", path)
        try:
            return _json(answer) if answer.is_success else None
        except Failed as error:
            raise EngineDied(f"{path}: {error}") from error

    async def complete(self, path: str, body: dict[str, Any]) -> Any:
        """The parsed answer in one piece; Failed with the engine's words, EngineDied when it is
        gone."""
        timeout = httpx.Timeout(self.request_timeout, connect=CONTROL_TIMEOUT)
        try:
            answer = await self._http.post(path, json=body, timeout=timeout)
        except httpx.ReadTimeout:
            raise Failed(f"timeout: no answer within {self.request_timeout:g} s") from None
        except httpx.HTTPError as error:
            raise await self._broken(error) from error
        if not answer.is_success:
            await self._refused(answer)
        return _json(answer)

    async def lines(
        self, path: str, body: dict[str, Any], *, headers: dict[str, str] | None = None
    ) -> AsyncGenerator[str, None]:
        """The lines of a streamed answer; raises as `complete` does, but bound it yourself (a
        stream may trickle for ever) and close it when you leave it before its end. Only a line
        feed ends a line: text may hold other characters that httpx takes for ends of lines."""
        timeout = httpx.Timeout(None, connect=CONTROL_TIMEOUT)
        try:
            async with self._http.stream(
                "POST", path, json=body, timeout=timeout, headers=headers
            ) as answer:
                if not answer.is_success:
                    await answer.aread()
                    await self._refused(answer)
                rest = b""
                async for data in answer.aiter_bytes():
                    *whole, rest = (rest + data).split(b"\n")
                    for line in whole:
                        yield line.decode(errors="replace").rstrip("\r")
                if rest:
                    yield rest.decode(errors="replace")
        except httpx.HTTPError as error:
            raise await self._broken(error) from error

    async def stream(self, path: str, body: dict[str, Any], take: Callable[[str], None]) -> None:
        """Hand every line of a streamed answer to `take`, to its end; raises as `complete` does."""
        try:
            async with asyncio.timeout(self.request_timeout):
                async with contextlib.aclosing(self.lines(path, body)) as lines:
                    async for line in lines:
                        take(line)
        except TimeoutError:
            raise Failed(f"timeout: no answer within {self.request_timeout:g} s") from None

    async def _refused(self, answer: httpx.Response) -> None:
        if answer.is_server_error:
            await self._require_life(quote(answer))
        raise Refused(quote(answer), answer.status_code)

    async def _broken(self, error: httpx.HTTPError) -> Failed:
        await self._require_life(name(error))
        return Failed(f"the connection broke: {name(error)}")

    async def _require_life(self, words: str) -> None:
        if not await self.healthy():
            raise EngineDied(f"the engine stopped answering: {words}")


def parsed_part(text: str) -> Any:
    """The JSON of one part of a stream; Failed where it is none."""
    try:
        return json.loads(text)
    except ValueError as error:
        raise Failed(f"a part of an answer that is no JSON: {text[:300]!r}") from error


def failed_observation(request: Request, *, seconds: float, error: str) -> Observation:
    """What is left of a request that failed after `seconds`."""
    return Observation(
        request=request.id,
        prompt=request.prompt,
        category=request.category,
        finished=seconds,
        error=error,
    )


def quote(answer: httpx.Response) -> str:
    """`HTTP 400: <the engine's words>`."""
    try:
        words = answer.json()["error"]["message"]
    except (ValueError, KeyError, TypeError):
        words = answer.text[:500]
    return f"HTTP {answer.status_code}: {words}"


def name(error: Exception) -> str:
    """`ReadError: what it says`."""
    return f"{type(error).__name__}: {error}".rstrip(": ")


def _json(answer: httpx.Response) -> Any:
    try:
        return json.loads(answer.content)
    except ValueError as error:
        raise Failed(f"an answer that is no JSON: {answer.text[:300]!r}") from error
