"""A double of `vllm serve`: a real process that answers the part of vLLM's HTTP API that matrixrun
uses, from a rule instead of a model. The same text always continues the same way, a speculating
server accepts a fixed pattern of drafts, and BREAK=1 makes it emit a token now and then that the
rule does not give."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import sys
import time
from typing import Any

VOCABULARY = 1000
REQUEST_SECONDS = float(os.environ.get("REQUEST_SECONDS", "0.02"))
BREAKS = os.environ.get("BREAK") == "1"
SPECULATES = "--speculative-config" in sys.argv


def option(name: str) -> str:
    return sys.argv[sys.argv.index(name) + 1]


def following(tokens: list[int]) -> int:
    """The token that the rule gives after these."""
    digest = hashlib.sha256(bytes(str(tokens[-8:]), "ascii")).digest()
    return 10 + int.from_bytes(digest[:4], "big") % (VOCABULARY - 10)


def row(best: int, token: int) -> dict[int, float]:
    """Logprobs of one position: the rule's token is all but certain."""
    other = 1 if best != 1 else 2
    return {best: -0.05, other: -6.0, **({token: -9.0} if token not in (best, other) else {})}


def complete(asked: dict[str, Any]) -> dict[str, Any]:
    tokens = list(asked["prompt"])
    emitted, rows = [], []
    for position in range(asked["max_tokens"]):
        best = following(tokens)
        token = best
        if BREAKS and SPECULATES and position % 7 == 5:
            token = 10 + (best + 13) % (VOCABULARY - 10)
        if asked.get("allowed_token_ids") and position == 0:
            token = asked["allowed_token_ids"][0]
        rows.append(row(best, token))
        emitted.append(token)
        tokens.append(token)
    choice: dict[str, Any] = {
        "index": 0, "text": "", "finish_reason": "length", "token_ids": emitted,
        "logprobs": None, "prompt_logprobs": None,
    }  # fmt: skip
    if asked.get("logprobs"):
        tops = [{f"token_id:{t}": value for t, value in one.items()} for one in rows]
        choice["logprobs"] = {"top_logprobs": tops}
    if asked.get("prompt_logprobs"):
        given = asked["prompt"]
        choice["prompt_logprobs"] = [None] + [
            {str(t): {"logprob": v} for t, v in row(following(given[:i]), given[i]).items()}
            for i in range(1, len(given))
        ]
    answer: dict[str, Any] = {
        "choices": [choice],
        "usage": {
            "prompt_tokens": len(asked["prompt"]),
            "completion_tokens": len(emitted),
            "prompt_tokens_details": {"cached_tokens": max(0, len(asked["prompt"]) - 4)},
        },
        "metrics": {"queue_time_ms": 1.0, "time_to_first_token_ms": 2.0},
    }
    if SPECULATES:
        answer["metrics"]["speculative_decoding"] = steps(len(emitted))
    return answer


def steps(tokens: int) -> dict[str, list[int]]:
    """Two drafts a step, of which 0, 1 and 2 are accepted in turn."""
    accepted: list[int] = []
    left = tokens - 1
    while left > 0:
        here = min(len(accepted) % 3, left - 1)
        accepted.append(here)
        left -= here + 1
    return {"per_step_accepted": accepted, "per_step_drafted": [2] * len(accepted)}


class Answer(http.server.BaseHTTPRequestHandler):
    """The routes that matrixrun asks."""

    def do_GET(self) -> None:
        if self.path == "/version":
            self._send(json.dumps({"version": "double"}))
        elif self.path.startswith("/server_info"):
            config = {"cache_config": {"block_size": 16}, "model_config": {"dtype": "float32"}}
            self._send(json.dumps({"vllm_config": config}))
        else:
            self._send("")

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])) or b"{}")
        if self.path == "/reset_prefix_cache":
            self._send(json.dumps({"success": True}))
            return
        time.sleep(REQUEST_SECONDS)
        self._send(json.dumps(complete(asked)))

    def _send(self, text: str) -> None:
        data = text.encode()
        self.send_response(200)
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        return None


class Server(http.server.ThreadingHTTPServer):
    request_queue_size = 64


if __name__ == "__main__":
    Server((option("--host"), int(option("--port"))), Answer).serve_forever()
