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


def launch_seconds(matrix: Matrix, server: Server, emitting_passes: int) -> float:
    """Return the seconds from start to end of one launch.

    Args:
        matrix: for its workload.
        server: the launch.
        emitting_passes: how many passes of other launches a scorer scores besides its own.
    """
    spec, engine = matrix.workload, engines.get(server.config.kind)
    one = (
        engine.cpu_tokens_per_second
        if server.config.accelerator is None and server.config.endpoint is None
        else ACCELERATOR_TOKENS_PER_SECOND
    )
    tokens = spec.prompts * spec.max_tokens
    seconds: float = sum(tokens / (one * size**BATCH_EXPONENT) for size in server.batch_sizes)
    if server.role is Role.A:
        if matrix.control_of(server.config.engine) == "within-launch":
            seconds *= 2
            emitting_passes += len(server.batch_sizes)
        scored = len(server.batch_sizes) + RESCORED_SHARE * emitting_passes
        seconds += scored * spec.prompts * engine.score_seconds(spec.max_tokens)
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
