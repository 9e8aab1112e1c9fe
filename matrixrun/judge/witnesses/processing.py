"""processing: greedy answers with a logits processor on, valued with the processor's arithmetic.

A token that a processor forbids is a fault wherever it stands, and so is a text outside a grammar,
and a request that fails with a processor on the on arm alone. For the rest, each emitted token's
regret after processing is computed from A's raw scores. One beyond the ceiling is scored again, and
is a fault if decoding and extending put it there too; what lies beyond the floor is compared with
the control's, paired by prompt: as without processors. Where the off arms' own tokens do not fit
the arithmetic, the engine does it in another way, and that processor is not judged; where one of
them lies beyond the ceiling, single tokens are no event.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from matrixrun.evidence.requests import Observation, Score
from matrixrun.evidence.verdicts import Finding, Severity, Verdict
from matrixrun.judge.case import Floats, Ints
from matrixrun.judge.ceiling import BAND_FLOORS, DECIDED, arithmetic_floor, arithmetic_of
from matrixrun.judge.examination import Examination
from matrixrun.judge.misprocessed import Misprocessed, ProcessedAnswer, misprocessed
from matrixrun.judge.processors import (
    ProcessedValues,
    Processor,
    Violation,
    forked_values,
    processed_values,
    violation,
)
from matrixrun.judge.statistics import sign_flip_p_value
from matrixrun.judge.suspicions import State
from matrixrun.judge.testimony import Objection, RateTest, Testimony

if TYPE_CHECKING:
    from matrixrun.judge.witnesses import ProbeExamination

PROBE = "processors"
RATE_TESTS = 1
ARMS = ("on", "off", "null")
# Whose answer an arm's is held against where a mask is not known.
AGAINST = {"on": "off", "off": "null", "null": "off"}
# What begins an engine's words when it does not take a request, rather than fail at it.
REFUSED = "HTTP 4"
# An off arm's answer with a token beyond the band does not fit the arithmetic; so many may.
MOST_UNFITTING = 0.1


@dataclass(frozen=True)
class Valued:
    """One arm's answer with a processor on: its largest regret after processing, the sum of what
    lies beyond the floor, and the first thing in it that is forbidden."""

    answer: Observation
    processed: ProcessedAnswer
    beyond: float
    forbidden: Violation | None

    @property
    def prompt(self) -> str:
        return self.answer.prompt

    @property
    def largest(self) -> float:
        return float(self.processed.values.regrets.max(initial=0.0))


def examine_processing(examination: ProbeExamination) -> Testimony:
    """Return forbidden tokens as faults, and the test of processed regrets."""
    floor = arithmetic_floor(
        examination.evidence.cell,
        arithmetic_of(examination.evidence, examination.settings.dtype),
        examination.settings.largest_logit,
    )
    told, judged = Testimony(), dict[Processor, dict[str, dict[str, Valued]]]()
    for processor in Processor:
        arms = _fitting(examination, processor, floor)
        if arms is None:
            told += _not_judged(examination, processor)
        else:
            judged[processor] = arms
            told += _figures(processor, arms) + _forbidden(processor, arms)
        told += _failed(examination, processor)
    if not judged:
        reason = f"[{PROBE}] no processor could be judged"
        return told + Testimony(objections=(Objection(Verdict.INCONCLUSIVE, reason),))
    if examination.main is not None:
        told += _events(judged, examination.main)
    return told + _rate(judged)


def _fitting(
    examination: ProbeExamination, processor: Processor, floor: float
) -> dict[str, dict[str, Valued]] | None:
    """Return each arm's answers by request, valued in the way that fits the off arms better:
    counting generated tokens, or the prompt's as well. None where neither fits, or nothing can be
    valued."""
    band = min(DECIDED, BAND_FLOORS * floor)
    ways = [
        {arm: _valued(examination, arm, processor, floor, whole) for arm in ARMS}
        for whole in (False, True)
    ]
    arms = min(ways, key=lambda way: sum(one.beyond for one in _off(way)))
    off = _off(arms)
    unfitting = sum(one.largest > band or one.forbidden is not None for one in off)
    fits = off and arms["on"] and unfitting <= MOST_UNFITTING * len(off)
    return arms if fits else None


def _off(arms: Mapping[str, Mapping[str, Valued]]) -> list[Valued]:
    return [*arms["off"].values(), *arms["null"].values()]


def _valued(
    examination: ProbeExamination, arm: str, processor: Processor, floor: float, whole: bool
) -> dict[str, Valued]:
    scores = {one.request: one for one in examination.observed.scores.get(arm, ())}
    found = {}
    for answer in _sent(examination, arm, processor):
        score, prompt = scores.get(answer.request), _prompt(examination, answer)
        if prompt is None or answer.error is not None:
            continue
        if score is None or score.error is not None or score.top_ids.ndim != 2:
            continue
        tokens, banned = answer.token_ids.astype(np.int64), answer.banned_sequences
        if processor is Processor.GRAMMAR:
            values = _forked(examination, arm, prompt, tokens, score)
        else:
            values = processed_values(processor, prompt, tokens, score, whole=whole, banned=banned)
        found[answer.request] = Valued(
            answer=answer,
            processed=ProcessedAnswer(
                request=answer.request,
                processor=processor,
                prompt=prompt,
                tokens=tuple(tokens.tolist()),
                values=values,
                whole=whole,
                banned=banned,
            ),
            beyond=float(np.maximum(values.regrets - floor, 0.0).sum()),
            forbidden=violation(processor, prompt, answer),
        )
    return found


def _sent(examination: ProbeExamination, arm: str, processor: Processor) -> list[Observation]:
    """Return an arm's answers with a processor, failed ones included."""
    begins = f"{PROBE}.{processor}."
    return [one for one in examination.observed.answers(arm) if one.request.startswith(begins)]


