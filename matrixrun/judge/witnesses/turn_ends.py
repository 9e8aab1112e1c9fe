"""turn_ends: whether a turn ends where its tokens say.

A stop string is looked for in the text that tokens make, so that the same tokens end an answer in
every arm, whatever rounding does. A server that is handed several tokens at once may look at the
last one's text only. Stop tokens are another witness's, in all answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from matrixrun.evidence.verdicts import Finding, Severity
from matrixrun.judge.case import Answers, Case, Ints
from matrixrun.judge.patterns import Flags, at_strings, finished_by
from matrixrun.judge.testimony import Testimony

if TYPE_CHECKING:
    from matrixrun.judge.witnesses import ProbeExamination

KIND = "past-the-end"


def examine_turn_ends(examination: ProbeExamination) -> Testimony:
    """Return a fault where the on arm goes on after the tokens at which the off arm's turn met its
    stop string, and the control never does."""
    case = examination.case
    if case is None:
        return Testimony()
    on, null = (
        _went_on(case, arm, forks)
        for arm, forks in ((case.on, case.forks), (case.null, case.null_forks))
    )
    told = Testimony(metrics={"conversation.past_stop_string.on": float(on.sum())})
    if not on.any() or null.any():
        return told
    first = case.requests[int(np.flatnonzero(on)[0])]
    text = (
        f"[conversation] {int(on.sum())} answers go on after their stop string, at which the off "
        f"arm ends with the same tokens (first: {first})"
    )
    numbers = {"requests": int(on.sum()), "first": first}
    finding = Finding(kind=KIND, severity=Severity.FAULT, text=text, numbers=numbers)
    return told + Testimony((finding,))


def _went_on(case: Case, answers: Answers, forks: Ints) -> Flags:
    """Return whether each answer begins with all of the off arm's, which stopped at a string, and
    is longer [requests]."""
    longer = (forks == case.off.lengths) & (answers.lengths > case.off.lengths)
    flags: Flags = at_strings(case.off) & finished_by(case.off, "stop") & longer & ~answers.failed
    return flags & ~_ended_alike(case, answers)


def _ended_alike(case: Case, answers: Answers) -> Flags:
    """Return whether each answer stopped with the off arm's text [requests]: what it has more of
    tokens is what its last step had behind the string, which some engines return."""
    same = [
        one.finish_reason == "stop" and one.text is not None and one.text == other.text
        for one, other in zip(answers.observations, case.off.observations, strict=True)
    ]
    return np.array(same, dtype=bool)
