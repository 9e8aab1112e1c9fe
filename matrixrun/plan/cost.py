"""How long a sweep takes, roughly: for deciding whether to start it, not for comparing engines."""

from __future__ import annotations

from collections.abc import Iterable

from matrixrun import engines
from matrixrun.evidence.launches import Launch, Role
from matrixrun.matrix import Matrix
from matrixrun.plan.sharing import Server

# Tokens a second with one request in flight on an accelerator: assumed, for 8 B in BF16.
ACCELERATOR_TOKENS_PER_SECOND = 60.0
# Measured of vLLM 0.32 on two idle cores: 85 tokens a second; 477 with 8 in flight: 85 * 8 ** 0.83.
BATCH_EXPONENT = 0.83
ATTACH_SECONDS = 1.0  # a server that runs already
# Two healthy launches without speculation have been seen to agree on 76 of 100 prompts; texts
# that agree are scored once.
RESCORED_SHARE = 0.25
# What the probes of state send to a launch of their own, for each batch size: answers (more where
# a small cache is to be outgrown), and how many at least are in flight: interactions of a request
# with its neighbours take three.
EXTRA_ANSWERS = {Role.FORCED: 60, Role.TRACED: 48}
EXTRA_IN_FLIGHT = 4


def answers_each(matrix: Matrix, role: Role) -> int:
    """Return how many answers a launch of a role gives at each batch size."""
    return EXTRA_ANSWERS.get(role, matrix.workload.prompts)


def launch_seconds(matrix: Matrix, server: Server, emitted: int) -> float:
    """Return the seconds from start to end of one launch.

    Args:
        matrix: for its workload.
        server: the launch.
        emitted: how many answers of other launches a scorer scores besides its own.
    """
    spec, engine = matrix.workload, engines.get(server.config.kind)
    one = (
        engine.cpu_tokens_per_second
        if server.config.accelerator is None and server.config.endpoint is None
        else ACCELERATOR_TOKENS_PER_SECOND
    )
    tokens = answers_each(matrix, server.role) * spec.max_tokens
    least = EXTRA_IN_FLIGHT if server.role.extra else 1
    seconds: float = sum(
        tokens / (one * max(size, least) ** BATCH_EXPONENT) for size in server.batch_sizes
    )
    if server.role is Role.A:
        if matrix.control_of(server.config.engine) == "within-launch":
            seconds *= 2
            emitted += len(server.batch_sizes) * spec.prompts
        scored = len(server.batch_sizes) * spec.prompts + RESCORED_SHARE * emitted
        seconds += scored * engine.score_seconds(spec.max_tokens)
    start = ATTACH_SECONDS if server.config.endpoint else engine.start_seconds(server.config)
    return round(start + seconds, 1)


def total_seconds(launches: Iterable[Launch], *, accelerators: int, cpus: float) -> float:
    """Return the seconds of all launches on so many accelerators or cores, packed without gaps."""
    launches = tuple(launches)
    if accelerators:
        work = sum(launch.seconds * launch.gang.accelerators for launch in launches) / accelerators
    elif cpus:
        work = sum(launch.seconds * launch.gang.cpus for launch in launches) / cpus
    else:
        work = 0.0
    return round(max([work, *(launch.seconds for launch in launches)]), 1)
