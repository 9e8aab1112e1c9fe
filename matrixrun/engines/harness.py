"""lm-evaluation-harness, asked to put a task to a running server: a process of its own in an
environment of its own, which is built and kept as an engine's is. Nothing of it is imported here.

The server's key reaches it in its environment alone. It quotes the key in its log when a request
fails, so that what is told of that log is masked, and the log itself goes away with its folder.
"""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from matrixrun.engines.environments import Environment
from matrixrun.engines.processes import Held
from matrixrun.engines.reach import MODELS
from matrixrun.engines.surroundings import engine_environment, is_secret, mask_text
from matrixrun.evidence.errors import EvaluationError
from matrixrun.evidence.launches import Recipe
from matrixrun.evidence.requests import Observation, Task

# Without its extras for models it needs neither torch nor transformers (docs/engines.md).
RECIPE = Recipe(install=("lm-eval[api]==0.4.13",))
COMPLETIONS = "/v1/completions"
PROGRAM = Path(__file__).with_name("inside") / "matrixrun_harness.py"
KEY = "OPENAI_API_KEY"
HEADERS = "MATRIXRUN_HEADERS"
AUTHORIZATION, BEARER = "Authorization", "Bearer "
OFFLINE = ("HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE", "HF_EVALUATE_OFFLINE", "DO_NOT_TRACK")
ASKING_SECONDS = 30.0
TAIL_LINES = 12
# Every field that an engine may otherwise take from the checkpoint's generation config; engines
# leave out of account what they do not know.
GREEDY = {
    "temperature": 0, "top_p": 1, "presence_penalty": 0, "frequency_penalty": 0,
    "repetition_penalty": 1.0,
}  # fmt: skip

# What says why, in the harness's own log: a server's answer first, then what it could not do.
_WORDS = (
    re.compile(r"API request failed[^\n]*"),
    re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception)\b[^\n]*", re.MULTILINE),
)


@dataclass(frozen=True)
class Served:
    """A server to be asked: its address, the headers that it wants (never shown), and its name for
    the target (None: the one that it lists). `ours` is false for one that runs elsewhere, which may
    be behind a proxy."""

    url: str
    headers: Mapping[str, str] = field(repr=False)
    ours: bool = True
    model: str | None = None


def evaluate(
    task: Task, served: Served, environment: Environment, *, concurrency: int, salt: str,
    timeout: float, request_timeout: float,
) -> tuple[Observation, ...]:  # fmt: skip
    """Return an observation for each document of the task, with its text and whether it is right,
    in the order of the documents.

    `salt` is the cache namespace; `timeout` seconds bound the whole, `request_timeout` a request.

    Raises:
        EvaluationError: the harness failed or was not done in time, or its metric does not say
            right or wrong; `log_tail` is the end of its log, secrets masked.
    """
    with tempfile.TemporaryDirectory(prefix="matrixrun-task-") as scratch:
        folder = Path(scratch)
        (folder / "task.yaml").write_text(task.yaml, encoding="utf-8")
        for name, data in task.files.items():
            (folder / name).write_bytes(data)
        argv = _command(task, served, concurrency, salt, request_timeout)
        env = _environment(served, folder)
        _run([str(environment.python), str(PROGRAM), *argv], env, folder, timeout)
        found = sorted(folder.glob("out/*/samples_*.jsonl"))
        # Not splitlines: a text may hold what Unicode calls an end of line.
        lines = [line for path in found for line in path.read_text("utf-8").split("\n") if line]
    try:
        return tuple(_observations(task, [json.loads(line) for line in lines]))
    except (ValueError, LookupError, TypeError) as error:
        raise EvaluationError(f"lm-eval's samples cannot be read: {error!r}") from error


def _command(
    task: Task, served: Served, concurrency: int, salt: str, request_timeout: float
) -> list[str]:
    model = {
        "base_url": served.url + COMPLETIONS,
        "model": _model_name(served),
        "tokenizer_backend": None,  # the server's own: texts are sent as texts
        "tokenized_requests": False,
        "num_concurrent": concurrency,
        "max_retries": 1,
        "timeout": max(1, round(request_timeout)),
    }
    sampling = GREEDY | {"cache_salt": salt}
    argv = ["run", "--model", "local-completions", "--model_args", json.dumps(model)]
    argv += ["--gen_kwargs", json.dumps(sampling)]
    argv += ["--tasks", "task.yaml", "--log_samples", "--output_path", "out"]
    return argv if task.limit is None else [*argv, "--limit", str(task.limit)]


