"""What the plan cannot see, said before anything runs."""

from __future__ import annotations

from matrixrun.evidence.launches import Role
from matrixrun.judge import required_requests, visible_fault_rate
from matrixrun.matrix import Matrix
from matrixrun.plan.sharing import EXTRAS

# About two tokens a verification step: 64 tokens are some 32 steps.
TOKENS_PER_STEP = 2.0
# The rates of faulty requests whose price is told.
LARGER_CLAIMS = (0.01, 0.001)


def power_notes(matrix: Matrix, cells: int) -> tuple[str, ...]:
    """Return what `workload.prompts` requests a cell can and cannot show, in words."""
    if cells == 0:
        return ()
    rate, confidence = matrix.detect.request_fault_rate, matrix.detect.confidence
    requests, sensitivity = matrix.workload.prompts, matrix.detect.sensitivity
    visible = visible_fault_rate(requests, confidence, sensitivity)
    needed = required_requests(rate, confidence, sensitivity)
    notes = [
        _sight(requests, visible, confidence),
        *_steps(matrix, visible),
        *_larger_claims(matrix, visible),
        *_unpriced(matrix),
    ]
    if requests < needed:
        other = f" or `request_fault_rate: {_up(visible):.3g}`" if _up(visible) < 1 else ""
        notes.append(
            f"detect.request_fault_rate: {rate:.3g} needs {needed} requests a cell at "
            f"{confidence:.0%}; workload.prompts is {requests}, so cells without a fault end "
            f"INCONCLUSIVE. Write `prompts: {needed}`{other}."
        )
    joint = visible_fault_rate(requests, 1 - (1 - confidence) / cells, sensitivity)
    if cells > 1 and joint < 1:
        notes.append(
            f"For all {cells} cells at once, {confidence:.0%} confidence reaches down to "
            f"{joint:.2%} of requests."
        )
    if matrix.control == "within-launch":
        notes.append(
            "control: within-launch has no second off launch: what differs between launches "
            "without any speculation (kernel choice, graph sizes, block counts) is not in the null."
        )
    return tuple(notes)


def _sight(requests: int, visible: float, confidence: float) -> str:
    if visible >= 1:
        return (
            f"At detect.sensitivity {requests} requests a cell show no fault with {confidence:.0%} "
            "confidence, not even one that touches all of them."
        )
    return (
        f"{requests} requests a cell show a fault that touches {visible:.2%} of requests or more, "
        f"with {confidence:.0%} confidence; a rarer one, or one too small to tell from noise, can "
        "pass unseen."
    )


def _steps(matrix: Matrix, visible: float) -> tuple[str, ...]:
    """Say the same for a fault that strikes verification steps: one request has many."""
    if visible >= 1:
        return ()
    steps = max(1.0, matrix.workload.max_tokens / TOKENS_PER_STEP)
    per_step = 1 - (1 - visible) ** (1 / steps)
    return (
        f"That is a fault in about 1 of {round(1 / per_step):,} verification steps, at some "
        f"{steps:.0f} steps a request.",
    )


def _larger_claims(matrix: Matrix, visible: float) -> tuple[str, ...]:
    """Say what the next smaller rates would cost, in requests and so in time."""
    requests, detect = matrix.workload.prompts, matrix.detect
    costs = [
        f"{rate:.1%} takes {needed:,} requests a cell, {needed / requests:.1f} times as many"
        for rate in LARGER_CLAIMS
        if rate < visible
        and (needed := required_requests(rate, detect.confidence, detect.sensitivity)) > requests
    ]
    return (f"A fault in {'; in '.join(costs)}.",) if costs else ()


def _unpriced(matrix: Matrix) -> tuple[str, ...]:
    priced = ("equality", "acceptance", EXTRAS[Role.TRACED])
    further = [probe for probe in matrix.probes if probe not in priced]
    if not further:
        return ()
    own = [probe for probe in EXTRAS.values() if probe in matrix.probes]
    also = f", and {' and '.join(own)} to launches of their own" if own else ""
    return (f"The times count what equality sends{also}; on top of that: {', '.join(further)}.",)


def _up(rate: float) -> float:
    """Return `rate` rounded up to two digits, so that what is advised is also enough."""
    from decimal import ROUND_CEILING, Context, Decimal

    return float(Context(prec=2, rounding=ROUND_CEILING).plus(Decimal(rate)))
