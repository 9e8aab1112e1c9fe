"""llama.cpp's HTTP, as far as a reproduction needs it. Standard library only."""

from __future__ import annotations

import json
import urllib.request
from typing import Any

PATH = "/completion"
SECONDS = 600
FORCE = 1.0e6  # added to a token's logit, it is emitted; logprobs are those before it
TOP = 64


def begin(url: str, key: str) -> None:
    """Erase all slots: they know no namespaces."""
    asked = urllib.request.Request(
        url.rstrip("/") + "/slots", headers={"Authorization": f"Bearer {key}"}
    )
    with urllib.request.urlopen(asked, timeout=SECONDS) as answer:
        slots = json.load(answer)
    for number in range(len(slots)):
        post(url, key, f"/slots/{number}?action=erase", {})


def emitted(
    url: str, key: str, request: dict[str, Any], sampling: dict[str, Any], _salt: str
) -> list[int]:
    """The token ids that the server gives to a request of token ids."""
    body = with_sampling(sampling, request["prompt"], request["max_tokens"])
    tokens: list[int] = post(url, key, PATH, body)["tokens"]
    return tokens


def with_sampling(sampling: dict[str, Any], prompt: list[int], count: int) -> dict[str, Any]:
    """A request with every sampling field in it: the server's defaults are other ones."""
    return {
        **{name: sampling[name] for name in SHARED},
        "prompt": prompt,
        "n_predict": count,
        "return_tokens": True,
        "repeat_penalty": sampling["repetition_penalty"],
        "repeat_last_n": len(prompt) + count,
        "seed": -1 if sampling["seed"] is None else sampling["seed"],
        "typical_p": 1.0,
    }


SHARED = (
    "temperature", "top_p", "top_k", "min_p", "presence_penalty", "frequency_penalty", "ignore_eos",
)  # fmt: skip


def regret(url: str, key: str, prefix: list[int], token: int) -> float:
    """Nats by which the server, in one prefill, prefers its best token to this one: the least that
    it can be where the token is not among those that the server lists."""
    greedy = {"temperature": 0.0, "top_k": 0, "top_p": 1.0, "cache_prompt": False}
    body = {"prompt": prefix, "n_predict": 1, "n_probs": TOP, "return_tokens": True, **greedy}
    answer = post(url, key, PATH, body | {"logit_bias": [[token, FORCE]]})
    if not answer.get("completion_probabilities"):  # it ends inside a character
        answer = post(url, key, PATH, body)
    (entry,) = answer["completion_probabilities"]
    listed = {one["id"]: one["logprob"] for one in entry["top_logprobs"]}
    if entry["id"] == token:
        listed.setdefault(token, entry["logprob"])
    best = max(listed.values())
    return float(best - listed.get(token, min(listed.values())))


def post(url: str, key: str, path: str, body: dict[str, Any]) -> Any:
    """The parsed answer to one request."""
    request = urllib.request.Request(
        url.rstrip("/") + path,
        data=json.dumps(body).encode(),
        headers={"Content-Type": "application/json", "Authorization": f"Bearer {key}"},
    )
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        return json.load(answer)
