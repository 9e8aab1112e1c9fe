"""predicted-acceptance: what the drafter must have proposed, and the target taken of it.

An n-gram drafter's draft is a function of the committed tokens, so that every verification step of
an answer follows from its own text: which steps had a draft, how long it was, how much of it was
taken. Nothing else is needed, neither another cell nor an approved sweep; a collapse that all cells
share is seen. The prediction along the off arm's text says what acceptance would be with the output
right.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from matrixrun.evidence.verdicts import Finding, Severity
from matrixrun.judge.case import Answers, Case, Floats
from matrixrun.judge.examination import Examination
from matrixrun.judge.prompt_lookup import (
    PromptLookup,
    drafts_of,
    predicted_steps,
    prompt_lookup_of,
)
from matrixrun.judge.testimony import Testimony

KIND = "predicted-acceptance"
# A healthy engine drops a draft where the token budget of a step is spent or a request is put off.
# More than a twentieth of what had to be accepted is no such accident, in two requests and more
# than one draft of tokens.
LEAST_RELATIVE = 0.05
LEAST_REQUESTS = 2


@dataclass(frozen=True)
class Predicted:
    """By request [requests]: draft tokens that had to be accepted and that were, how many its
    answer has room for beside those that each step adds itself, whether the steps are the predicted
    ones; each request's last step left out, which its limit may cut."""

    accepted: Floats
    seen: Floats
    room: Floats
    steps: Floats
    alike: np.ndarray


def examine_prediction(examination: Examination) -> Testimony:
    """Return the acceptance that an n-gram drafter must have had, and a fault where it had not."""
    case = examination.case
    outcome = case.observed.evidence.outcomes.get("on")
    drafter = prompt_lookup_of(outcome.facts) if outcome is not None else None
    if drafter is None or not case.requests:
        return Testimony()
    on, off = _predict(case, case.on, drafter), _predict(case, case.off, drafter)
    if on.steps.sum() == 0:
        return Testimony()
    metrics = {
        "acceptance/predicted_length": 1.0 + float(on.accepted.sum() / on.steps.sum()),
        "acceptance/as_predicted": float(on.alike.mean()),
    }
    if off.steps.sum() > 0:
        length = 1.0 + float(off.accepted.sum() / off.steps.sum())
        metrics["acceptance/predicted_length.off"] = length
    differing = np.flatnonzero(~on.alike)
    if differing.size == 0:
        return Testimony(metrics=metrics)
    return Testimony((_finding(case, on, differing, drafter),), metrics)


def _finding(case: Case, on: Predicted, differing: np.ndarray, drafter: PromptLookup) -> Finding:
    """Return a fault where enough is lost (over all, or in answers that had nothing accepted), or
    counted that the answers do not hold, else a notice that some steps are others: a drafter that
    is better than the rule is no reason against an upgrade."""
    due, held = float(on.accepted.sum()), np.minimum(on.seen, on.room)
    lost = max(due - float(held.sum()), float(on.accepted[held == 0].sum()))
    wrong = max(0.0, lost) + float((on.seen - held).sum())
    least = max(LEAST_RELATIVE * due, float(drafter.tokens))
    fault = wrong > least and differing.size >= LEAST_REQUESTS
    worst = int(differing[np.argmax(np.abs(on.accepted - on.seen)[differing])])
    text = (
        f"the n-gram drafter's own rule has {due:.0f} draft tokens accepted along these answers, "
        f"{on.seen.sum():.0f} were; the steps of {differing.size} of {len(case.requests)} requests "
        f"are not the predicted ones (worst: {case.requests[worst]}, {on.accepted[worst]:.0f} due, "
        f"{on.seen[worst]:.0f} accepted)"
    )
    numbers = {"due": due, "accepted": float(on.seen.sum()), "requests": int(differing.size),
               "request": case.requests[worst]}  # fmt: skip
    severity = Severity.FAULT if fault else Severity.NOTICE
    return Finding(kind=KIND, severity=severity, text=text, numbers=numbers)


def _predict(case: Case, answers: Answers, drafter: PromptLookup) -> Predicted:
    count = len(case.requests)
    accepted, seen, room, steps = (np.zeros(count) for _ in range(4))
    alike = np.ones(count, dtype=bool)
    for index, request in enumerate(case.requests):
        prompt, tokens = case.prompt_tokens(request), answers.part(answers.token_ids, index)
        observed = answers.observations[index]
        if prompt is None or tokens.size < 2 or observed.error is not None:
            continue
        drafts = drafts_of(drafter, [*prompt, *tokens.tolist()])
        due_drafted, due = (many[:-1] for many in predicted_steps(drafts, len(prompt)))
        drafted, taken = observed.drafted[:-1], observed.accepted[:-1]
        accepted[index], seen[index], steps[index] = due.sum(), taken.sum(), due.size
        room[index] = max(0, tokens.size - 1 - taken.size)
        alike[index] = np.array_equal(due_drafted, drafted) and np.array_equal(due, taken)
    return Predicted(accepted, seen, room, steps, alike)
