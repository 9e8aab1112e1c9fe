"""surface: the text that a client reads, against the tokens that it is made of.

A text is a function of its tokens. Where an answer's tokens are the off arm's and its text is not,
what writes the text is at fault: a token left out or written twice where several come at once.
"""

from __future__ import annotations

from matrixrun.evidence.verdicts import Finding, Severity
from matrixrun.judge.case import Answers, Case, Ints
from matrixrun.judge.examination import Examination
from matrixrun.judge.testimony import Testimony

KIND = "surface-text"
# A character cut off by the end of the answer is written or held back as the engine pleases.
UNFINISHED = "\ufffd"


def examine_surface(examination: Examination) -> Testimony:
    """Return a fault where equal tokens have another text on the on arm, and on no control."""
    case = examination.case
    on, null = _others(case, case.on, case.forks), _others(case, case.null, case.null_forks)
    if not on or null:
        return Testimony()
    index, place = on[0]
    mine, theirs = (arm.observations[index].text or "" for arm in (case.on, case.off))
    text = (
        f"{len(on)} answers with the off arm's tokens have another text, no control's (first: "
        f"{case.requests[index]}, character {place}: {_piece(mine, place)} where the off arm has "
        f"{_piece(theirs, place)})"
    )
    numbers = {"requests": len(on), "request": case.requests[index], "character": place}
    finding = Finding(kind=KIND, severity=Severity.FAULT, text=text, numbers=numbers)
    return Testimony((finding,))


def _others(case: Case, arm: Answers, forks: Ints) -> list[tuple[int, int]]:
    """Return the requests whose tokens are the off arm's and whose text is another, each with the
    first character that differs. Texts that were not kept are not compared."""
    found = []
    for index, fork in enumerate(forks.tolist()):
        mine, theirs = (x.observations[index].text for x in (arm, case.off))
        if fork >= 0 or not case.comparable[index] or mine is None or theirs is None:
            continue
        one, other = mine.rstrip(UNFINISHED), theirs.rstrip(UNFINISHED)
        if one != other:
            found.append((index, _first_difference(one, other)))
    return found


def _first_difference(one: str, other: str) -> int:
    places = (n for n, (mine, theirs) in enumerate(zip(one, other, strict=False)) if mine != theirs)
    return next(places, min(len(one), len(other)))


def _piece(text: str, place: int) -> str:
    return repr(text[place : place + 12])
