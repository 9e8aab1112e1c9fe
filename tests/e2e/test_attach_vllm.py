"""`matrixrun run` on two `vllm serve` that run already, with a key of theirs and none of the flags
by which ours tell more. Long: two launches of vLLM.

    python -m pytest -m long tests/e2e/test_attach_vllm.py
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from matrixrun import models
from matrixrun.engines import Environment, Server, get
from matrixrun.evidence.launches import Command

pytestmark = [pytest.mark.engine, pytest.mark.long, pytest.mark.timeout(1800)]

KEY = "the-key-of-staging-4712"
SERVE = (
    *("$PYTHON", "-m", "vllm.entrypoints.cli.main", "serve", "$TARGET", "--host", "$HOST"),
    *("--port", "$PORT", "--served-model-name", "dense-staging", "--max-model-len", "512"),
    *("--max-num-seqs", "4", "--block-size", "32", "--enforce-eager"),
    *("--enable-prefix-caching", "--enable-prompt-tokens-details"),
)
NGRAM = {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_max": 3}
ENVIRONMENT = {
    "VLLM_API_KEY": "$KEY", "VLLM_TARGET_DEVICE": "cpu", "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "OMP_NUM_THREADS": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_NO_USAGE_STATS": "1",
}  # fmt: skip
MATRIX = """\
name: staging
engines:
  staging: {{kind: vllm, attach: {{off: "{off}", on: "{on}", key_env: STAGING_KEY}}}}
models:
  dense: {{target: {{path: "{target}"}}}}
grid:
  engine: staging
  model: dense
  prefix_caching: true
  batch_size: [1, 4]
  speculation: {{method: ngram, num_speculative_tokens: 4, prompt_lookup_max: 3}}
probes: [equality, acceptance, conversation]
workload: {{prompts: 30, max_tokens: 32}}
detect: {{request_fault_rate: 0.1}}
timeouts: {{ready: 60, request: 120}}
"""


def server(environment: Environment, target: Path, log: Path, *more: str) -> Server:
    return Server(
        Command(argv=(*SERVE, *more), env=ENVIRONMENT),
        environment,
        engine=get("vllm"),
        target=str(target),
        api_key=KEY,
        log_path=log,
        ready_timeout=600,
    )


def test_two_vllm_servers_as_anybody_starts_them_are_compared_and_left_running(
    vllm_environment: Environment, cache: Path, tmp_path: Path
) -> None:
    target = models.build("builtin:tiny-dense", vllm_environment.python, cache, print)
    off = server(vllm_environment, target, tmp_path / "off.log")
    speculating = ("--speculative-config", json.dumps(NGRAM))
    on = server(vllm_environment, target, tmp_path / "on.log", *speculating)
    with ExitStack() as stack:
        with ThreadPoolExecutor() as both:
            list(both.map(stack.enter_context, (off, on)))
        text = MATRIX.format(off=off.base_url, on=on.base_url, target=target)
        (tmp_path / "staging.yaml").write_text(text)
        done = subprocess.run(
            [sys.executable, "-m", "matrixrun", "run", "staging.yaml", "--results", "out"],
            cwd=tmp_path, env={**os.environ, "STAGING_KEY": KEY}, capture_output=True, text=True,
            timeout=1200, check=False,
        )  # fmt: skip
        assert off.alive
        assert on.alive
    assert done.returncode == 6, done.stdout + done.stderr
    assert KEY not in done.stdout + done.stderr
    check(tmp_path / "out")


def check(out: Path) -> None:
    """All but the steps is known: answers, scores, cached tokens, the cache's blocks, and drafts by
    the engine's own count, which does not say where they were rejected."""
    for cell in json.loads((out / "summary.json").read_text())["cells"]:
        assert cell["verdict"] == "INCONCLUSIVE"
        assert "gives no per-step data" in cell["reason"]
        assert {finding["severity"] for finding in cell["findings"]} == {"notice"}
        assert cell["metrics"]["same/exact_match.on"] == 1
        assert cell["metrics"]["acceptance/draft_tokens"] > 0
        assert cell["metrics"]["conversation/granularity"] == 32  # told by /metrics alone
        assert cell["coverage"]["conversation.turns_reused"] > 0
        (notice,) = (one for one in cell["findings"] if one["kind"] == "attached")
        assert "its hardware" in notice["text"]
        assert "its arithmetic (dtype)" in notice["text"]
    written = (path for path in out.rglob("*") if path.is_file())
    assert not [path for path in written if KEY.encode() in path.read_bytes()]
