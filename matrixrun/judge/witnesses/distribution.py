"""distribution: whether sampled answers follow the target's own law, and are drawn independently.

Five tests. Two bet on single tokens at the odds that A scores (`judge/betting.py`): on tokens that
a wrong acceptance or residual draws too often, and on samples of one prompt that repeat each other.
What the off arms win in the same bets is taken off: where a score is not quite the law that was
drawn from, they win by it too. Two more compare the on arm with the control, against the off arm's
samples, and need no score to be right: the similarity of answers by a Hamming kernel over whole
answers (Gao, Liang and Guestrin 2024, "Model equality testing", arXiv 2410.20247; kernel two-sample
tests: Gretton et al. 2012, J. Mach. Learn. Res. 13), and the mean logprob of a prompt's tokens. On
and control are exchangeable given the off arm, so signs are flipped over prompts. The fifth sends a
seed again.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from matrixrun.evidence.verdicts import Finding, Severity, Verdict
from matrixrun.judge.betting import Draws, Wealth, wager, wager_on_collisions
from matrixrun.judge.case import Floats
from matrixrun.judge.laws import Setting
from matrixrun.judge.sampled import Sampled, offers_single_tokens, sampled
from matrixrun.judge.statistics import paired_excess_p_value, sign_flip_p_value
from matrixrun.judge.testimony import Objection, RateTest, Testimony, where_rare

if TYPE_CHECKING:
    from matrixrun.judge.witnesses import ProbeExamination

PROBE = "sampling"
RATE_TESTS = 5
# An off arm that wins so much against its own scores does not sample from what A scores: at odds of
# one in a thousand.
OFF_ARM_WINS = math.log(1000.0)
MOST_UNVALUED = 0.1
# A near tie turns now and then, and the answer after it: seeds that hold in no more than this share
# of prompts are not kept.
MOST_KEPT = 0.5


def examine_distribution(examination: ProbeExamination) -> Testimony:
    """Return the tests of sampled answers, INCONCLUSIVE where they could not be made."""
    observed = examination.observed
    arms = {
        name: sampled(observed.answers(name), observed.scores.get(name, ()))
        for name in ("on", "off", "null")
    }
    told = Testimony(metrics=_figures(arms))
    missing = _missing(arms)
    if missing is not None:
        return told + _inconclusive(missing)
    single = _single_tokens(examination)
    return told + _law(arms, single=single) + _collisions(arms) + _compared(arms) + _seeds(arms)


def _figures(arms: dict[str, Sampled]) -> dict[str, float]:
    figures = {
        f"{PROBE}.tokens.{name}": float(sum(one.token_ids.size for one in arm.answers))
        for name, arm in arms.items()
    }
    figures[f"{PROBE}.draft_tokens"] = float(arms["on"].drafted)
    figures[f"{PROBE}.steps_with_rejection"] = float(arms["on"].rejected)
    return figures


def _missing(arms: dict[str, Sampled]) -> str | None:
    for name, arm in arms.items():
        total = len(arm.answers) + arm.unvalued
        if total == 0:
            return f"the {name} arm was not sampled"
        if arm.unvalued > MOST_UNVALUED * total:
            return f"{arm.unvalued} of {total} samples of the {name} arm failed or have no score"
    if arms["on"].drafted == 0:
        return "no draft was verified above temperature 0"
    return None


def _inconclusive(reason: str) -> Testimony:
    return Testimony(objections=(Objection(Verdict.INCONCLUSIVE, f"[{PROBE}] {reason}"),))


def _single_tokens(examination: ProbeExamination) -> bool:
    outcome = examination.evidence.outcomes.get("on")
    return outcome is not None and offers_single_tokens(outcome.facts)


def _law(arms: dict[str, Sampled], *, single: bool) -> Testimony:
    """Return the bet on single tokens."""
    draws = {name: arm.draws() for name, arm in arms.items()}
    known = {name: many for name, many in draws.items() if many is not None and many.token.size}
    if len(known) < len(arms):
        return _inconclusive("an arm's samples have one token at most")
    return _betted(
        {name: wager(many, single=single) for name, many in known.items()},
        "distribution",
        f"{known['on'].token.size} sampled tokens do not follow the target's own probabilities",
        _counts(known["on"]),
    )


def _counts(draws: Draws) -> dict[str, float]:
    whole = draws.where(draws.cut == Setting.WHOLE.number)
    best, expected = float((whole.outcome == 0).mean()), float(whole.law[:, 0].mean())
    return {"best_token": best, "best_token_expected": expected}


def _collisions(arms: dict[str, Sampled]) -> Testimony:
    pairs = {name: arm.pairs() for name, arm in arms.items()}
    if not all(many.size for many in pairs.values()):
        return Testimony()
    same, chance = pairs["on"].mean(axis=0)
    return _betted(
        {name: wager_on_collisions(many) for name, many in pairs.items()},
        "correlated-samples",
        f"samples of one prompt agree in {same:.1%} of the tokens after the same text",
        {"same": float(same), "probability_of_the_first": float(chance)},
    )


def _betted(
    wealth: dict[str, Wealth], kind: str, text: str, numbers: dict[str, float]
) -> Testimony:
    """Return the on arm's winnings beyond the off arms' as a test: a p-value is the inverse of
    what 1 has become."""
    off = max(wealth["off"].log, wealth["null"].log)
    gained = wealth["on"].log - max(0.0, off)
    p_value = math.exp(-max(0.0, min(gained, 700.0)))
    metrics = {f"{PROBE}.{kind}/log_wealth.{name}": one.log for name, one in wealth.items()}
    if off > OFF_ARM_WINS:
        why = f"the off arms' own samples do not follow A's scores (log wealth {off:.3g}, {kind})"
        return _inconclusive(why) + Testimony(metrics=metrics)
    told = (
        f"[{PROBE}] {text}: a bet on {wealth['on'].best} turns 1 into "
        f"{math.exp(min(gained, 700.0)):.3g} (p = {p_value:.2g}; off arms {math.exp(off):.2g})"
    )
    values = {**numbers, "p_value": p_value, "log_wealth": wealth["on"].log, "log_wealth_off": off}
    finding = Finding(kind=kind, severity=Severity.FAULT, text=told, numbers=values)
    return Testimony(metrics=metrics, rates=(RateTest(p_value, finding),))


def _compared(arms: dict[str, Sampled]) -> Testimony:
    """Return the two tests of the on arm against the control."""
    names = sorted({one.prompt for arm in arms.values() for one in arm.answers})
    closeness = _closeness(arms, names)
    surprise = arms["on"].surprise(names) - arms["null"].surprise(names)
    told = Testimony()
    for kind, text, p_value in (
        (
            "sample-similarity",
            f"whole answers are less like the off arm's than the control's are, by "
            f"{-_average(closeness):.2g} of their tokens",
            sign_flip_p_value(-closeness),
        ),
        (
            "sample-logprob",
            f"a prompt's tokens are {_average(surprise):+.2g} nats likelier than the control's",
            min(1.0, 2.0 * min(sign_flip_p_value(surprise), sign_flip_p_value(-surprise))),
        ),
    ):
        finding = Finding(
            kind=kind, severity=Severity.FAULT, text=f"[{PROBE}] {text} (p = {p_value:.2g})",
            numbers={"p_value": p_value, "prompts": len(names)},
        )  # fmt: skip
        told += where_rare(p_value, finding)
    return told


def _average(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else 0.0


def _closeness(arms: dict[str, Sampled], names: list[str]) -> Floats:
    """Return by prompt how much more alike the on arm's and the off arm's samples are than the
    control's and the off arm's [prompts]."""
    on, off, null = (arms[name].by_prompt() for name in ("on", "off", "null"))
    return np.array(
        [
            _alike(on.get(name, []), off.get(name, []))
            - _alike(null.get(name, []), off.get(name, []))
            for name in names
        ]
    )


def _alike(some: list[np.ndarray], others: list[np.ndarray]) -> float:
    """Return the mean share of equal tokens over all pairs of answers; NaN without a pair."""
    shares = []
    for one in some:
        for other in others:
            size = min(one.size, other.size)
            if size:
                shares.append(float((one[:size] == other[:size]).mean()))
    return float(np.mean(shares)) if shares else math.nan


def _seeds(arms: dict[str, Sampled]) -> Testimony:
    """Return how often a seed sent again gave the same answer. Where it did in every prompt of the
    off arms, and in at most half of the on arm's, a test by prompts (McNemar's, as no off arm ever
    misses); where it did in more of them, a notice."""
    again = {name: arm.repeated() for name, arm in arms.items()}
    shares = {name: float(np.mean(list(many.values()))) for name, many in again.items() if many}
    metrics = {f"{PROBE}.seed_repeated/{name}": share for name, share in shares.items()}
    if len(shares) < len(arms) or min(shares["off"], shares["null"]) < 1.0 or shares["on"] == 1.0:
        return Testimony(metrics=metrics)
    missed = sum(not same for same in again["on"].values())
    p_value = paired_excess_p_value(missed, 0)
    text = (
        f"[{PROBE}] the same seed gives the same answer in {shares['on']:.0%} of "
        f"{len(again['on'])} prompts; without speculation it always does (p = {p_value:.2g})"
    )
    numbers = {**shares, "p_value": p_value}
    if shares["on"] > MOST_KEPT:
        finding = Finding(kind="seeds", severity=Severity.NOTICE, text=text, numbers=numbers)
        return Testimony((finding,), metrics)
    finding = Finding(kind="seeds", severity=Severity.FAULT, text=text, numbers=numbers)
    return Testimony(metrics=metrics, rates=(RateTest(p_value, finding),))
