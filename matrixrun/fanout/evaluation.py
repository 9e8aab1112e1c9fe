"""A task put to a launch's own server, on its node."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from matrixrun import engines
from matrixrun.engines import harness
from matrixrun.evidence.errors import BuildError, EvaluationError, UserError
from matrixrun.evidence.launches import Endpoint
from matrixrun.evidence.requests import Observation, Pass, Task


def put(
    pass_: Pass, task: Task, served: Callable[[], harness.Served], *, cache: Path,
    build_timeout: float, timeout: float, request_timeout: float, on_line: Callable[[str], None],
    claim: Callable[[Path | None], None],
) -> list[Observation]:  # fmt: skip
    """Return an observation for each document of the pass's task; the harness is installed first
    where this node lacks it.

    A task that cannot be put is told by a single observation, as a failed request is: it says
    nothing about the engine. Its `error` says why, its `text` is the end of the log. `claim` is
    told the environment that is worked with. All times are seconds.
    """
    try:
        environment = engines.prepare(
            harness.RECIPE, cache=cache, timeout=build_timeout, on_line=on_line
        )
        claim(environment.path)
        seen = harness.evaluate(
            task,
            served(),
            environment,
            concurrency=pass_.concurrency,
            salt=pass_.salt,
            timeout=timeout,
            request_timeout=request_timeout,
        )
    except (BuildError, EvaluationError, UserError, OSError) as error:
        name, log = pass_.id, getattr(error, "log_tail", None)
        words = str(error)
        return [Observation(request=name, prompt=name, category=task.name, error=words, text=log)]
    return list(seen)


def served_by(server: engines.Server | engines.Attached, at: Endpoint | None) -> harness.Served:
    """Where a task is sent, with what the server asks for.

    Raises:
        UserError: the variable with an endpoint's key is not set on this node.
    """
    if at is not None:
        return harness.Served(at.url, engines.headers_of(at), ours=False, model=at.model)
    assert isinstance(server, engines.Server)
    return harness.Served(server.base_url, {"Authorization": f"Bearer {server.key}"})
