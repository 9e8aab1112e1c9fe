"""What lm-evaluation-harness is given and what becomes of what it writes. The program here is a
double of it: the real one runs in tests/e2e/test_accuracy.py."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from matrixrun.engines.environments import Environment
from matrixrun.engines.harness import Served, evaluate
from matrixrun.evidence.errors import EvaluationError
from matrixrun.evidence.requests import Task

KEY = "a-key-that-nobody-may-read"
SERVED = Served("http://127.0.0.1:1", {"Authorization": f"Bearer {KEY}"}, model="target")
TASK = Task(
    name="sums", yaml="task: sums\n", files={"data-0.jsonl": b"{}\n"}, metric="exact_match",
    filter="strict", limit=2,
)  # fmt: skip
DOUBLE = """\
#!{python}
import json, os, pathlib, sys, time
samples, exit_code, says, seconds = json.loads(pathlib.Path({given!r}).read_text())
pathlib.Path({seen!r}).write_text(json.dumps({{
    "argv": sys.argv[1:], "env": dict(os.environ), "files": sorted(os.listdir()),
    "mode": oct(os.stat(".").st_mode & 0o777)}}))
print(says.replace("KEY", os.environ["OPENAI_API_KEY"]), flush=True)
time.sleep(seconds)
pathlib.Path("out/target").mkdir(parents=True)
with open("out/target/samples_sums_now.jsonl", "w") as file:
    for sample in samples:
        print(json.dumps(sample), file=file)
sys.exit(exit_code)
"""


def sample(number: int, value: object, name: str = "strict") -> dict[str, object]:
    return {"doc_id": number, "filter": name, "exact_match": value, "resps": [[f" {number}"]]}


class Double:
    """The program that stands where the environment's interpreter would."""

    def __init__(self, folder: Path) -> None:
        self._given, self._seen = folder / "given.json", folder / "seen.json"
        program = folder / "python"
        program.write_text(
            DOUBLE.format(python=sys.executable, given=str(self._given), seen=str(self._seen))
        )
        program.chmod(0o755)
        self.environment = Environment(program, None, None, "key")

    def run(self, samples=(), code=0, says="", seconds=0.0, timeout=60.0, served=SERVED):
        self._given.write_text(json.dumps([list(samples), code, says, seconds]))
        return evaluate(
            TASK, served, self.environment, concurrency=3, salt="s", timeout=timeout,
            request_timeout=20.0,
        )  # fmt: skip

    @property
    def seen(self):
        return json.loads(self._seen.read_text())


@pytest.fixture
def double(tmp_path: Path) -> Double:
    return Double(tmp_path)


def test_every_document_is_right_or_wrong_in_the_tasks_order(double: Double) -> None:
    many = [sample(1, 0.0), sample(0, 1.0), sample(0, 0.0, "loose"), sample(1, 1.0, "loose")]
    seen = double.run(many)
    assert [(one.request, one.right, one.text) for one in seen] == [
        ("accuracy.0", True, " 0"),
        ("accuracy.1", False, " 1"),
    ]


def test_the_key_is_in_the_environment_alone(double: Double) -> None:
    double.run([sample(0, 1)])
    assert double.seen["env"]["OPENAI_API_KEY"] == KEY
    assert KEY not in json.dumps(double.seen["argv"])
    assert double.seen["mode"] == "0o700"


@pytest.mark.parametrize(
    ("headers", "key", "sent"),
    [
        ({"authorization": "Bearer k", "X-Tenant": "t"}, "k", {"X-Tenant": "t"}),
        ({"Authorization": "Basic dTpw"}, "", {"Authorization": "Basic dTpw"}),
        ({"AUTHORIZATION": "bearer k"}, "", {"Authorization": "bearer k"}),
        ({"X-Api-Key": "k"}, "", {"X-Api-Key": "k"}),
    ],
)
def test_headers_are_sent_as_they_are_whatever_their_kind(
    double: Double, headers: dict[str, str], key: str, sent: dict[str, str]
) -> None:
    """A Bearer token is the harness's own key; it writes `Bearer` before whatever it takes."""
    double.run([sample(0, 1)], served=Served("http://x", headers, ours=False, model="target"))
    env = double.seen["env"]
    further = json.loads(env["MATRIXRUN_HEADERS"])
    assert env["OPENAI_API_KEY"] == key
    assert {name: env[variable] for name, variable in further.items()} == sent


def test_a_users_netrc_takes_no_headers_place(double: Double, monkeypatch) -> None:
    monkeypatch.setenv("NETRC", "of-the-user")
    double.run([sample(0, 1)])
    assert double.seen["env"]["NETRC"] == os.devnull


def test_other_secrets_and_the_network_stay_out_of_reach(
    double: Double, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_TOKEN", "hub-token")
    double.run([sample(0, 1)])
    env = double.seen["env"]
    assert "HF_TOKEN" not in env
    assert (env["HF_HUB_OFFLINE"], env["HF_DATASETS_OFFLINE"], env["NO_PROXY"]) == ("1", "1", "*")


def test_it_is_asked_greedily_with_the_cells_concurrency(double: Double) -> None:
    double.run([sample(0, 1)])
    argv = double.seen["argv"]
    model = json.loads(argv[argv.index("--model_args") + 1])
    sampling = json.loads(argv[argv.index("--gen_kwargs") + 1])
    assert (model["model"], model["num_concurrent"], model["tokenizer_backend"]) == (
        "target",
        3,
        None,
    )
    assert model["base_url"] == "http://127.0.0.1:1/v1/completions"
    assert (sampling["temperature"], sampling["cache_salt"]) == (0, "s")
    assert argv[argv.index("--limit") + 1] == "2"
    assert {"task.yaml", "data-0.jsonl"} <= set(double.seen["files"])


def test_a_failure_is_told_in_the_servers_words_without_the_key(double: Double) -> None:
    says = "API request failed! Status code: 400, too long. Retrying...\nKeyError: Bearer KEY\n"
    with pytest.raises(EvaluationError) as raised:
        double.run(code=1, says=says)
    assert "exit 1: API request failed! Status code: 400, too long" in raised.value.message
    assert "KeyError: Bearer ***" in raised.value.log_tail


def test_without_an_answer_of_the_server_the_exception_is_told(double: Double) -> None:
    with pytest.raises(EvaluationError, match=r"exit 2: jinja2\.exceptions\.UndefinedError: 'x'"):
        double.run(code=2, says="  File a\njinja2.exceptions.UndefinedError: 'x' is not\nbye")


def test_a_task_that_is_not_done_in_time_is_ended(double: Double) -> None:
    with pytest.raises(EvaluationError, match=r"not done within 0\.5 s") as raised:
        double.run(seconds=60.0, timeout=0.5)
    assert "accuracy.limit" in (raised.value.remedy or "")


@pytest.mark.parametrize("value", [0.4, None])
def test_a_metric_that_is_not_right_or_wrong_is_told(double: Double, value: object) -> None:
    with pytest.raises(EvaluationError, match="does not say right or wrong"):
        double.run([sample(0, value)])


def test_no_samples_are_told(double: Double) -> None:
    with pytest.raises(EvaluationError, match="no sample of the task 'sums'"):
        double.run([])


def test_a_server_that_lists_nothing_is_told(double: Double) -> None:
    with pytest.raises(EvaluationError, match="does not say what is served"):
        evaluate(
            TASK, Served("http://127.0.0.1:1", {}), double.environment, concurrency=1, salt="s",
            timeout=5.0, request_timeout=5.0,
        )  # fmt: skip
