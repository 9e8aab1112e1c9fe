"""drafting: what one arm's own steps say of its drafter, with nothing to compare them with.

A draft model proposes its greedy continuation of the committed text. As long as its tokens are
taken, the next one is proposed after the same text as if a new step had begun there: whether it is
taken is a property of the place in the text, not of the position in the draft. So later positions
are taken about as often as the first, given that the step has come so far; heads lose a little with
every position. Nor does it matter what became of the draft before: after one that was taken whole
the next begins no worse, unless the drafter has missed its own last token. And a drafter that
offers whole drafts offers one at every step.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from matrixrun.evidence.cells import Speculation
from matrixrun.evidence.verdicts import Finding, Severity
from matrixrun.judge.case import Case, Floats, counted
from matrixrun.judge.examination import Examination
from matrixrun.judge.laws import Flags
from matrixrun.judge.prompt_lookup import prompt_lookup_of
from matrixrun.judge.statistics import Ratio, clustered_ratio, rate
from matrixrun.judge.steps import Steps, draft_length, steps_of
from matrixrun.judge.testimony import Testimony

POSITION = "acceptance-by-position"
AFTER_WHOLE = "acceptance-after-whole-draft"
IDLE = "idle-drafter"
# Methods whose draft is a model of its own, continued token by token.
DRAFT_MODELS = ("draft_model", "draft-simple", "STANDALONE")
# Methods that look drafts up in the text so far, and mostly find none.
LOOKUPS = ("ngram", "suffix", "lookup")
# A later position that is taken less than this share as often as the first is broken. The public
# heads keep two thirds and more from one position to the next.
LEAST_KEPT = 0.25
LEAST_TRIALS = 30
LEAST_ANSWERS = 8
NEARLY_ALL = 0.8
# Drafts are whole but for so many; a drafter whose drafts vary may leave one out as well.
WHOLE = 0.95
MOST_IDLE = 0.05


def examine_drafting(examination: Examination) -> Testimony:
    """Return faults (notices for other methods than a draft model) where later draft positions are
    hardly ever taken, or drafts behind whole ones, and where tokens come without a draft from a
    drafter of whole drafts."""
    case = examination.case
    steps = steps_of(case)
    if not steps.given or prompt_lookup_of(_facts(case)) is not None:
        return Testimony()
    length = draft_length(case, steps)
    level = 1.0 - examination.settings.alpha / (max(1, case.sweep_cells) * max(1, length + 2))
    found = _by_position(case, steps, length, level) + _after_whole(case, steps, length, level)
    return found + _idle(case, steps, length, level)


def _facts(case: Case) -> dict[str, object]:
    outcome = case.observed.evidence.outcomes.get("on")
    return {} if outcome is None else outcome.facts


def _severity(case: Case) -> Severity:
    """Return FAULT for a draft model at its plain settings, of which the rule is exact."""
    speculation = case.cell.axes.get("speculation")
    if not isinstance(speculation, Speculation) or speculation.options:
        return Severity.NOTICE
    return Severity.FAULT if speculation.method in DRAFT_MODELS else Severity.NOTICE


def _by_position(case: Case, steps: Steps, length: int, level: float) -> Testimony:
    used = steps.used(length)
    accepted, drafted, owner = steps.accepted[used], steps.drafted[used], steps.owner[used]
    kept: dict[int, Ratio] = {}
    for position in range(length):
        reached = (accepted >= position) & (drafted > position)
        if reached.sum() < LEAST_TRIALS:
            break
        taken = counted(owner, reached & (accepted > position), len(case.requests))
        ratio = rate(taken, counted(owner, reached, len(case.requests)), level=level)
        if ratio is None:
            break
        kept[position] = ratio
    metrics = {f"acceptance/conditional.position.{j}": one.value for j, one in kept.items()}
    broken = [j for j, one in kept.items() if j and one.high < LEAST_KEPT * kept[0].low]
    if not broken:
        return Testimony(metrics=metrics)
    first, worst = kept[0], kept[broken[0]]
    text = (
        f"draft position {broken[0]} is accepted in {worst.value:.1%} of the steps that reach it "
        f"(at most {worst.high:.1%}), the first in {first.value:.1%}: the drafts go wrong after "
        f"{broken[0]} of {length} tokens"
    )
    numbers = {"position": broken[0], "rate": worst.value, "first": first.value}
    finding = Finding(kind=POSITION, severity=_severity(case), text=text, numbers=numbers)
    return Testimony((finding,), metrics)


@dataclass(frozen=True)
class _Behind:
    """How often the first token of drafts behind some others was taken: over all, and by request
    [requests], NaN where there were none."""

    rate: Ratio
    shares: Floats


def _after_whole(case: Case, steps: Steps, length: int, level: float) -> Testimony:
    """Return what becomes of drafts behind one that was taken whole, and of those behind a
    rejection. A text that goes round may bring the same wrong place behind every whole draft: what
    is a drafter's shows in nearly all answers that have both."""
    follows, whole = _follows(steps)
    used = steps.used(length) & follows
    after = _behind(case, steps, used & whole, level)
    other = _behind(case, steps, used & ~whole, level)
    if after is None or other is None:
        return Testimony()
    metrics = {"acceptance/first.after_whole": after.rate.value,
               "acceptance/first.after_rejection": other.rate.value}  # fmt: skip
    both = np.isfinite(after.shares) & (np.nan_to_num(other.shares) > 0)
    worse = after.shares[both] < LEAST_KEPT * other.shares[both]
    everywhere = worse.size >= LEAST_ANSWERS and worse.mean() >= NEARLY_ALL
    if after.rate.high >= LEAST_KEPT * other.rate.low or not everywhere:
        return Testimony(metrics=metrics)
    text = (
        f"the first token of a draft is accepted in {after.rate.value:.1%} of the steps behind a "
        f"draft that was accepted whole (at most {after.rate.high:.1%}), in {other.rate.value:.1%} "
        "of those behind a rejection: the drafter goes on from a text without its own last token"
    )
    numbers = {"rate": after.rate.value, "other": other.rate.value}
    finding = Finding(kind=AFTER_WHOLE, severity=_severity(case), text=text, numbers=numbers)
    return Testimony((finding,), metrics)


