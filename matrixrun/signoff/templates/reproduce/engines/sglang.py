"""SGLang's HTTP, as far as a reproduction needs it. Standard library only."""

from __future__ import annotations

import json
import urllib.request
import uuid
from typing import Any

PATH = "/generate"
SECONDS = 600


def begin(url: str, key: str) -> None:
    """Flush what the server holds: an n-gram drafter learns over requests."""
    post(url, key, "/flush_cache", {})


def emitted(
    url: str, key: str, request: dict[str, Any], sampling: dict[str, Any], salt: str
) -> list[int]:
    """The token ids that the server gives to a request of token ids."""
    params = {name: value for name, value in sampling.items() if name in SHARED}
    params |= {
        "max_new_tokens": request["max_tokens"],
        "min_new_tokens": sampling["min_tokens"],
        "top_k": sampling["top_k"] or -1,
        "sampling_seed": sampling["seed"],
    }
    body = {"input_ids": request["prompt"], "sampling_params": params, "extra_key": salt}
    tokens: list[int] = post(url, key, PATH, body)["output_ids"]
    return tokens


SHARED = (
    "temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty",
    "repetition_penalty", "ignore_eos",
)  # fmt: skip


def regret(url: str, key: str, prefix: list[int], token: int) -> float:
    """Nats by which the server, in one prefill, prefers its best token to this one."""
    params = {"max_new_tokens": 0, "temperature": 0.0}
    body = {"input_ids": [*prefix, token], "sampling_params": params, "return_logprob": True}
    body |= {"top_logprobs_num": 1, "logprob_start_len": len(prefix) - 1}
    meta = post(url, key, PATH, body | {"extra_key": uuid.uuid4().hex})["meta_info"]
    own, best = meta["input_token_logprobs"][-1][0], meta["input_top_logprobs"][-1][0][0]
    return float(max(best, own) - own)


def post(url: str, key: str, path: str, body: dict[str, Any]) -> Any:
    """The parsed answer to one request."""
    request = urllib.request.Request(
        url.rstrip("/") + path,
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json", "Authorization": f"Bearer {key}"},
    )
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        return json.loads(answer.read() or b"null") if path == PATH else None
