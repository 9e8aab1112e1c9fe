"""drift: what the on arm's own logprobs say about the same tokens, before any token differs.

Damage can be systematic and still flip nothing. Judged only after a contract check: some engines
return placeholders while they speculate.

An engine whose kernels depend on the number of rows gives the on arm other logprobs than the off
arm and its control, which decode at the same width. How far its widths are apart shows without
speculation too: in what the off arm decoded against what A says of the same tokens by prefill.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from matrixrun.evidence.verdicts import Finding, Severity
from matrixrun.judge.case import Answers, Case, Floats, Ints
from matrixrun.judge.examination import Examination
from matrixrun.judge.statistics import sign_flip_p_value
from matrixrun.judge.testimony import RateTest, Testimony

RATE_TESTS = 2
NOTICE_LEVEL = 0.01
LEAST_TOKENS = 32
TAIL = 0.99
NONE_GIVEN = "the on arm gives no logprobs although the off arm does"
# By this fact an engine says that it gives none while it speculates, and why.
LIMIT = "logprobs_when_speculating"


def examine_drift(examination: Examination) -> Testimony:
    """Return the tests of mean and tail: a fault where the size is beyond the floor and beyond what
    the off arm's own widths differ by, else a notice; a notice instead where the on arm's logprobs
    are not what they are said to be."""
    case, floor = examination.case, examination.ceiling.floor
    broken = broken_contract(case)
    if broken == NONE_GIVEN and _withheld(case):
        return Testimony()  # a limit of the engine, which its facts say; nothing is broken
    if broken is not None:
        finding = Finding(kind="logprob-contract", severity=Severity.NOTICE, text=broken)
        return Testimony((finding,))
    prefix = _prefix(case)
    if prefix is None or not _sound(case, floor):
        return Testimony()
    mean, tail = _shift(prefix), _tail(prefix)
    metrics = {
        "drift/mean.on": prefix.mean(prefix.on),
        "drift/mean.null": prefix.mean(prefix.null),
        "drift/p99.on": prefix.tail(prefix.on),
        "drift/p99.null": prefix.tail(prefix.null),
        "drift/mean.widths": prefix.mean(prefix.widths),
        "drift/p99.widths": prefix.tail(prefix.widths),
    }
    told = Testimony(metrics=metrics)
    for name, size, widths, p_value in (
        (
            "mean", abs(metrics["drift/mean.on"] - metrics["drift/mean.null"]),
            2.0 * abs(metrics["drift/mean.widths"]), mean,
        ),
        (
            "99 % point", metrics["drift/p99.on"] - metrics["drift/p99.null"],
            metrics["drift/p99.widths"], tail,
        ),
    ):  # fmt: skip
        told += _judged(name, size, p_value, max(floor, widths))
    return told


@dataclass(frozen=True)
class Prefix:
    """The positions at which all arms agree so far [N]: logprob differences to the off arm of the
    on arm, of the control, and of the off arm's own tokens by prefill (`widths`, 0 where they were
    not scored), and each position's prompt."""

    on: Floats
    null: Floats
    widths: Floats
    prompt: Ints
    prompts: int

    def mean(self, differences: Floats) -> float:
        return float(differences.mean())

    def tail(self, differences: Floats) -> float:
        return float(np.quantile(np.abs(differences), TAIL))


def _prefix(case: Case) -> Prefix | None:
    """Return the tokens that all three arms emitted alike, None when they are too few."""
    shared = np.minimum.reduce([
        np.where(case.forks < 0, case.on.lengths, case.forks),
        np.where(case.null_forks < 0, case.null.lengths, case.null_forks),
    ])  # fmt: skip
    shared = np.where(case.comparable, shared, 0)
    owner = np.repeat(np.arange(shared.size), shared)
    position = np.arange(owner.size) - np.repeat(np.cumsum(shared) - shared, shared)

    def taken(answers: Answers, values: Floats) -> Floats:
        return np.asarray(values[answers.offsets[owner] + position])

    off = taken(case.off, case.off.logprobs)
    on, null = (taken(arm, arm.logprobs) - off for arm in (case.on, case.null))
    widths = taken(case.off, case.off.scored) - off
    known = np.isfinite(on) & np.isfinite(null)
    if int(known.sum()) < LEAST_TOKENS:
        return None
    groups = case.prompt_groups
    return Prefix(
        on=on[known],
        null=null[known],
        widths=np.nan_to_num(widths[known]),
        prompt=groups[owner[known]],
        prompts=int(groups.max()) + 1,
    )


def _shift(prefix: Prefix) -> float:
    """Return the two-sided p-value of the prompts' mean differences, on against control."""
    counts = np.bincount(prefix.prompt, minlength=prefix.prompts)
    sums = np.bincount(prefix.prompt, weights=prefix.on - prefix.null, minlength=prefix.prompts)
    means = sums / np.maximum(counts, 1)
    return min(1.0, 2.0 * min(sign_flip_p_value(means), sign_flip_p_value(-means)))


def _tail(prefix: Prefix) -> float:
    """Return the p-value of the prompts' largest differences: on against the control, or the off
    arm's own widths where those are further apart."""
    largest = np.zeros((2, prefix.prompts))
    np.maximum.at(largest[0], prefix.prompt, np.abs(prefix.on))
    other = np.maximum(np.abs(prefix.null), np.abs(prefix.widths))
    np.maximum.at(largest[1], prefix.prompt, other)
    return sign_flip_p_value(largest[0] - largest[1])


def _judged(name: str, size: float, p_value: float, allowed: float) -> Testimony:
    text = (
        f"the on arm's logprobs of the same tokens are off by {size:.3g} nats ({name}, beyond the "
        f"control's; p = {p_value:.2g}, allowed {allowed:.3g})"
    )
    numbers = {"size": size, "p_value": p_value, "allowed": allowed, "statistic": name}
    if size > allowed:
        finding = Finding(kind="drift", severity=Severity.FAULT, text=text, numbers=numbers)
        return Testimony(rates=(RateTest(p_value, finding),))
    if p_value < NOTICE_LEVEL and size > 0:
        finding = Finding(kind="drift", severity=Severity.NOTICE, text=text, numbers=numbers)
        return Testimony((finding,))
    return Testimony()


def broken_contract(case: Case) -> str | None:
    """Return what is wrong with the on arm's logprobs where the off arm's are given, else None."""
    on, off = (x[np.isfinite(x)] for x in (case.on.logprobs, case.off.logprobs))
    if off.size < LEAST_TOKENS or case.on.token_ids.size < LEAST_TOKENS:
        return None
    if on.size == 0:
        return NONE_GIVEN
    if np.ptp(on) == 0.0 and np.ptp(off) > 0.0:
        return f"the on arm's logprobs are placeholders (all {on[0]:.3g})"
    if float(on.max()) > 1e-3:
        return f"the on arm gives positive logprobs (largest {on.max():.3g})"
    return None


def _withheld(case: Case) -> bool:
    outcome = case.observed.evidence.outcomes.get("on")
    return outcome is not None and str(outcome.facts.get(LIMIT, "")).startswith("withheld")


def _sound(case: Case, floor: float) -> bool:
    """Return whether the off arm's own logprobs are what prefill says of the same tokens."""
    differences = np.abs(case.off.logprobs - case.off.scored)
    known = differences[np.isfinite(differences)]
    return bool(known.size and np.median(known) <= floor)
