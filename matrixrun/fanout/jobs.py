"""A sweep as a job of a Ray cluster: submitted, watched, stopped and resumed from elsewhere.

A sweep's id is its job's submission id; each further attempt has `.2`, `.3` ... behind it. Ray
refuses an id that was used, so two people cannot begin the same attempt.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import re
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import Any

import msgspec

import matrixrun
from matrixrun import plan as planning
from matrixrun.evidence.errors import UserError
from matrixrun.evidence.verdicts import EXIT_CODES
from matrixrun.fanout.parcel import pack
from matrixrun.matrix import Matrix
from matrixrun.record import is_url
from matrixrun.record.standing import ADDRESSES

SWEEP = "matrixrun.sweep"
SUBMISSION = "matrixrun.submission"
# Ray ends a job three seconds after it was asked to stop, too soon to end engines and to write
# what is done.
STOP_SECONDS = 120
POLL_SECONDS = 1.0
# Ray's client tells of packages that it uploads and of sockets that it closes.
CHATTY = ("ray", "ray.dashboard.modules.dashboard_sdk", "ray.dashboard.modules.job.sdk")
ENDED = frozenset({"STOPPED", "SUCCEEDED", "FAILED"})
INCOMPLETE = 2

_EXIT = re.compile(r"^matrixrun: exit (\d)\s*$", re.MULTILINE)
_CREDENTIALS = re.compile(r"://[^/@\s]+@")


class Submission(msgspec.Struct, frozen=True, kw_only=True):
    """What a job is asked to do.

    `file` lies here; `results` is the sweep's own folder on the cluster, whose last part is the
    sweep's id; `python` the interpreter there. `with_code` sends this very matrixrun along (not
    what it depends on).
    """

    file: str
    results: str
    only: tuple[str, ...] = ()
    tracking_uri: str | None = None
    track: bool = True
    deadline_minutes: float | None = None
    python: str = "python"
    with_code: bool = False

    @property
    def sweep(self) -> str:
        """The sweep's id."""
        return PurePosixPath(self.results).name


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt at a sweep. `state` is Ray's own word, `exit_code` the driver's, None until it
    ends; `submission` is None for a job that `ray job submit` has made. Seconds since 1970."""

    id: str
    sweep: str
    attempt: int
    state: str
    message: str = ""
    exit_code: int | None = None
    started: float | None = None
    ended: float | None = None
    submission: Submission | None = None

    @property
    def over(self) -> bool:
        """Whether it has ended, in whatever way."""
        return self.state in ENDED


class Jobs:
    """The jobs of one cluster.

    Args:
        address: of the cluster's dashboard (`http://HEAD:8265`); None takes
            RAY_API_SERVER_ADDRESS or RAY_ADDRESS.

    Raises:
        UserError: no cluster is named, or it does not answer, or refuses us.
    """

    def __init__(self, address: str | None) -> None:
        _check_named(address)
        from ray.job_submission import JobSubmissionClient

        for name in CHATTY:
            logging.getLogger(name).setLevel(logging.WARNING)
        self._where = address or next(filter(None, map(os.environ.get, ADDRESSES)), "")
        with _without_stderr():
            self._client: Any = self._asked(lambda: JobSubmissionClient(address))

    def submit(self, submission: Submission) -> Job:
        """Send a matrix file and what it names, and begin the sweep or its next attempt.

        Raises:
            UserError: the file is wrong, the results folder has no absolute path, or an attempt
                is still running.
        """
        matrix = check(submission)
        file = Path(submission.file)
        attempt = self._next_attempt(submission)
        name = submission.sweep if attempt == 1 else f"{submission.sweep}.{attempt}"
        with tempfile.TemporaryDirectory(prefix="matrixrun-job-") as folder:
            packed = pack(file, matrix, Path(folder))
            relative = packed.relative_to(folder).as_posix()
            self._asked(
                lambda: self._client.submit_job(
                    entrypoint=entry_point(submission, relative),
                    submission_id=name,
                    runtime_env=_runtime_env(submission, folder),
                    metadata={
                        SWEEP: submission.sweep,
                        SUBMISSION: msgspec.json.encode(submission).decode(),
                    },
                )
            )
        return self.find(name)

    def resume(self, sweep: str) -> Job:
        """Begin the next attempt at a sweep: the same file with the same options, sent anew."""
        known = self.find(sweep)
        if known.submission is None:
            raise UserError(
                f"{sweep} was not submitted by `matrixrun submit`",
                remedy="submit its matrix file with the same --results: it resumes",
            )
        if not Path(known.submission.file).is_file():
            raise UserError(
                f"the matrix file of {sweep} is not here: {known.submission.file}",
                remedy=f"`matrixrun submit FILE --results {known.submission.results}` resumes it"
                " from a copy of the same file",
            )
        return self.submit(known.submission)

    def find(self, reference: str) -> Job:
        """The latest attempt at a sweep, or the job of this submission id; a results folder or its
        URL names the sweep of its last part."""
        jobs, reference = self._jobs(), PurePosixPath(reference).name
        attempts = [job for job in jobs if job.sweep == reference]
        if attempts:
            return max(attempts, key=lambda job: job.attempt)
        for job in jobs:
            if job.id == reference:
                return job
        known = sorted({job.sweep for job in jobs})
        raise UserError(
            f"{self._where} knows no sweep {reference!r}",
            remedy=f"its sweeps are {', '.join(known[-5:])}" if known else "it has none yet",
        )

    def log(self, job: Job) -> str:
        """All that the job has printed so far."""
        text: str = self._asked(lambda: self._client.get_job_logs(job.id))
        return text

    def follow(self, job: Job, say: Callable[[str], None]) -> Job:
        """Hand over what the job prints until it ends; returns it as it ended then.

        A connection that breaks is made again.
        """
        asyncio.run(self._tail(job, say))
        while not (job := self.find(job.id)).over:
            time.sleep(POLL_SECONDS)
        return job

    async def _tail(self, job: Job, say: Callable[[str], None]) -> None:
        import aiohttp

        shown = 0
        while True:
            skip = shown
            try:
                async for text in self._client.tail_job_logs(job.id):
                    new, skip = text[skip:], max(0, skip - len(text))
                    shown += len(new)
                    if new:
                        say(new)
                return
            except (RuntimeError, aiohttp.ClientError, OSError):
                if self.find(job.id).over:
                    return
                await asyncio.sleep(POLL_SECONDS)

    def stop(self, job: Job) -> Job:
        """End the job: its driver ends the engines and writes what is done. Returns it ended."""
        self._asked(lambda: self._client.stop_job(job.id))
        until = time.monotonic() + STOP_SECONDS + 30
        while not (job := self.find(job.id)).over and time.monotonic() < until:
            time.sleep(POLL_SECONDS)
        return job

    def verdict(self, job: Job) -> int:
        """The exit code of a job that has ended, by matrixrun's own table."""
        found = _EXIT.findall(self.log(job))
        if found:
            return int(found[-1])
        # Python itself exits with 1 where it does not find matrixrun: no verdict of ours.
        known = job.exit_code in EXIT_CODES and job.exit_code not in (0, 1)
        return int(job.exit_code) if known and job.exit_code is not None else INCOMPLETE

    # -- underneath ------------------------------------------------------------------------------

    def _next_attempt(self, submission: Submission) -> int:
        attempts = [job for job in self._jobs() if job.sweep == submission.sweep]
        for job in attempts:
            if not job.over:
                raise UserError(
                    f"sweep {job.sweep} is running already, as job {job.id}",
                    remedy=f"`matrixrun logs {job.sweep}` shows it, `matrixrun stop` ends it",
                )
            if job.submission is not None and job.submission.results != submission.results:
                raise UserError(
                    f"another sweep {job.sweep} lies in {job.submission.results}",
                    remedy="let the last part of --results be another name",
                )
        return max((job.attempt for job in attempts), default=0) + 1

    def _jobs(self) -> list[Job]:
        details = self._asked(self._client.list_jobs)
        return [_job(one) for one in details if one.submission_id is not None]

    def _asked(self, ask: Callable[[], Any]) -> Any:
        """What the cluster answers; what goes wrong on the way is the user's to mend."""
        from ray.exceptions import AuthenticationError

        try:
            return ask()
        except AuthenticationError as error:
            raise UserError(
                f"Ray: {self._where} asks for a token",
                remedy="set RAY_AUTH_MODE=token in this shell, and have the cluster's token in"
                " ~/.ray/auth_token or in RAY_AUTH_TOKEN",
            ) from error
        except (RuntimeError, ConnectionError, ValueError, OSError) as error:
            first = next(iter(str(error).strip().splitlines()), type(error).__name__)
            raise UserError(
                f"Ray: {self._where}: {first}",
                remedy="check --address (the dashboard's, http://HEAD:8265) and that"
                " `ray job list` works with it",
            ) from error