def _forked(
    examination: ProbeExamination,
    arm: str,
    prompt: tuple[int, ...],
    tokens: Ints,
    score: Score,
) -> ProcessedValues:
    """Value an answer with a grammar by the one of another arm, if that holds to it."""
    other = AGAINST[arm]
    held = (
        one
        for one in _sent(examination, other, Processor.GRAMMAR)
        if one.request == score.request and violation(Processor.GRAMMAR, prompt, one) is None
    )
    valued = (one for one in examination.observed.scores.get(other, ())
              if one.request == score.request and one.error is None)  # fmt: skip
    return forked_values(tokens, score, next(held, None), next(valued, None))


def _prompt(examination: ProbeExamination, answer: Observation) -> tuple[int, ...] | None:
    if answer.sent.size:
        return tuple(answer.sent.tolist())
    return examination.prompts.get(answer.prompt)


def _not_judged(examination: ProbeExamination, processor: Processor) -> Testimony:
    """Return a notice that says why, none where the processor was not sent."""
    if not any(_sent(examination, arm, processor) for arm in ARMS):
        return Testimony()
    errors = [
        f"the {arm} arm says: {one.error}"
        for arm in ("off", "on")
        for one in _sent(examination, arm, processor)
        if one.error is not None
    ]
    named = any(one.top_ids.ndim == 2 for one in examination.observed.scores.get("off", ()))
    why = "the off arms' own answers do not fit it"
    if errors:
        why = errors[0]
    elif not named:
        why = "the engine's scores do not name the best tokens of each position"
    text = f"[{PROBE}] {processor} is not judged: {why}"
    return Testimony((Finding(kind="processing", severity=Severity.NOTICE, text=text),))


def _figures(processor: Processor, arms: Mapping[str, Mapping[str, Valued]]) -> Testimony:
    metrics = {
        f"{PROBE}.regret/max.{processor}.{arm}": max(one.largest for one in many.values())
        for arm, many in arms.items()
        if many
    }
    steps = [one.answer.accepted for one in arms["on"].values() if one.answer.accepted.size]
    if steps:
        metrics[f"{PROBE}.accepted/{processor}.on"] = float(sum(one.sum() for one in steps))
    for arm in ("on", "null"):
        both = [
            np.array_equal(one.answer.token_ids, arms["off"][name].answer.token_ids)
            for name, one in arms[arm].items()
            if name in arms["off"]
        ]
        if both:
            metrics[f"{PROBE}.exact_match/{processor}.{arm}"] = float(np.mean(both))
    return Testimony(metrics=metrics)


def _forbidden(processor: Processor, arms: Mapping[str, Mapping[str, Valued]]) -> Testimony:
    """Return a fault for answers with a forbidden token, where no off arm has any."""
    if any(one.forbidden for one in _off(arms)):
        return Testimony()
    bad = [(name, one.forbidden) for name, one in sorted(arms["on"].items()) if one.forbidden]
    if not bad:
        return Testimony()
    name, first = bad[0]
    kind = "forbidden-text" if processor is Processor.GRAMMAR else "forbidden-token"
    unit = kind.removeprefix("forbidden-")
    text = (
        f"[{PROBE}] {len(bad)} of {len(arms['on'])} answers with {processor} hold a {unit} that it "
        f"forbids (first: {name}, {first.words}), no off arm's"
    )
    numbers = {"requests": len(bad), "request": name, "position": first.place}
    finding = Finding(kind=kind, severity=Severity.FAULT, text=text, numbers=numbers)
    return Testimony((finding,))