def _environment(served: Served, folder: Path) -> dict[str, str]:
    """What the harness inherits: no secret but the server's key, no network but the server."""
    env = {k: v for k, v in engine_environment({}, None).items() if not is_secret(k)}
    env.pop("PYTHONPATH", None)
    env |= dict.fromkeys(OFFLINE, "1") | {"HF_HOME": str(folder / "hub")}
    env["NETRC"] = os.devnull  # whose entries would take the place of our own Authorization
    env[KEY], further = _key_and_further(served.headers)
    # Variables of such names are masked wherever the log is quoted.
    held = {name: f"HEADER_{number}_SECRET" for number, name in enumerate(further)}
    env |= {variable: further[name] for name, variable in held.items()}
    env[HEADERS] = json.dumps(held)
    if served.ours:
        return env | {"NO_PROXY": "*", "no_proxy": "*"}
    bundle = env.get("SSL_CERT_FILE") or env.get("SSL_CERT_DIR")
    if bundle:  # a single request at a time is sent by requests, which has a name of its own for it
        env.setdefault("REQUESTS_CA_BUNDLE", bundle)
    return env


def _key_and_further(headers: Mapping[str, str]) -> tuple[str, dict[str, str]]:
    """The key, which the harness sends as a Bearer token, and what it is to send beside or, where
    the server wants another kind of Authorization, instead of that."""
    named = {
        AUTHORIZATION if k.lower() == AUTHORIZATION.lower() else k: headers[k] for k in headers
    }
    if not named.get(AUTHORIZATION, BEARER).startswith(BEARER):
        return "", named
    return named.pop(AUTHORIZATION, BEARER).removeprefix(BEARER), named


def _model_name(served: Served) -> str:
    """The name under which the server serves the target."""
    import httpx

    if served.model is not None:
        return served.model

    try:
        answer = httpx.get(
            served.url + MODELS, headers=dict(served.headers), timeout=ASKING_SECONDS,
            trust_env=not served.ours,
        )  # fmt: skip
        return str(answer.json()["data"][0]["id"])
    except (httpx.HTTPError, ValueError, LookupError, TypeError) as error:
        raise EvaluationError(
            f"{served.url}{MODELS} does not say what is served: {type(error).__name__}"
        ) from error


def _run(argv: list[str], env: dict[str, str], folder: Path, timeout: float) -> None:
    log = folder / "log"
    with log.open("wb") as output:
        held = Held(argv, env=env, output=output, cwd=folder, status_path=folder / "status")
    try:
        code = held.wait(timeout)
    finally:
        held.stop()
    if code == 0:
        return
    text = mask_text(log.read_text(errors="replace"), env)
    tail = "\n".join(text.splitlines()[-TAIL_LINES:])
    if code is None:
        raise EvaluationError(
            f"the task was not done within {timeout:g} s", log_tail=tail,
            remedy="raise timeouts.accuracy, or ask fewer documents (accuracy.limit)",
        )  # fmt: skip
    raise EvaluationError(f"lm-eval ended with exit {code}: {_cause(text)}", log_tail=tail)


def _cause(log: str) -> str:
    """The line of the harness's log that says why it failed."""
    for words in _WORDS:
        found = words.findall(log)
        if found:
            return str(found[0]).strip()
    lines = [line for line in log.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "it said nothing"


def _observations(task: Task, samples: list[dict[str, Any]]) -> Iterator[Observation]:
    kept = [one for one in samples if task.filter in (None, one.get("filter"))]
    if not kept:
        raise EvaluationError(f"lm-eval wrote no sample of the task {task.name!r}")
    for one in sorted(kept, key=lambda sample: int(sample["doc_id"])):
        value = one.get(task.metric)
        if value not in (0, 1):
            raise EvaluationError(
                f"the metric {task.metric!r} of document {one['doc_id']} is {value!r}: it does "
                "not say right or wrong",
                remedy="name one that is 1 or 0 for each document in accuracy.metric",
            )
        name = f"accuracy.{one['doc_id']}"
        seen = Observation(request=name, prompt=name, category=task.name, right=bool(value))
        yield replace(seen, text=str(one["resps"][0][0]))
