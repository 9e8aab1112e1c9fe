"""Judging a sweep: every cell by every witness, then what only the sweep can decide."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from matrixrun.evidence.cells import Cell
from matrixrun.evidence.requests import ScoreRequest
from matrixrun.evidence.verdicts import CellResult, Finding, Verdict, Want
from matrixrun.judge.agreement import Drafting, engine_notices
from matrixrun.judge.case import CellObservations, build_case
from matrixrun.judge.examination import examine
from matrixrun.judge.invariance import acceptance_notices
from matrixrun.judge.paired_steps import Trail, step_findings, trail_of
from matrixrun.judge.probed import hear_probe, rate_tests
from matrixrun.judge.settings import JudgeSettings
from matrixrun.judge.statistics import Ratio, holm
from matrixrun.judge.steps import counters_of, steps_of
from matrixrun.judge.testimony import Objection, Testimony
from matrixrun.judge.verdict import assemble
from matrixrun.judge.witnesses import RATE_TESTS, WITNESSES, examine_outcomes
from matrixrun.judge.witnesses.acceptance import LENGTH, acceptance_ratios, counted_ratios


@dataclass(frozen=True)
class Judgement:
    """Results in the order of the cells given, and the evidence wanted before they are final."""

    results: tuple[CellResult, ...]
    wants: tuple[Want, ...]


def judge_sweep(
    cells: Sequence[CellObservations], settings: JudgeSettings, *, final: bool = False
) -> Judgement:
    """Return the verdicts of a sweep's cells, and the re-scorings that could still change them.

    While `wants` is not empty the results are provisional; called again with the answers among
    `confirmations` they are final. `final` says that no more evidence can be had: nothing is
    asked, and what is not settled is INCONCLUSIVE. Pure: the same evidence gives the same bytes,
    in whatever order requests and cells come. Each cell is taken from `cells` once and let go.
    """
    heard = [_hear(observed, settings, len(cells)) for observed in cells]
    told = _stand(heard, settings.alpha)
    lengths = {one.cell.id: one.length for one in heard if one.length is not None}
    notices = acceptance_notices([one.cell for one in heard], lengths)
    engines = engine_notices([one.drafting for one in heard if one.drafting is not None])
    trails = {one.cell.id: one.trail for one in heard if one.trail is not None}
    by_step = step_findings([one.cell for one in heard], trails)
    results, wants = [], []
    for one, testimony in zip(heard, told, strict=True):
        name = one.cell.id
        found = (*by_step.get(name, ()), *notices.get(name, ()), *engines.get(name, ()))
        results.append(assemble(one.cell, testimony + Testimony(findings=found), one.settings))
        scores = _once(testimony.wants)
        if scores and not final:
            wants.append(Want(cell=one.cell.id, scores=scores))
    return Judgement(tuple(results), tuple(wants))


@dataclass(frozen=True)
class _Heard:
    """One cell's testimony; its steps and its mean acceptance length if it has them: by its steps,
    and as `drafting` by the engine's own count where there are none."""

    cell: Cell
    told: Testimony
    settings: JudgeSettings
    length: Ratio | None = None
    drafting: Drafting | None = None
    trail: Trail | None = None
    rate_tests: int = RATE_TESTS


def _hear(observed: CellObservations, settings: JudgeSettings, sweep_cells: int) -> _Heard:
    """Return all testimony on one cell; its observations are not needed afterwards."""
    told = examine_outcomes(observed.evidence)
    if told.objections:
        return _Heard(observed.cell, told, settings)
    if "B" not in observed.evidence.outcomes:  # an attached pair in a sweep that has launches B
        settings = msgspec.structs.replace(settings, control="within-launch")
    case = build_case(observed, settings, sweep_cells)
    if not case.requests:
        reason = "no request was answered by the on arm, the off arm and a control"
        objection = Objection(Verdict.INCONCLUSIVE, reason)
        return _Heard(observed.cell, Testimony(objections=(objection,)), settings)
    examination = examine(case)
    for witness in WITNESSES:
        told += witness.examine(examination)
    for probe in observed.probes:
        told += hear_probe(observed, probe, examination)
    tests = RATE_TESTS + sum(map(rate_tests, observed.probes))
    level, steps = 1.0 - settings.alpha, steps_of(case)
    length = acceptance_ratios(case, steps, level).get(LENGTH)
    known = length or counted_ratios(case, steps, counters_of(case), level).get(LENGTH)
    facts = observed.evidence.outcomes["on"].facts
    drafting = None if known is None else Drafting(observed.cell, known, facts)
    trail = trail_of(case) if sweep_cells > 1 else None
    return _Heard(observed.cell, told, settings, length, drafting, trail, tests)


def _stand(heard: list[_Heard], alpha: float) -> list[Testimony]:
    """Return the testimonies with their rate tests turned into findings, over the whole sweep.

    A cell's p-value is its smallest times the number of tests it may bring (Bonferroni); Holm
    corrects it over the cells, so that the sweep's chance of one false rate finding is `alpha`.
    """
    told = [one.told for one in heard]
    tested = [index for index, one in enumerate(told) if one.rates]
    smallest = [min(rate.p_value for rate in told[index].rates) for index in tested]
    paid = [
        min(1.0, heard[index].rate_tests * least)
        for index, least in zip(tested, smallest, strict=True)
    ]
    result = list(told)
    for index, least, own, p_value in zip(tested, smallest, paid, holm(paid), strict=True):
        metrics = {"rates/p_value": own, "rates/p_adjusted": p_value}
        findings: tuple[Finding, ...] = ()
        if p_value <= alpha:
            # Of a cell that stands, every test is told whose own p-value would have made it stand.
            limit = least * alpha / p_value if p_value > 0 else 0.0
            findings = tuple(r.finding for r in told[index].rates if r.p_value <= limit)
        result[index] = told[index] + Testimony(findings=findings, metrics=metrics)
    return result


def _once(scores: tuple[ScoreRequest, ...]) -> tuple[ScoreRequest, ...]:
    return tuple({score.id: score for score in scores}.values())