@contextlib.contextmanager
def _without_stderr() -> Iterator[None]:
    """What Ray's native code says on its way to an error that is told in our words."""
    sys.stderr.flush()
    kept, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, 2)
        yield
    finally:
        os.dup2(kept, 2)
        os.close(kept)
        os.close(nowhere)


def _check_named(address: str | None) -> None:
    """Refuse to guess: left alone, Ray's client takes whatever cluster runs on this machine."""
    if address is None and not any(os.environ.get(name) for name in ADDRESSES):
        raise UserError(
            "no cluster is named",
            remedy="give --address http://HEAD:8265, or set RAY_API_SERVER_ADDRESS to it",
        )
    if address is not None and not re.match(r"https?://\S", address):
        raise UserError(
            f"--address {address}: is not the address of a cluster's dashboard",
            remedy="write http://HEAD:8265",
        )


def entry_point(submission: Submission, file: str) -> str:
    """The command line of the job, `file` relative to its working folder."""
    words = [submission.python, "-m", "matrixrun", "run", file, "--results", submission.results]
    for pattern in submission.only:
        words += ["--only", pattern]
    if submission.deadline_minutes is not None:
        words += ["--deadline", f"{submission.deadline_minutes:g}"]
    if submission.tracking_uri is not None:
        words += ["--tracking-uri", submission.tracking_uri]
    if not submission.track:
        words.append("--no-tracking")
    return shlex.join(words)


