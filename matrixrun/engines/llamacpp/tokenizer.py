"""The tokenizer inside a GGUF file, by way of a server that has loaded it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import httpx

from matrixrun.engines.reach import Reach
from matrixrun.evidence.errors import EngineDied

TIMEOUT = 30.0  # seconds for one text


class ServerTokenizer:
    """See matrixrun.engines.protocol.TextTokenizer. Synchronous; close it when done."""

    def __init__(
        self,
        base_url: str,
        api_key: str,
        *,
        name: str,
        transport: httpx.BaseTransport | None = None,
        reach: Reach | None = None,
    ) -> None:
        self._http = httpx.Client(
            base_url=base_url,
            headers={"Authorization": f"Bearer {api_key}"} if reach is None else reach.headers,
            timeout=TIMEOUT,
            # The server drops an idle connection after 5 s, and a request on it then is lost.
            limits=httpx.Limits(keepalive_expiry=2.0),
            transport=transport,
            trust_env=reach is not None,
        )
        self.name = name
        props = self._ask("GET", "/props")
        models = self._ask("GET", "/v1/models")
        self.vocabulary_size = int(models["data"][0]["meta"]["n_vocab"])
        self.chat_template: str | None = props.get("chat_template") or None
        self.special: dict[str, str] = {
            key: props[key] for key in ("bos_token", "eos_token") if props.get(key)
        }
        plain, whole = (self._tokens("a", special=special) for special in (False, True))
        self.prefix = whole[: len(whole) - len(plain)] if whole[-len(plain) :] == plain else ()

    def encode(self, text: str) -> tuple[int, ...]:
        """The ids of `text` alone, with nothing put before or after it."""
        return self._tokens(text, special=False)

    def decode(self, token_ids: Sequence[int]) -> str:
        """The text of `token_ids`, special tokens included."""
        return str(self._ask("POST", "/detokenize", {"tokens": list(token_ids)})["content"])

    def close(self) -> None:
        """Release the connections."""
        self._http.close()

    def _tokens(self, text: str, *, special: bool) -> tuple[int, ...]:
        body = {"content": text, "add_special": special, "parse_special": True}
        return tuple(int(token) for token in self._ask("POST", "/tokenize", body)["tokens"])

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        try:
            answer = self._http.request(method, path, json=body)
            answer.raise_for_status()
            return answer.json()
        except (httpx.HTTPError, ValueError) as error:
            raise EngineDied(f"{path} of the tokenizing server: {error}") from error
