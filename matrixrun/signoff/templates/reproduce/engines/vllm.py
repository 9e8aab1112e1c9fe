"""vLLM's HTTP, as far as a reproduction needs it. Standard library only."""

from __future__ import annotations

import json
import urllib.request
import uuid
from typing import Any

PATH = "/v1/completions"
SECONDS = 600


def begin(url: str, key: str) -> None:
    """Nothing to do: the salt of a request is its namespace in the prefix cache."""


def emitted(
    url: str, key: str, request: dict[str, Any], sampling: dict[str, Any], salt: str
) -> list[int]:
    """The token ids that the server gives to a request of token ids."""
    body = {"model": "target", **sampling, "prompt": request["prompt"], "cache_salt": salt}
    body |= {"max_tokens": request["max_tokens"], "logprobs": 2, "return_token_ids": True}
    tokens: list[int] = post(url, key, PATH, body)["choices"][0]["token_ids"]
    return tokens


def regret(url: str, key: str, prefix: list[int], token: int) -> float:
    """Nats by which the server, in one prefill, prefers its best token to this one."""
    body = {"model": "target", "prompt": [*prefix, token], "max_tokens": 1, "temperature": 0.0}
    body |= {"prompt_logprobs": 1, "cache_salt": uuid.uuid4().hex}
    rows = post(url, key, PATH, body)["choices"][0]["prompt_logprobs"]
    row = {int(name): value["logprob"] for name, value in rows[-1].items()}
    return float(max(row.values()) - row[token])


def post(url: str, key: str, path: str, body: dict[str, Any]) -> Any:
    """The parsed answer to one request."""
    request = urllib.request.Request(
        url.rstrip("/") + path,
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json", "Authorization": f"Bearer {key}"},
    )
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        return json.load(answer)