def _runtime_env(submission: Submission, folder: str) -> dict[str, Any]:
    env: dict[str, Any] = {
        "working_dir": folder,
        "env_vars": {"RAY_JOB_STOP_WAIT_TIME_S": str(STOP_SECONDS)},
    }
    if submission.with_code:
        env["py_modules"] = [str(Path(matrixrun.__file__).parent)]
    return env


def check(submission: Submission) -> Matrix:
    """Return the matrix that is to be submitted; needs no cluster.

    Raises:
        UserError: the file is wrong, or the results folder has no absolute path.
    """
    if is_url(submission.results):
        if _CREDENTIALS.search(submission.results):
            raise UserError(
                "--results: an address with credentials would be shown with the job",
                remedy="leave them out, and set them in the head node's environment",
            )
    elif not PurePosixPath(submission.results).is_absolute():
        raise UserError(
            f"--results {submission.results}: a job's working folder goes away with it",
            remedy="name an absolute path, on a folder that outlives the job and that a head"
            " started anew will find, or a URL such as s3://BUCKET/SWEEP",
        )
    if submission.tracking_uri and _CREDENTIALS.search(submission.tracking_uri):
        raise UserError(
            "--tracking-uri: an address with credentials would be shown with the job",
            remedy="leave them out, and set MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD"
            " on the head node",
        )
    matrix, _ = planning.plan_file(Path(submission.file))
    return matrix


def _job(details: Any) -> Job:
    metadata = details.metadata or {}
    sweep = metadata.get(SWEEP, details.submission_id)
    attempt = details.submission_id.removeprefix(sweep).removeprefix(".")
    try:
        submission = msgspec.json.decode(metadata.get(SUBMISSION, "null"), type=Submission | None)
    except msgspec.MsgspecError:  # of another version of matrixrun
        submission = None
    return Job(
        id=details.submission_id,
        sweep=sweep,
        attempt=int(attempt) if attempt.isdigit() else 1,
        state=str(details.status.value),
        message=details.message or "",
        exit_code=details.driver_exit_code,
        started=_seconds(details.start_time),
        ended=_seconds(details.end_time),
        submission=submission,
    )


def _seconds(milliseconds: int | None) -> float | None:
    return None if not milliseconds else milliseconds / 1000


def describe(job: Job, log: str) -> str:
    """A job in a few lines: where it stands, since when, what it said last."""
    rows = [("sweep", job.sweep), ("job", f"{job.id} (attempt {job.attempt})")]
    rows.append(("state", job.state.lower()))
    if job.started is not None:
        seconds = (job.ended or time.time()) - job.started
        rows.append(("running for" if job.ended is None else "ran for", duration(seconds)))
    if job.submission is not None:
        rows.append(("results", job.submission.results))
    found = _EXIT.findall(log)
    if job.over and found:
        code = int(found[-1])
        rows.append(("verdict", f"exit {code}: {EXIT_CODES.get(code, 'unknown')}"))
    elif job.over:
        rows.append(("verdict", f"none: {job.message}"))
    lines = [line for line in log.splitlines() if line.strip()]
    if lines:
        rows.append(("last line", lines[-1].strip()))
    return "\n".join(f"{name:12}{text}" for name, text in rows)


def duration(seconds: float) -> str:
    """Hours and minutes, or minutes and seconds."""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes} min {rest:02d} s" if minutes < 90 else f"{minutes / 60:.1f} h"


__all__ = ["Job", "Jobs", "Submission", "describe", "entry_point"]
