"""answers: events that need no statistics, seen in the on arm and never in the off arms; where an
off arm shows them too, whether the on arm shows more of them than the control."""

from __future__ import annotations

import numpy as np

from matrixrun.evidence.verdicts import Finding, Severity
from matrixrun.judge import patterns
from matrixrun.judge.case import Answers, Case, Ints
from matrixrun.judge.examination import Examination
from matrixrun.judge.patterns import Flags
from matrixrun.judge.statistics import sign_flip_p_value
from matrixrun.judge.testimony import RateTest, Testimony

RATE_TESTS = 1


def examine_answers(examination: Examination) -> Testimony:
    """Return a fault for each kind of broken answer that the on arm alone gave.

    Failed requests on a live engine, NaN, empty answers, tokens after the end of the turn, stops
    that the target did not prefer, answers cut short, limits missed. Where an off arm shows the
    same kind, one answer is no event: broken answers are then counted against the control's.
    """
    case = examination.case
    arms = (case.on, case.off, case.null)
    stops = patterns.stop_tokens(case.off, case.null)
    inner = patterns.inner_tokens(case.off, case.null)
    kinds = {
        "failed-request": [arm.failed for arm in arms],
        "nan": [patterns.undefined(arm) for arm in arms],
        "empty-output": [patterns.empty(arm) for arm in arms],
        "past-the-end": [_past(arm, stops) for arm in arms],
        "stopped-early": [
            _stopped_inside(case.on, stops, inner)
            | _stopped_against(examination, case.on, case.forks),
            _stopped_inside(case.off, stops, inner),
            _stopped_inside(case.null, stops, inner)
            | _stopped_against(examination, case.null, case.null_forks),
        ],
        "cut-short": [
            _cut(case.on, case.off),
            _cut(case.off, case.null),
            _cut(case.null, case.off),
        ],
        "length-limit": [_limit_missed(arm, case.off) for arm in arms],
    }
    told, shared = Testimony(), []
    for kind, (on, off, null) in kinds.items():
        slug = kind.replace("-", "_")
        told += Testimony(
            metrics={f"answers/{slug}.on": float(on.sum()), f"answers/{slug}.off": float(off.sum())}
        )
        if on.any() and not off.any() and not null.any():
            told += Testimony(findings=(_finding(examination, kind, on),))
        elif on.any():
            shared.append(kind)
    if shared:
        told += _compared(examination, kinds, shared)
    return told + _finish_reasons(case)


TEXTS = {
    "failed-request": "failed on the on arm, which was alive",
    "nan": "have NaN among the on arm's logprobs",
    "empty-output": "were answered with nothing by the on arm",
    "past-the-end": "go on after the end of the turn on the on arm",
    "stopped-early": "stop on the on arm where the off arm clearly goes on, or on no stop token",
    "cut-short": "break off on the on arm, neither stopped nor at the limit",
    "length-limit": "end at the output limit with another number of tokens than the off arm's",
}


def _finding(examination: Examination, kind: str, flags: Flags) -> Finding:
    case = examination.case
    places = np.flatnonzero(flags)
    first = case.on.observations[places[0]]
    named = ", ".join(case.requests[index] for index in places[: examination.settings.top_reasons])
    text = f"{places.size} of {len(case.requests)} requests {TEXTS[kind]}, none of the off arms'"
    text += f" (first: {named})"
    if first.error:
        text += f": {first.error.splitlines()[0]}"
    numbers = {"requests": int(places.size), "first": first.request}
    return Finding(kind=kind, severity=Severity.FAULT, text=text, numbers=numbers)


def _compared(
    examination: Examination, kinds: dict[str, list[Flags]], shared: list[str]
) -> Testimony:
    """Return the test whether more of the on arm's answers are broken, in whatever way, than the
    control's; its finding is the kind, of those that the off arms show too, with most excess.

    Signs are flipped over prompts. All kinds count, so that nothing is chosen by the answers.
    """
    case = examination.case
    broken = {
        arm: np.logical_or.reduce([flags[place] for flags in kinds.values()])
        for arm, place in (("on", 0), ("null", 2))
    }
    p_value = sign_flip_p_value(
        case.by_prompt(broken["on"].astype(float) - broken["null"].astype(float))
    )
    kind = max(shared, key=lambda name: int(kinds[name][0].sum()) - int(kinds[name][2].sum()))
    counts = [int(flags.sum()) for flags in kinds[kind]]
    first = case.requests[int(np.flatnonzero(kinds[kind][0])[0])]
    text = (
        f"{counts[0]} of {len(case.requests)} requests {TEXTS[kind]}, {counts[2]} of the control's "
        f"and {counts[1]} of the off arm's (first: {first}; broken in any way: "
        f"{int(broken['on'].sum())}, the control's {int(broken['null'].sum())}, p = {p_value:.2g})"
    )
    numbers = {
        "requests": counts[0],
        "off": counts[1],
        "null": counts[2],
        "first": first,
        "p_value": p_value,
    }
    finding = Finding(kind=kind, severity=Severity.FAULT, text=text, numbers=numbers)
    return Testimony(rates=(RateTest(p_value, finding),))


