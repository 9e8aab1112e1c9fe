"""A double of an engine's HTTP server: it answers what a script says, byte by byte.

It is no engine and computes nothing; it exists to answer as a broken one would.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Reply:
    """An answer: `cut` sends only so many bytes of the body it announced, `hang` sends none."""

    status: int = 200
    body: str | dict[str, Any] = ""
    cut: int | None = None
    hang: bool = False
    reset: bool = False


Script = Callable[[str, dict[str, Any]], Reply]


@dataclass
class ScriptedServer:
    """Answers every path through `script(path, body)`; keeps what it was sent in `bodies` and
    `heads`; `health` is the status at /health."""

    script: Script
    healthy: bool = True
    health: int = 200
    heads: list[str] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    url: str = ""

    async def __aenter__(self) -> ScriptedServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        path = head.split()[1]
        length = next((int(v) for k, v in _headers(head) if k == "content-length"), 0)
        body = json.loads(await reader.readexactly(length)) if length else {}
        if path == "/health":
            reply = Reply(self.health if self.healthy else 503)
        else:
            self.bodies.append(body)
            reply = self.script(path, body)
        await self._answer(reply, writer)

    async def _answer(self, reply: Reply, writer: asyncio.StreamWriter) -> None:
        if reply.hang:
            await asyncio.sleep(30)
        if not reply.reset:
            text = reply.body if isinstance(reply.body, str) else json.dumps(reply.body)
            data = text.encode()
            writer.write(
                f"HTTP/1.1 {reply.status} X\r\ncontent-length: {len(data)}\r\n"
                "connection: close\r\n\r\n".encode()
            )
            writer.write(data[: reply.cut])
            await writer.drain()
        writer.close()


def _headers(head: str) -> list[tuple[str, str]]:
    lines = [line.partition(":") for line in head.split("\r\n")[1:]]
    return [(name.lower(), value.strip()) for name, _, value in lines]
