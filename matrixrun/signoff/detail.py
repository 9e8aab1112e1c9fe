"""The evidence of one cell as a reviewer reads it. Pure: from observations to figures."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from matrixrun.evidence.requests import Observation
from matrixrun.evidence.verdicts import CellEvidence, CellResult
from matrixrun.judge import CellObservations, JudgeSettings
from matrixrun.judge.case import Answers, Case, Floats, build_case
from matrixrun.judge.examination import examine
from matrixrun.judge.statistics import Ratio
from matrixrun.judge.steps import steps_of
from matrixrun.judge.witnesses.acceptance import LENGTH, RATE, acceptance_ratios
from matrixrun.judge.witnesses.reuse import TURN
from matrixrun.record.files import to_plain
from matrixrun.signoff.divergences import Divergence, divergences_of
from matrixrun.signoff.estimates import Estimate, Speed, speed_of

CURVE_POINTS = 48
# float32 logprobs of one and the same token differ by this much between two prefills.
SMALLEST_REGRET = 1e-6
SIGNIFICANT_DIGITS = 6


class Expected(msgspec.Struct, frozen=True):
    """The band in which the expectations file puts a figure."""

    low: float
    high: float


class Rate(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A figure of acceptance; `position` counts from 0, None for figures over all positions."""

    name: str
    estimate: Estimate
    position: int | None = None
    expected: Expected | None = None


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """How many of `scored` tokens have at least a regret: points (nats, tokens), descending."""

    scored: int
    points: tuple[tuple[float, int], ...]


class Turn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Prompt tokens, and those taken from the cache, of all prompts' n-th requests."""

    turn: int
    requests: int
    prompt_tokens: int
    cached_on: int | None = None
    cached_off: int | None = None


