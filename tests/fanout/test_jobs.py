"""Submitting, finding and resuming a sweep, against a double of Ray's client of jobs."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from ray.exceptions import AuthenticationError

from matrixrun.evidence.errors import UserError
from matrixrun.fanout.jobs import Jobs, Submission, describe, entry_point

MATRIX = """\
name: small
engines: {vllm: {kind: vllm}}
models: {dense: {target: {path: org/target}}}
grid: {engine: vllm, model: dense, speculation: {method: ngram, num_speculative_tokens: 2}}
workload: {prompts: 3}
"""


class ClientDouble:
    """Keeps what was submitted; `end` says how a job ended and what it printed."""

    def __init__(self) -> None:
        self.details: list[Any] = []
        self.logs: dict[str, str] = {}
        self.carried: list[list[str]] = []

    def submit_job(self, *, submission_id: str, runtime_env: dict, **given: Any) -> str:
        assert submission_id not in self.logs
        self.carried.append(sorted(p.name for p in Path(runtime_env["working_dir"]).iterdir()))
        self.details.append(
            SimpleNamespace(
                submission_id=submission_id,
                status=SimpleNamespace(value="RUNNING"),
                message="",
                driver_exit_code=None,
                start_time=1000,
                end_time=None,
                runtime_env=runtime_env,
                **given,
            )
        )
        self.logs[submission_id] = ""
        return submission_id

    def end(self, name: str, state: str, code: int | None, log: str) -> None:
        (found,) = [one for one in self.details if one.submission_id == name]
        found.status.value, found.driver_exit_code, found.end_time = state, code, 61000
        self.logs[name] = log

    def list_jobs(self) -> list[Any]:
        return list(self.details)

    def get_job_logs(self, name: str) -> str:
        return self.logs[name]


@pytest.fixture
def client(monkeypatch: pytest.MonkeyPatch) -> ClientDouble:
    double = ClientDouble()
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "http://head:8265")
    monkeypatch.setattr("ray.job_submission.JobSubmissionClient", lambda *_: double)
    return double


@pytest.fixture
def asked(tmp_path: Path) -> Submission:
    file = tmp_path / "m.yaml"
    file.write_text(MATRIX)
    return Submission(file=str(file), results="/shared/nightly", only=("*b1*",), python="py")


def test_a_job_is_named_after_its_sweep_and_carries_the_matrix(
    client: ClientDouble, asked: Submission
) -> None:
    job = Jobs(None).submit(asked)
    assert (job.id, job.sweep, job.attempt, job.over) == ("nightly", "nightly", 1, False)
    assert client.carried == [["m.yaml"]]
    (made,) = client.details
    assert made.entrypoint == "py -m matrixrun run m.yaml --results /shared/nightly --only '*b1*'"
    assert int(made.runtime_env["env_vars"]["RAY_JOB_STOP_WAIT_TIME_S"]) > 30


def test_a_running_sweep_is_not_begun_again(client: ClientDouble, asked: Submission) -> None:
    Jobs(None).submit(asked)
    with pytest.raises(UserError, match="running already"):
        Jobs(None).submit(asked)


def test_resume_sends_the_same_file_as_the_next_attempt(
    client: ClientDouble, asked: Submission
) -> None:
    jobs = Jobs(None)
    jobs.submit(asked)
    client.end("nightly", "STOPPED", None, "")
    again = jobs.resume("nightly")
    assert (again.id, again.attempt) == ("nightly.2", 2)
    assert client.details[0].entrypoint == client.details[1].entrypoint
    assert jobs.find("nightly").id == "nightly.2"
    assert jobs.find("nightly.2").id == "nightly.2"


def test_two_sweeps_of_one_name_are_told_apart(client: ClientDouble, asked: Submission) -> None:
    Jobs(None).submit(asked)
    client.end("nightly", "SUCCEEDED", 0, "matrixrun: exit 0\n")
    other = Submission(file=asked.file, results="/elsewhere/nightly")
    with pytest.raises(UserError, match="/shared/nightly"):
        Jobs(None).submit(other)


def test_results_in_the_jobs_own_folder_would_be_lost(client: ClientDouble, asked) -> None:
    with pytest.raises(UserError, match="absolute"):
        Jobs(None).submit(Submission(file=asked.file, results="results/nightly"))


def test_a_tracking_address_with_credentials_is_not_shown_with_a_job(
    client: ClientDouble, asked: Submission
) -> None:
    uri = "https://me:hunter22@mlflow"
    with pytest.raises(UserError, match="credentials") as caught:
        Jobs(None).submit(Submission(file=asked.file, results="/shared/x", tracking_uri=uri))
    assert "hunter22" not in str(caught.value)


@pytest.mark.parametrize(
    ("state", "code", "log", "verdict"),
    [
        ("SUCCEEDED", 0, "some lines\nmatrixrun: exit 0\n", 0),
        ("FAILED", 1, "matrixrun: exit 1\nlater noise\n", 1),
        ("FAILED", 6, "matrixrun: exit 6\n", 6),
        ("STOPPED", None, "matrixrun: exit 2\n", 2),
        ("FAILED", 4, "matrixrun: m.yaml:3: grid: wrong\n", 4),
        ("FAILED", 1, "No module named matrixrun\n", 2),
        ("FAILED", 137, "", 2),
        ("STOPPED", None, "", 2),
    ],
)
def test_the_verdicts_exit_code_comes_from_the_last_word_of_the_log(
    client: ClientDouble, asked: Submission, state: str, code: int | None, log: str, verdict: int
) -> None:
    jobs = Jobs(None)
    jobs.submit(asked)
    client.end("nightly", state, code, log)
    assert jobs.verdict(jobs.find("nightly")) == verdict


def test_a_job_made_by_rays_own_command_can_be_watched(client: ClientDouble) -> None:
    client.details.append(
        SimpleNamespace(
            submission_id="raysubmit_1", status=SimpleNamespace(value="SUCCEEDED"), message="",
            driver_exit_code=0, start_time=1000, end_time=3000, metadata=None,
        )
    )  # fmt: skip
    client.logs["raysubmit_1"] = "matrixrun: exit 0\n"
    jobs = Jobs(None)
    job = jobs.find("raysubmit_1")
    assert "exit 0: nothing against shipping" in describe(job, jobs.log(job))
    with pytest.raises(UserError, match="not submitted by"):
        jobs.resume("raysubmit_1")


def test_an_unknown_sweep_names_the_known_ones(client: ClientDouble, asked: Submission) -> None:
    Jobs(None).submit(asked)
    with pytest.raises(UserError, match="nightly"):
        Jobs(None).find("nightlyy")


def test_a_cluster_that_wants_a_token_says_how_to_give_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        raise AuthenticationError("no token")

    monkeypatch.setattr("ray.job_submission.JobSubmissionClient", refuse)
    with pytest.raises(UserError, match="RAY_AUTH_MODE=token"):
        Jobs("http://head:8265")


def test_the_entry_point_says_all_that_was_asked(asked: Submission) -> None:
    everything = Submission(
        file=asked.file, results="/r/x", track=False, deadline_minutes=90, only=("a b",)
    )
    assert entry_point(everything, "m.yaml") == (
        "python -m matrixrun run m.yaml --results /r/x --only 'a b' --deadline 90 --no-tracking"
    )


def test_what_rays_native_code_says_while_it_does_not_connect_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def client(*_: object) -> None:
        os.write(2, b"gcs_client.cc:210: Failed to get cluster ID\n")
        raise RuntimeError("Timed out while waiting for GCS to become available.")

    monkeypatch.setattr("ray.job_submission.JobSubmissionClient", client)
    monkeypatch.setenv("RAY_ADDRESS", "head:6379")
    monkeypatch.delenv("RAY_API_SERVER_ADDRESS", raising=False)
    with pytest.raises(UserError, match="head:6379: Timed out"):
        Jobs(None)
    assert "gcs_client" not in capfd.readouterr().err
