"""baseline: the off arms are judged first, and absolutely; against an unsound one nothing passes.

Noise, or one fault in both arms, would otherwise explain itself away.
"""

from __future__ import annotations

import numpy as np

from matrixrun.evidence.verdicts import Finding, Severity, Verdict
from matrixrun.judge import patterns
from matrixrun.judge.case import Answers, Case
from matrixrun.judge.examination import Examination
from matrixrun.judge.steps import counters_of
from matrixrun.judge.testimony import Objection, Testimony

KIND = "baseline-unsound"
# Small models loop by themselves under greedy decoding, and prompts that ask for repetition get
# it: only an arm that does little else is unsound.
MOST_CONSTANT = 0.5
MOST_CYCLING = 0.95
# Scores that fail now and then leave enough of the off arms valued.
MOST_UNVALUED = 0.1
# What engines name their settings of speculation: vLLM `speculative_*`, llama.cpp `speculative`.
SPECULATIVE = "speculative"


def examine_baseline(examination: Examination) -> Testimony:
    """Return INCONCLUSIVE with its causes when an off arm is unsound by itself."""
    case = examination.case
    partial = [_failures(case.off, "off arm"), _failures(case.null, "control")]
    causes = [
        _speculating(case, "off", "A", "off arm"),
        _speculating(case, "null", "B", "control"),
        _undefined(case.off, "off arm"),
        _undefined(case.null, "control"),
        _unscorable(case),
        _degenerate(case.off, "off arm"),
        _degenerate(case.null, "control"),
        _unexplained(examination),
        _noisy(examination),
    ]
    told = _unsound([cause for cause in causes if cause], voids=True)
    partial += [_unvalued(case, case.off, "off arm"), _unvalued(case, case.null, "control")]
    told += _unsound([cause for cause in [*partial, _unlike(examination)] if cause])
    wants = examination.off.wants + examination.null.wants
    return told + Testimony(wants=wants, metrics=_metrics(examination))


def _unsound(causes: list[str], *, voids: bool = False) -> Testimony:
    told = Testimony()
    for cause in causes:
        reason = f"baseline unsound: {cause}"
        finding = Finding(kind=KIND, severity=Severity.NOTICE, text=reason)
        objection = Objection(Verdict.INCONCLUSIVE, reason, voids=voids)
        told += Testimony(findings=(finding,), objections=(objection,))
    return told


def _failures(answers: Answers, name: str) -> str | None:
    failed = np.flatnonzero(answers.failed)
    if failed.size == 0:
        return None
    first = answers.observations[failed[0]]
    words = str(first.error).splitlines()[0] if first.error else ""
    return f"{failed.size} requests failed on the {name} (first: {first.request}: {words})"


def _unvalued(case: Case, answers: Answers, name: str) -> str | None:
    unvalued = case.unvalued(answers)
    if unvalued.mean() <= MOST_UNVALUED:
        return None
    return f"{unvalued.mean():.0%} of the {name}'s own answers could not be scored"


def _speculating(case: Case, arm: str, role: str, name: str) -> str | None:
    """Return the cause when an off arm speculates itself: by its steps, the engine's counters or
    what the engine says of its settings."""
    answers: Answers = getattr(case, arm)
    drafted = [int(one.drafted.sum()) for one in answers.observations]
    if any(drafted):
        first = answers.observations[int(np.flatnonzero(drafted)[0])].request
        return f"the {name} speculates: it drafted {sum(drafted)} tokens (first: {first})"
    counters = counters_of(case, arm, role)
    counted = counters.draft_tokens or counters.drafts
    if counted:
        return f"the {name} speculates: its engine counted {counted:.0f} drafted"
    outcome = case.observed.evidence.outcomes.get(role)
    facts = {} if outcome is None else outcome.facts
    said = {key: facts[key] for key in sorted(facts) if key.startswith(SPECULATIVE) and facts[key]}
    if not said:
        return None
    settings = ", ".join(f"{key}={value}" for key, value in said.items())
    return f"the {name} speculates: its engine reports {settings}"


def _undefined(answers: Answers, name: str) -> str | None:
    flags = np.flatnonzero(patterns.undefined(answers))
    if flags.size == 0:
        return None
    first = answers.observations[flags[0]].request
    return f"NaN logprobs in {flags.size} requests of the {name} (first: {first})"


def _unscorable(case: Case) -> str | None:
    scores = (*case.observed.off_scores, *case.observed.null_scores)
    bad = sorted(one.request for one in scores if one.error is None and np.isnan(one.regret).any())
    if not bad:
        return None
    return f"the off arm scores {len(bad)} of the off arms' own answers with NaN (first: {bad[0]})"


def _degenerate(answers: Answers, name: str) -> str | None:
    constant = patterns.cycling(answers, longest_period=1) | patterns.empty(answers)
    cycles = patterns.cycling(answers)
    for share, most, what in (
        (constant.mean(), MOST_CONSTANT, "are empty or repeat one token"),
        (cycles.mean(), MOST_CYCLING, "run in short cycles"),
    ):
        if share > most:
            return f"{share:.0%} of the {name}'s answers {what}"
    return None


def _unexplained(examination: Examination) -> str | None:
    found = examination.off.unexplained + examination.null.unexplained
    waiting = examination.off.waiting + examination.null.waiting
    for tokens, what in ((found, "cannot be explained"), (waiting, "are not settled")):
        if tokens:
            worst = max(tokens, key=lambda one: (one.regret, one.request))
            return (
                f"{len(tokens)} tokens that the off arms emitted themselves {what} (worst: "
                f"{worst.arm}, request {worst.request}, token {worst.position}, "
                f"{worst.regret:.3g} nats, ceiling {examination.ceiling.value:.3g})"
            )
    return None


def _noisy(examination: Examination) -> str | None:
    ceiling = examination.ceiling
    if ceiling.usual <= ceiling.band:
        return None
    return (
        f"one position in a thousand moves by {ceiling.usual:.3g} nats between two off "
        f"evaluations, beyond the {ceiling.band:.3g} that this arithmetic accounts for"
    )


def _unlike(examination: Examination) -> str | None:
    """Return the cause when strict equality is asked for and the controls are not equal."""
    case = examination.case
    differing = int(((case.null_forks >= 0) & case.comparable).sum())
    if examination.settings.equality != "strict" or differing == 0:
        return None
    return f"strict equality is asked for, but the control itself differs in {differing} requests"


def _metrics(examination: Examination) -> dict[str, float]:
    ceiling = examination.ceiling
    cycles = {"off": examination.case.off, "null": examination.case.null}
    return {
        "null/movement_p999": ceiling.usual,
        "null/positions": float(ceiling.positions),
        **{
            f"degenerate/cycles.{arm}": float(patterns.cycling(a).sum())
            for arm, a in cycles.items()
        },
    }