def _failed(examination: ProbeExamination, processor: Processor) -> Testimony:
    """Return a fault for requests that failed on the on arm, where no off arm's did."""
    failed = {
        arm: [one for one in _sent(examination, arm, processor) if one.error is not None]
        for arm in ARMS
    }
    bad = [one for one in failed["on"] if not str(one.error).startswith(REFUSED)]
    if failed["off"] or failed["null"] or not bad:
        return Testimony()
    text = (
        f"[{PROBE}] {len(bad)} requests with {processor} failed on the on arm, no off arm's "
        f"(first: {bad[0].request}: {str(bad[0].error).splitlines()[0]})"
    )
    numbers = {"requests": len(bad), "request": bad[0].request}
    return Testimony((Finding(kind="failed-request", severity=Severity.FAULT, text=text,
                              numbers=numbers),))  # fmt: skip


def _events(
    judged: Mapping[Processor, Mapping[str, Mapping[str, Valued]]], main: Examination
) -> Testimony:
    """Return a fault for each token that no off evaluation puts within the ceiling, and what is to
    be scored again; of processors whose arithmetic every token of the off arms fits."""
    case, ceiling = main.case, main.ceiling
    answers = [
        one.processed
        for arms in judged.values()
        if all(off.largest <= ceiling.value for off in _off(arms))
        for _, one in sorted(arms["on"].items())
    ]
    found = misprocessed(
        answers, ceiling, case.cell, case.confirmations, most=case.settings.max_suspicions
    )
    bad = [one for one in found if one.state is State.UNEXPLAINED]
    findings = tuple(
        _finding(one, ceiling.value, len(bad)) for one in bad[: case.settings.top_reasons]
    )
    open_ = [one for one in found if one.state in (State.ASKED, State.UNSETTLED)]
    objections: tuple[Objection, ...] = ()
    if open_:
        worst = max(open_, key=lambda one: (one.regret, one.answer.request))
        reason = (
            f"[{PROBE}] {len(open_)} tokens lie beyond the ceiling of {ceiling.value:.3g} nats "
            f"after processing and re-scoring has not settled them (worst: {_place(worst)}, "
            f"{worst.regret:.3g})"
        )
        objections = (Objection(Verdict.INCONCLUSIVE, reason),)
    return Testimony(
        findings=findings,
        metrics={f"{PROBE}.misprocessed/tokens.on": float(len(bad))},
        objections=objections,
        wants=tuple(want for one in found for want in one.wants),
    )


def _place(one: Misprocessed) -> str:
    return f"request {one.answer.request}, token {one.position}"


def _finding(one: Misprocessed, ceiling: float, count: int) -> Finding:
    values = ", ".join(f"{name} {value:.3g}" for name, value in one.evaluations.items())
    text = (
        f"[{PROBE}] {_place(one)}: the on arm emitted {one.token}, with {one.answer.processor} "
        f"{one.regret:.3g} nats below {one.rival}; ceiling {ceiling:.3g} ({values}); "
        f"{count} such tokens"
    )
    numbers: dict[str, object] = {
        "request": one.answer.request,
        "position": one.position,
        "token": one.token,
        "rival": one.rival,
        "regret": one.regret,
        "evaluations": one.evaluations,
        "ceiling": ceiling,
    }
    return Finding(kind="misprocessed-token", severity=Severity.FAULT, text=text, numbers=numbers)


def _rate(judged: Mapping[Processor, Mapping[str, Mapping[str, Valued]]]) -> Testimony:
    """Return the test of regrets beyond the floor, on against control, summed over each prompt."""
    sums: dict[str, Floats] = {}
    for arms in judged.values():
        for name in sorted(arms["on"].keys() & arms["null"].keys()):
            on, null = arms["on"][name], arms["null"][name]
            sums.setdefault(on.prompt, np.zeros(2))
            sums[on.prompt] += (on.beyond, null.beyond)
    pairs = np.array([sums[prompt] for prompt in sorted(sums)]).reshape(-1, 2)
    p_value = sign_flip_p_value(pairs[:, 0] - pairs[:, 1])
    worst = max(
        judged, key=lambda one: max((v.largest for v in judged[one]["on"].values()), default=0)
    )
    largest = max((one.largest for one in judged[worst]["on"].values()), default=0.0)
    mean_on, mean_null = pairs.mean(axis=0).tolist() if pairs.size else (0.0, 0.0)
    text = (
        f"[{PROBE}] tokens lie further below the best one after processing than the control's: "
        f"{mean_on:.3g} and {mean_null:.3g} nats a prompt beyond the floor (largest: "
        f"{largest:.3g}, with {worst}; p = {p_value:.2g})"
    )
    numbers = {"p_value": p_value, "on": mean_on, "null": mean_null, "worst": str(worst)}
    finding = Finding(kind="processing", severity=Severity.FAULT, text=text, numbers=numbers)
    return Testimony(rates=(RateTest(p_value, finding),))
