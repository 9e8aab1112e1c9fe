"""What further probes observed: compared as equality's answers are, then judged by their own
witnesses."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import msgspec
import numpy as np

from matrixrun.evidence.requests import CANCELLED, Observation
from matrixrun.evidence.verdicts import Finding
from matrixrun.judge.case import Case, CellObservations, ProbeObserved, build_case
from matrixrun.judge.examination import Examination, examine
from matrixrun.judge.testimony import RateTest, Testimony
from matrixrun.judge.witnesses import PROBE_WITNESSES, WITNESSES, ProbeExamination

ARMS = ("on", "off", "null")


def hear_probe(observed: CellObservations, probe: ProbeObserved, main: Examination) -> Testimony:
    """Return the testimony on what `probe` observed.

    `main` is the examination of equality's answers: the ceiling is learned there, from more tokens
    than a probe has. Metrics get the probe's kind before their names, findings before their texts.
    """
    case = _case(observed, probe, main.case) if probe.compared else None
    told = Testimony()
    if case is not None and case.requests:
        examination = examine(case, main.ceiling)
        for witness in WITNESSES:
            if witness.everywhere:
                told += _of(probe.kind, witness.examine(examination))
    shared = _by_name(observed)
    seen = ProbeExamination(
        observed.evidence, main.settings, probe, case, shared, observed.ledgers, main
    )
    for own in PROBE_WITNESSES:
        if own.probe == probe.kind:
            told += own.examine(seen)
    return told


def rate_tests(probe: ProbeObserved) -> int:
    """Return the number of rate tests that a probe may bring."""
    everywhere = sum(one.rate_tests for one in WITNESSES if one.everywhere and probe.compared)
    return everywhere + sum(one.rate_tests for one in PROBE_WITNESSES if one.probe == probe.kind)


def _case(observed: CellObservations, probe: ProbeObserved, main: Case) -> Case:
    """Return the case of the requests that were sent alike to every arm: an answer to another
    history is another answer, and none the worse for it."""
    sent = [{one.request: one for one in probe.answers(arm)} for arm in ARMS]
    shared = _by_name(observed)
    prompts = {
        name: _prompt(one, shared)
        for name, one in sent[1].items()
        if all(name in arm and _alike(arm[name], one) for arm in sent)
    }
    on, off, null = (
        tuple(one for one in probe.answers(arm) if one.request in prompts) for arm in ARMS
    )
    view = CellObservations(
        evidence=observed.evidence,
        on=on,
        off=off,
        null=null,
        on_scores=probe.scores.get("on", ()),
        off_scores=probe.scores.get("off", ()),
        null_scores=probe.scores.get("null", ()),
        confirmations=observed.confirmations,
        prompts=prompts,
    )
    return build_case(view, main.settings, main.sweep_cells)


def _by_name(observed: CellObservations) -> dict[str, tuple[int, ...]]:
    """Return the workload's prompts that equality sent, by name."""
    known = observed.prompts or {}
    return {one.prompt: known[one.request] for one in observed.off if one.request in known}


def _alike(one: Observation, other: Observation) -> bool:
    """Whether two answers are to the same prompt, and neither was dropped by its client."""
    dropped = CANCELLED in (one.finish_reason, other.finish_reason)
    return not dropped and np.array_equal(one.sent, other.sent)


def _prompt(one: Observation, shared: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    return tuple(one.sent.tolist()) if one.sent.size else shared[one.prompt]


def _of(kind: str, told: Testimony) -> Testimony:
    """Return a testimony with the probe's kind in front of its metrics and texts."""

    def named(finding: Finding) -> Finding:
        return msgspec.structs.replace(finding, text=f"[{kind}] {finding.text}")

    return dataclasses.replace(
        told,
        findings=tuple(map(named, told.findings)),
        metrics={f"{kind}.{name}": value for name, value in told.metrics.items()},
        objections=tuple(
            dataclasses.replace(one, reason=f"[{kind}] {one.reason}") for one in told.objections
        ),
        rates=tuple(RateTest(one.p_value, named(one.finding)) for one in told.rates),
    )
