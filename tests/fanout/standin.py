"""A double of a multi-node engine, as a program: each process group dials the head's, and the head
answers HTTP once all are there. It speaks just enough of vLLM's API for one pass.

    standin.py HOST PORT HEAD HEAD_PORT NODES RANK [quit]

`quit` makes a follower end as soon as the head has answered its first completion.
"""

from __future__ import annotations

import http.server
import json
import os
import socket
import sys
import time

host, port, head, head_port, nodes, rank = (
    sys.argv[1], int(sys.argv[2]), sys.argv[3], int(sys.argv[4]), int(sys.argv[5]),
    int(sys.argv[6]),
)  # fmt: skip
quits = sys.argv[7:] == ["quit"]
print(json.dumps({"rank": rank, "head": [head, head_port], "node_ip": os.environ["NODE_IP"],
                  "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
                  "caches": {n: v for n, v in os.environ.items() if n.endswith("CACHE_ROOT")}}),
      flush=True)  # fmt: skip


class Answer(http.server.BaseHTTPRequestHandler):
    """Health, and one completion of fixed tokens."""

    def do_GET(self) -> None:
        body = {"version": "stand-in"} if self.path == "/version" else {}
        self._send(json.dumps(body) if self.path != "/metrics" else "")

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
        count = asked["max_tokens"]
        self._send(json.dumps({
            "choices": [{"index": 0, "text": "", "token_ids": [7] * count, "logprobs": None,
                         "finish_reason": "length", "prompt_token_ids": asked["prompt"]}],
            "usage": {"prompt_tokens": len(asked["prompt"]), "completion_tokens": count},
        }))  # fmt: skip
        for follower in followers:
            follower.sendall(b"served")

    def _send(self, text: str) -> None:
        self.send_response(200)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, *_: object) -> None:
        return None


followers: list[socket.socket] = []
if nodes == 1:
    http.server.ThreadingHTTPServer((host, port), Answer).serve_forever()
elif rank == 0:
    with socket.create_server((head, head_port)) as meeting:
        followers += [meeting.accept()[0] for _ in range(nodes - 1)]
    http.server.ThreadingHTTPServer((host, port), Answer).serve_forever()
else:
    for _ in range(600):
        try:
            line = socket.create_connection((head, head_port))
            break
        except OSError:
            time.sleep(0.1)
    while line.recv(64):
        if quits:
            sys.exit("the follower has had enough")
