"""accuracy: whether documents of a task are lost with speculation, by McNemar's exact test.

Given that a document's answers differ in being right between the on arm and the off arm, each is
as likely to be the right one when speculation changes nothing that matters: near ties fall either
way. So of n discordant documents the number lost is binomial with 1/2 (McNemar 1947,
Psychometrika 12; the exact form: conditional on n). One-sided: a gate asks for losses. The control
is compared with the off arm in the same way, to say what flips without speculation.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from matrixrun.evidence.requests import Observation
from matrixrun.evidence.verdicts import Finding, Severity, Verdict
from matrixrun.judge.testimony import Objection, RateTest, Testimony

if TYPE_CHECKING:
    from matrixrun.judge.witnesses import ProbeExamination

PROBE = "accuracy"
RATE_TESTS = 1
ARMS = ("on", "off", "null")
# Only what the off arm answers rightly can be lost. 14 lost and none gained is what it takes in a
# sweep of a hundred cells (docs/method.md).
LEAST_RIGHT = 14
# Two off arms so different are not two samples of one thing: one in a thousand, on either side.
OFF_ARMS_DIFFER = 1e-3
MOST_NAMED = 12


def examine_accuracy(examination: ProbeExamination) -> Testimony:
    """Return the accuracies and the test, INCONCLUSIVE where it could not be made."""
    observed = examination.observed
    answers = {arm: observed.answers(arm) for arm in ARMS}
    reason = _missing(answers)
    if reason is not None:
        return _inconclusive(reason)
    right = {arm: {one.request: bool(one.right) for one in many} for arm, many in answers.items()}
    told = Testimony(metrics=_figures(right))
    known = sum(right["off"].values())
    if known < LEAST_RIGHT:
        return told + _inconclusive(
            f"the off arm answers {known} of {len(right['off'])} documents rightly, and only "
            f"those can be lost: it takes {LEAST_RIGHT} (more documents, or an easier task)"
        )
    gained, lost = _changed(right["null"], right["off"])
    p_value = min(
        1.0, 2 * mcnemar_p_value(max(len(lost), len(gained)), min(len(lost), len(gained)))
    )
    if p_value < OFF_ARMS_DIFFER:
        return told + _inconclusive(
            f"the off arms differ themselves: {len(lost)} documents lost, {len(gained)} gained "
            f"without speculation (p = {p_value:.2g})"
        )
    return told + _test(right, len(lost) + len(gained))


def mcnemar_p_value(lost: int, gained: int) -> float:
    """Return the probability of at least `lost` losses among the discordant documents, each of
    which is lost with probability 1/2. Exact, in whole numbers."""
    discordant = lost + gained
    tail = sum(math.comb(discordant, k) for k in range(lost, discordant + 1))
    return float(tail / (1 << discordant))


def _inconclusive(reason: str) -> Testimony:
    return Testimony(objections=(Objection(Verdict.INCONCLUSIVE, f"[{PROBE}] {reason}"),))


def _missing(answers: dict[str, tuple[Observation, ...]]) -> str | None:
    """Return why the arms cannot be compared, None where they can."""
    for arm, many in answers.items():
        if not many:
            return f"the task was not put to the {arm} arm"
        for one in many:
            if one.error is not None:
                return f"the task could not be put to the {arm} arm: {one.error}"
            if one.right is None:
                return f"{one.request} of the {arm} arm is neither right nor wrong"
    asked = {arm: {one.request for one in many} for arm, many in answers.items()}
    if len({frozenset(names) for names in asked.values()}) > 1:
        sizes = ", ".join(f"{arm} {len(names)}" for arm, names in asked.items())
        return f"the arms were asked different documents ({sizes})"
    return None


def _changed(arm: dict[str, bool], off: dict[str, bool]) -> tuple[Sequence[str], Sequence[str]]:
    """Return the documents that only `arm`, and only `off` answers rightly."""
    names = sorted(off, key=_number)
    gained = [name for name in names if arm[name] and not off[name]]
    lost = [name for name in names if off[name] and not arm[name]]
    return gained, lost


def _number(name: str) -> tuple[int, str]:
    number = name.rpartition(".")[2]
    return (int(number) if number.isdigit() else 0, name)


def _figures(right: dict[str, dict[str, bool]]) -> dict[str, float]:
    figures = {
        f"{PROBE}/right.{arm}": sum(many.values()) / len(many) for arm, many in right.items()
    }
    return figures | {f"{PROBE}/documents": float(len(right["off"]))}


def _test(right: dict[str, dict[str, bool]], flipped: int) -> Testimony:
    gained, lost = _changed(right["on"], right["off"])
    p_value = mcnemar_p_value(len(lost), len(gained))
    share = _figures(right)
    named = ", ".join(name.removeprefix(f"{PROBE}.") for name in lost[:MOST_NAMED])
    more = f" and {len(lost) - MOST_NAMED} more" if len(lost) > MOST_NAMED else ""
    text = (
        f"[{PROBE}] {share[f'{PROBE}/right.on']:.1%} of {len(right['off'])} documents right with "
        f"speculation, {share[f'{PROBE}/right.off']:.1%} without: {len(lost)} lost, {len(gained)} "
        f"gained (McNemar's exact p = {p_value:.2g}; {flipped} flip between off arms); "
        f"lost: {named}{more}"
    )
    numbers = {
        "p_value": p_value, "lost": len(lost), "gained": len(gained), "flipped_off": flipped,
        "documents": len(right["off"]), "lost_documents": list(lost),
    }  # fmt: skip
    finding = Finding(kind=PROBE, severity=Severity.FAULT, text=text, numbers=numbers)
    metrics = {
        f"{PROBE}/lost": float(len(lost)),
        f"{PROBE}/gained": float(len(gained)),
        f"{PROBE}/p_value": p_value,
    }
    return Testimony(metrics=metrics, rates=(RateTest(p_value, finding),))
