"""How requests get to a server that is not ours: its headers, and TLS and proxies as the
environment says."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from matrixrun.evidence.errors import UserError
from matrixrun.evidence.launches import Endpoint

if TYPE_CHECKING:
    import httpx

MODELS = "/v1/models"


@dataclass(frozen=True)
class Reach:
    """What a client needs beside the address. `headers` hold secrets and are never shown; `model`
    is the name that the server gives the target, None where it lists none."""

    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    model: str | None = None

    def transport(self) -> httpx.AsyncBaseTransport:
        """A transport that sends these headers. Certificates are verified, by the bundle that
        SSL_CERT_FILE or SSL_CERT_DIR name if any; proxies are those of the environment."""
        import httpx

        class Through(httpx.AsyncBaseTransport):
            def __init__(self, headers: Mapping[str, str]) -> None:
                self._headers = headers
                # As for our own servers: no connection is used twice, see the clients.
                limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
                self._client = httpx.AsyncClient(limits=limits)

            async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
                request.headers.pop("authorization", None)
                request.headers.update(self._headers)
                return await self._client.send(request, stream=True)

            async def aclose(self) -> None:
                await self._client.aclose()

        return Through(self.headers)


def headers_of(endpoint: Endpoint, env: Mapping[str, str] | None = None) -> dict[str, str]:
    """The headers of an endpoint with the values that the environment holds.

    Raises:
        UserError: a variable is not set here.
    """
    env = os.environ if env is None else env
    wanted = dict(endpoint.headers_env)
    if endpoint.key_env is not None:
        wanted["Authorization"] = endpoint.key_env
    missing = sorted({name for name in wanted.values() if not env.get(name)})
    if missing:
        raise UserError(
            f"{endpoint.url}: {', '.join(missing)} is not set in the environment of this node",
            remedy="set it where launches run: in this shell, or for a cluster in the job's env",
        )
    found = {header: env[name] for header, name in wanted.items()}
    if endpoint.key_env is not None:
        found["Authorization"] = f"Bearer {found['Authorization']}"
    return found
