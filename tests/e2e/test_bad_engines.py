"""Engines that cannot be installed, say no, hang, die or talk nonsense: each has its verdict, in a
bounded time, and the sweep goes on.

One engine is real, llama.cpp's server; it refuses a flag by itself. Those that hang, die in a
request or answer half a JSON are doubles in the place of its executable.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.engine

DOUBLE = """\
#!{python}
import http.server, os, sys, time
mode, port = os.path.basename(sys.argv[0]), int(sys.argv[sys.argv.index("--port") + 1])
print("double:", mode, flush=True)
if mode == "hangs":
    time.sleep(600)

class Answer(http.server.BaseHTTPRequestHandler):
    def reply(self, status, text):
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())
    def do_GET(self):
        found = {{"/health": "{{}}", "/slots": "[{{}}]", "/metrics": ""}}.get(self.path)
        self.reply(404 if found is None else 200, found or "")
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/completion" and mode == "dies":
            os._exit(3)
        nonsense = 'data: {{"content": "x", "tok' + "\\n\\n"
        self.reply(200, nonsense if self.path == "/completion" else "{{}}")

http.server.ThreadingHTTPServer(("127.0.0.1", port), Answer).serve_forever()
"""
MATRIX = """\
name: bad-engines
engines:
  absent: {kind: llamacpp, no_deps: ["xllamacpp==1.2.3.dev4"]}
  dies: {kind: llamacpp, binary: ./dies}
  flag: {kind: llamacpp, on: {args: ["--no-such-flag"]}}
  garbles: {kind: llamacpp, binary: ./garbles}
  good: {kind: llamacpp}
  hangs: {kind: llamacpp, binary: ./hangs}
models:
  dense: {targets: {q8_0: {path: "builtin:gguf-dense/q8_0"}}}
grid:
  engine: [absent, dies, flag, garbles, good, hangs]
  model: dense
  quantization: q8_0
  batch_size: 2
  speculation: {method: ngram-simple, num_speculative_tokens: 4, spec_ngram_simple_size_n: 2}
workload: {prompts: 30, max_tokens: 48, ignore_eos: true}
detect: {request_fault_rate: 0.1}
control: within-launch
timeouts: {ready: 20, request: 20, build: 300}
"""
# Seconds on a busy machine, Ray's start included; idle it takes one. A launch that is waited for
# without end takes longer.
BOUND = 600


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, str]]:
    """The sweep's cells by engine."""
    folder = tmp_path_factory.mktemp("bad")
    for mode in ("hangs", "dies", "garbles"):
        (folder / mode).write_text(DOUBLE.format(python=sys.executable))
        (folder / mode).chmod(0o755)
    (folder / "bad.yaml").write_text(MATRIX)
    began = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-m", "matrixrun", "run", "bad.yaml", "--results", "out", "--no-tracking"],
        cwd=folder, capture_output=True, text=True, timeout=2 * BOUND, check=False,
    )  # fmt: skip
    assert done.returncode == 1, done.stdout + done.stderr
    assert time.monotonic() - began < BOUND
    summary = json.loads((folder / "out" / "summary.json").read_text())
    return {cell["id"].partition(".")[0]: cell for cell in summary["cells"]}


@pytest.mark.parametrize(
    ("engine", "verdict", "words"),
    [
        ("absent", "ERROR", "could not be built"),
        ("dies", "ERROR", "died"),
        ("flag", "REFUSED", "invalid argument: --no-such-flag"),
        ("garbles", "INCONCLUSIVE", "baseline unsound"),
        ("good", "PASS", "no fault in 30 prompts"),
        ("hangs", "ERROR", "not healthy within 20 s"),
    ],
)
def test_each_has_its_verdict_and_its_words(
    cells: dict[str, dict[str, str]], engine: str, verdict: str, words: str
) -> None:
    assert cells[engine]["verdict"] == verdict, cells[engine]["reason"]
    assert words in cells[engine]["reason"]