def _past(answers: Answers, stops: frozenset[int]) -> Flags:
    """Return whether each answer holds a stop token before its last token [requests]."""
    inner = answers.position < answers.lengths[answers.owner] - 1
    hit = inner & np.isin(answers.token_ids, list(stops))
    flags: Flags = np.bincount(answers.owner, weights=hit, minlength=answers.lengths.size) > 0
    return flags


def _stopped_inside(answers: Answers, stops: frozenset[int], inner: frozenset[int]) -> Flags:
    """Return whether each answer finished with `stop` on a token that the off arms go on after;
    none where no stop tokens are known, as the engine may not return them."""
    flags = patterns.finished_by(answers, "stop") & (answers.lengths > 0)
    if not stops:
        return np.zeros_like(flags)
    last = np.full(flags.size, -1, dtype=np.int64)
    last[flags] = answers.token_ids[answers.offsets[1:][flags] - 1]
    flags &= np.isin(last, list(inner))
    return flags


def _stopped_against(examination: Examination, answers: Answers, forks: Ints) -> Flags:
    """Return whether each answer stopped where the off arm goes on with a clear lead [requests].

    The stop token need not be known: it is not the off arm's best, so that it lies at least as far
    below as the runner-up does. One evaluation only, hence the band and not the ceiling.
    """
    case, ceiling = examination.case, examination.ceiling
    flags: Flags = patterns.finished_by(answers, "stop") & (forks == answers.lengths)
    flags &= answers.lengths < case.off.lengths
    clear = max(ceiling.band, ceiling.value)
    for index in np.flatnonzero(flags).tolist():
        lead = _lead(case.off, index, int(forks[index]))
        flags[index] = lead is not None and lead > clear
    return flags


def _lead(answers: Answers, index: int, position: int) -> float | None:
    """Return best - runner-up in nats at a position of an answer's own top logprobs."""
    rows = answers.observations[index].top_logprobs
    if rows.ndim != 2 or rows.shape[1] < 2 or position >= rows.shape[0]:
        return None
    lead = float(rows[position, 0]) - float(rows[position, 1])
    return None if np.isnan(lead) else lead


def _cut(answers: Answers, off: Answers) -> Flags:
    """Return whether each answer is shorter than the off arm's for no named reason [requests]."""
    named = patterns.finished_by(answers, "stop") | patterns.finished_by(answers, "length")
    flags: Flags = ~named & ~answers.failed & (answers.lengths < off.lengths)
    return flags


def _limit_missed(answers: Answers, off: Answers) -> Flags:
    """Return whether each answer ended at the limit, like the off arm's, with another length."""
    both = patterns.finished_by(answers, "length") & patterns.finished_by(off, "length")
    flags: Flags = both & (answers.lengths != off.lengths)
    return flags


def _finish_reasons(case: Case) -> Testimony:
    """Return a notice when equal tokens finish for another reason, on the on arm alone."""
    changed = {
        name: [
            request
            for request, one, off, fork in zip(
                case.requests, arm.observations, case.off.observations, forks, strict=True
            )
            if fork < 0 and one.error is None and one.finish_reason != off.finish_reason
        ]
        for name, arm, forks in (
            ("on", case.on, case.forks),
            ("null", case.null, case.null_forks),
        )
    }
    if not changed["on"] or changed["null"]:
        return Testimony()
    text = (
        f"{len(changed['on'])} requests with the same tokens finish for another reason than on the "
        f"off arm (first: {changed['on'][0]})"
    )
    numbers = {"requests": len(changed["on"]), "first": changed["on"][0]}
    return Testimony((Finding(kind="finish-reason", severity=Severity.NOTICE, text=text,
                              numbers=numbers),))  # fmt: skip
