"""Commands that speak with a Ray cluster from elsewhere: submit, status, logs, stop, resume."""

from __future__ import annotations

import sys
from typing import Annotated

import typer

from matrixrun.cli.options import Deadline, File, NoTracking, Only

Address = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="The cluster's dashboard, http://HEAD:8265; default: RAY_API_SERVER_ADDRESS.",
    ),
]
SweepOnCluster = Annotated[
    str,
    typer.Argument(
        metavar="SWEEP", help="A sweep's id, its results folder or URL, or a job's submission id."
    ),
]
Wait = Annotated[
    bool, typer.Option("--wait", help="Show its log, and end with the verdict's exit code.")
]


def submit(  # noqa: PLR0917 (typer passes by name)
    file: File,
    results: Annotated[
        str,
        typer.Option(
            metavar="DIR",
            help="The sweep's own folder on the cluster, by absolute path, where it outlives the"
            " job, or a URL; its last part is the sweep's id. An existing one is resumed.",
        ),
    ],
    address: Address = None,
    only: Only = None,
    tracking_uri: Annotated[
        str | None,
        typer.Option(help="MLflow tracking URI; default: what the head node's environment says."),
    ] = None,
    no_tracking: NoTracking = False,
    deadline: Deadline = None,
    python: Annotated[
        str, typer.Option(help="The interpreter on the head node that Ray runs with.")
    ] = "python",
    with_code: Annotated[
        bool,
        typer.Option(
            "--with-code",
            help="Send this matrixrun along instead of using the one installed on the nodes.",
        ),
    ] = False,
    wait: Wait = False,
) -> None:
    """Run a matrix as a job of a Ray cluster."""
    from matrixrun.fanout.jobs import Jobs, Submission, check

    submission = Submission(
        file=str(file.absolute()),
        results=results,
        only=tuple(only or ()),
        tracking_uri=tracking_uri,
        track=not no_tracking,
        deadline_minutes=deadline,
        python=python,
        with_code=with_code,
    )
    check(submission)  # before a cluster is asked: its mistakes are the user's to mend first
    jobs = Jobs(address)
    job = jobs.submit(submission)
    typer.echo(f"submitted: {job.id}")
    if wait:
        raise typer.Exit(jobs.verdict(jobs.follow(job, _say)))


def status(sweep: SweepOnCluster, address: Address = None) -> None:
    """Say where a sweep stands: by its results folder where that is here, else by its job."""
    from matrixrun.record.standing import here, standing_text

    folder = here(sweep, address)
    if folder is not None:
        typer.echo(standing_text(folder))
        return
    from matrixrun.fanout.jobs import Jobs, describe

    jobs = Jobs(address)
    job = jobs.find(sweep)
    typer.echo(describe(job, jobs.log(job)))


def logs(
    sweep: SweepOnCluster,
    address: Address = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on until it ends; exit with its verdict.")
    ] = False,
) -> None:
    """Show what a submitted sweep has printed; of a results folder that is here, its launches'
    ends and where their logs lie."""
    from matrixrun.record.standing import here, launches_text

    folder = None if follow else here(sweep, address)
    if folder is not None:
        typer.echo(launches_text(folder))
        return
    from matrixrun.fanout.jobs import Jobs

    jobs = Jobs(address)
    job = jobs.find(sweep)
    if follow:
        raise typer.Exit(jobs.verdict(jobs.follow(job, _say)))
    _say(jobs.log(job))


def stop(sweep: SweepOnCluster, address: Address = None) -> None:
    """End a submitted sweep: engines end, what is done is written, and `resume` goes on."""
    _refuse_folder(sweep, address, "stop")
    from matrixrun.fanout.jobs import Jobs, describe

    jobs = Jobs(address)
    job = jobs.stop(jobs.find(sweep))
    typer.echo(describe(job, jobs.log(job)))
    raise typer.Exit(0 if job.over else 2)


def resume(sweep: SweepOnCluster, address: Address = None, wait: Wait = False) -> None:
    """Go on with a submitted sweep that ended early: finished cells are not run again."""
    _refuse_folder(sweep, address, "resume")
    from matrixrun.fanout.jobs import Jobs

    jobs = Jobs(address)
    job = jobs.resume(sweep)
    typer.echo(f"submitted: {job.id} (attempt {job.attempt})")
    if wait:
        raise typer.Exit(jobs.verdict(jobs.follow(job, _say)))


def _refuse_folder(sweep: str, address: str | None, command: str) -> None:
    """Where a results folder on this machine is meant, no cluster has a job for it."""
    from matrixrun.evidence.errors import UserError
    from matrixrun.record.standing import here, state_of

    folder = here(sweep, address)
    if folder is None:
        return
    local = {
        "stop": "Ctrl-C ends a `matrixrun run` where it was started",
        "resume": f"`matrixrun run FILE --results {folder}` goes on with it",
    }
    raise UserError(
        f"{folder} is a results folder on this machine, and no cluster is named; its sweep's"
        f" state: {state_of(folder)}",
        remedy=f"{local[command]}; of a submitted sweep, name the cluster: --address"
        " http://HEAD:8265",
    )


def _say(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()