def _follows(steps: Steps) -> tuple[Flags, Flags]:
    """Return whether each step [S] follows one of its answer's that verified a draft, and whether
    that one took it whole."""
    follows = np.zeros(steps.owner.size, dtype=bool)
    follows[1:] = (steps.owner[1:] == steps.owner[:-1]) & steps.ordered[1:] & steps.verified[:-1]
    whole = np.zeros(steps.owner.size, dtype=bool)
    whole[1:] = steps.accepted[:-1] == steps.drafted[:-1]
    return follows, whole


def _behind(case: Case, steps: Steps, places: Flags, level: float) -> _Behind | None:
    """Return how often the first draft token is taken in the flagged steps; None of too few."""
    count = len(case.requests)
    offered = counted(steps.owner, places, count)
    taken = counted(steps.owner, places & (steps.accepted > 0), count)
    ratio = rate(taken, offered, level=level)
    if ratio is None or offered.sum() < LEAST_TRIALS:
        return None
    shares = np.divide(taken, offered, out=np.full(count, np.nan), where=offered > 0)
    return _Behind(ratio, np.asarray(shares))


def _idle(case: Case, steps: Steps, length: int, level: float) -> Testimony:
    """Return what tokens came without a draft, where drafts are whole otherwise."""
    offered = steps.drafted[steps.verified & ~steps.last]
    if offered.size < LEAST_TRIALS or (offered < length).mean() > 1.0 - WHOLE:
        return Testimony()
    emitted = counted(steps.owner[steps.verified], steps.accepted[steps.verified] + 1,
                      len(case.requests))  # fmt: skip
    due = np.maximum(case.on.lengths - 1.0, 0.0) * ~case.on.failed
    idle = np.maximum(due - emitted, 0.0) * ~case.on.failed
    ratio = clustered_ratio(idle, due, level=level)
    if ratio is None:
        return Testimony()
    metrics = {"acceptance/idle_share": ratio.value}
    if not ratio.low > MOST_IDLE or _looks_up(case) or _at_the_end(case, length):
        return Testimony(metrics=metrics)
    text = (
        f"{ratio.value:.1%} of the tokens after the first came without a draft (at least "
        f"{ratio.low:.1%}) although every draft that was offered was whole: the drafter is off in "
        "a part of the steps"
    )
    numbers = {"share": ratio.value, "requests": int((idle > 0).sum())}
    finding = Finding(kind=IDLE, severity=_severity(case), text=text, numbers=numbers)
    return Testimony((finding,), metrics)


def _looks_up(case: Case) -> bool:
    speculation = case.cell.axes.get("speculation")
    return isinstance(speculation, Speculation) and speculation.method.startswith(LOOKUPS)


def _at_the_end(case: Case, length: int) -> bool:
    """Return whether some text came so near to the longest that the engine may take that drafts
    are left out by design, for the whole batch."""
    longest = _facts(case).get("max_model_len")
    if not isinstance(longest, int):
        return False
    sizes = [one.prompt_tokens + one.token_ids.size for one in case.on.observations]
    return max(sizes, default=0) + length >= longest