class CellDetail(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """All that a cell's page shows beyond its row. `launches` maps roles to launch ids; `missing`
    says why there are no observations to show, `damaged` that they could not be read."""

    findings: tuple[dict[str, Any], ...] = ()
    launches: dict[str, str] = {}
    metrics: dict[str, float] = {}
    coverage: dict[str, int] = {}
    divergences: tuple[Divergence, ...] = ()
    forks: int = 0
    compared: int = 0
    curves: dict[str, Curve] = {}
    floor: float | None = None
    ceiling: float | None = None
    acceptance: tuple[Rate, ...] = ()
    turns: tuple[Turn, ...] = ()
    speed: Speed = Speed()
    missing: str | None = None
    damaged: bool = False


def bare_detail(
    result: CellResult, evidence: CellEvidence | None, missing: str | None = None
) -> CellDetail:
    """Return what can be shown without observations: findings, figures, launches."""
    outcomes = {} if evidence is None else evidence.outcomes
    return CellDetail(
        findings=tuple(to_plain(finding) for finding in result.findings),
        launches={role: outcome.launch for role, outcome in outcomes.items()},
        metrics={name: rounded(value) for name, value in result.metrics.items()},
        coverage=result.coverage,
        missing=missing,
    )


def detail_of(
    observed: CellObservations, result: CellResult, settings: JudgeSettings, sweep_cells: int
) -> CellDetail:
    """Return a cell's page from its observations, judged by the same settings as its verdict."""
    bare = bare_detail(result, observed.evidence)
    case = build_case(observed, settings, sweep_cells)
    if not case.requests:
        return msgspec.structs.replace(bare, missing="no request was answered by every arm")
    examination = examine(case)
    return msgspec.structs.replace(
        bare,
        divergences=divergences_of(examination, result.findings),
        forks=int(((case.forks >= 0) & case.comparable).sum()),
        compared=int(case.comparable.sum()),
        curves={
            name: curve
            for name, arm in (("on", case.on), ("null", case.null), ("off", case.off))
            if (curve := regret_curve(arm.regrets)) is not None
        },
        floor=examination.ceiling.floor,
        ceiling=examination.ceiling.value,
        acceptance=_acceptance(case),
        turns=_conversation_turns(observed) or _turns(case),
        speed=speed_of(case),
    )


def rounded(value: float) -> float:
    """Return a figure with six significant digits: more says nothing and fills the page."""
    return float(f"{value:.{SIGNIFICANT_DIGITS}g}")


def regret_curve(regrets: Floats) -> Curve | None:
    """Return how many tokens have at least each regret, at up to 48 points; None if unscored."""
    known = regrets[np.isfinite(regrets)]
    if known.size == 0:
        return None
    large = np.sort(known[known > SMALLEST_REGRET])[::-1]
    spread = np.geomspace(1, max(1, large.size), CURVE_POINTS).astype(int)
    ranks = np.unique(spread[: CURVE_POINTS if large.size else 0]).tolist()
    points = tuple((rounded(float(large[rank - 1])), rank) for rank in ranks)
    return Curve(scored=int(known.size), points=points)


def estimate_of(ratio: Ratio) -> Estimate:
    """Return a ratio as an estimate, without the interval where it is unbounded."""
    if not np.isfinite(ratio.error):
        return Estimate(rounded(ratio.value))
    return Estimate(rounded(ratio.value), rounded(ratio.low), rounded(ratio.high))


def acceptance_of(case: Case) -> dict[str, Estimate]:
    """Return a case's figures of acceptance, with the intervals that the judge uses."""
    level = 1.0 - case.settings.alpha / max(1, case.sweep_cells)
    ratios = acceptance_ratios(case, steps_of(case), level)
    return {name: estimate_of(ratio) for name, ratio in ratios.items()}


def _acceptance(case: Case) -> tuple[Rate, ...]:
    bands = {
        entry.metric: Expected(entry.low, entry.high)
        for entry in case.settings.expectations
        if entry.cell == case.cell.id
    }
    return tuple(
        Rate(
            name=name.removeprefix("acceptance/"),
            estimate=estimate,
            position=None if name in (LENGTH, RATE) else int(name.rpartition(".")[2]),
            expected=bands.get(name),
        )
        for name, estimate in acceptance_of(case).items()
    )


def _conversation_turns(observed: CellObservations) -> tuple[Turn, ...]:
    """Return reuse by turn of the conversations that were held, none where none were."""
    found: dict[int, dict[str, list[Observation]]] = {}
    for probe in observed.probes:
        if probe.kind != "conversation":
            continue
        for arm in ("on", "off"):
            for one in probe.answers(arm):
                turn = TURN.search(one.request)
                if turn is not None:
                    found.setdefault(int(turn[1]), {}).setdefault(arm, []).append(one)
    return tuple(
        Turn(
            turn=turn,
            requests=len(arms.get("off", [])),
            prompt_tokens=sum(one.prompt_tokens for one in arms.get("off", [])),
            cached_on=_sum_of_cached(arms.get("on", [])),
            cached_off=_sum_of_cached(arms.get("off", [])),
        )
        for turn, arms in sorted(found.items())
    )


def _turns(case: Case) -> tuple[Turn, ...]:
    """Return reuse by turn: the n-th request of each prompt, in the order they were sent."""
    order = np.argsort([one.started for one in case.off.observations], kind="stable")
    seen: dict[str, int] = {}
    turns: dict[int, list[int]] = {}
    for index in order.tolist():
        prompt = case.off.observations[index].prompt
        seen[prompt] = seen.get(prompt, 0) + 1
        turns.setdefault(seen[prompt], []).append(index)
    return tuple(
        Turn(
            turn=turn,
            requests=len(indices),
            prompt_tokens=sum(case.off.observations[index].prompt_tokens for index in indices),
            cached_on=_cached(case.on, indices),
            cached_off=_cached(case.off, indices),
        )
        for turn, indices in sorted(turns.items())
    )


def _cached(answers: Answers, indices: list[int]) -> int | None:
    return _sum_of_cached([answers.observations[index] for index in indices])


def _sum_of_cached(observations: Sequence[Observation]) -> int | None:
    told = [one.cached_tokens for one in observations]
    known = [one for one in told if one is not None]
    return sum(known) if known else None
