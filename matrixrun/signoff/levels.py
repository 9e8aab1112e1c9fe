"""What a sweep showed, cell by cell, in the few figures that are compared from one to the next."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from matrixrun.evidence.cells import Cell
from matrixrun.evidence.launches import LaunchOutcome
from matrixrun.evidence.requests import Observation
from matrixrun.evidence.verdicts import UNMEASURED, CellEvidence, CellResult, Verdict
from matrixrun.judge import CellObservations, JudgeSettings
from matrixrun.judge.case import Case, build_case
from matrixrun.matrix import fingerprint
from matrixrun.record import Store
from matrixrun.record.replay import Reader, require_judged
from matrixrun.signoff.detail import acceptance_of
from matrixrun.signoff.estimates import Estimate, Speed, speed_of
from matrixrun.signoff.page import PlanView, settings_of

SIGNIFICANT_DIGITS = 4
ACCEPTANCE_LENGTH = "acceptance/mean_acceptance_length"
SPEEDUP = "speed/speedup"
# Figures of the judge that are kept as they are.
KEPT = (
    "same/exact_match.on",
    "same/exact_match.null",
    "regret/max.on",
    "regret/max.null",
    "regret/mean.on",
)


class CellLevels(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One cell. `engine` is kind and version as the engine reports them; `target` and `draft` are
    content hashes; `workload` the prompts' hash; `off_answers` a hash over the off arm's tokens.
    Figures are [value] or [value, low, high]."""

    verdict: Verdict
    reason: str = ""
    expected: bool = False
    engine: str = ""
    target: str = ""
    draft: str = ""
    workload: str = ""
    off_answers: str = ""
    figures: dict[str, tuple[float, ...]] = {}

    def estimate(self, name: str) -> Estimate | None:
        """Return a figure with its interval, None where there is none."""
        found = self.figures.get(name)
        return None if found is None else Estimate(*found)


class Pending(msgspec.Struct, frozen=True):
    """A cell that nothing can be said of: what it lacks, and what gives it that."""

    cell: str
    what: str
    remedy: str


class SweepLevels(msgspec.Struct, frozen=True, kw_only=True):
    """A sweep in figures: `cells` by id; `pending` are cells without a verdict, or without the
    evidence for theirs; `judging` is the fingerprint of what the judge was asked. `results` and
    `off` (the off arm's tokens by cell and request) are there for sweeps, not for files."""

    name: str
    cells: dict[str, CellLevels]
    pending: tuple[Pending, ...] = ()
    judging: str = ""
    results: tuple[CellResult, ...] = ()
    off: Mapping[str, Mapping[str, bytes]] = {}


def levels_of(store: Store) -> SweepLevels:
    """Read a sweep's figures from its results folder.

    Raises:
        StoreError: evidence is missing or damaged, or gives another verdict than the one stored.
    """
    settings, reader = settings_of(store), Reader(store)
    plan = store.planned(PlanView)
    wanted = {cell.fingerprint for cell in plan.cells}
    judged = [r for r in store.results() if not wanted or r.cell.fingerprint in wanted]
    require_judged(store, settings, judged)
    evidences = {evidence.cell.id: evidence for evidence in store.evidences()}
    # What a verdict says cannot be compared, nor checked, once its evidence is gone.
    results = [result for result in judged if result.cell.id in evidences]
    cells: dict[str, CellLevels] = {}
    off: dict[str, dict[str, bytes]] = {}
    for result in results:
        name = result.cell.id
        evidence = evidences[name]
        observed = None
        if {"on", "off"} <= set(evidence.records):
            observed = reader.cell(evidence)
            off[name] = _tokens(observed.off)
        cells[name] = cell_levels(result, evidence, observed, settings, len(results))
    return SweepLevels(
        name=store.info.id,
        cells=cells,
        pending=_pending(plan.cells, judged, evidences),
        judging=fingerprint(msgspec.structs.replace(settings, expectations=())),
        results=tuple(results),
        off=off,
    )


def cell_levels(
    result: CellResult,
    evidence: CellEvidence | None,
    observed: CellObservations | None,
    settings: JudgeSettings,
    sweep_cells: int,
) -> CellLevels:
    """Return one cell's figures; without observations only what became of it."""
    outcomes = {} if evidence is None else evidence.outcomes
    on = outcomes.get("on")
    levels = CellLevels(
        verdict=result.verdict,
        reason="" if result.verdict is Verdict.PASS else result.reason,
        expected=result.expected,
        engine=_engine(outcomes.values()),
        target=next((t for o in outcomes.values() if (t := o.checkpoints.get("target"))), ""),
        draft=on.checkpoints.get("draft", "") if on is not None else "",
        workload=evidence.workload_sha256 if evidence is not None else "",
    )  # fmt: skip
    if observed is None:
        return levels
    case = build_case(observed, settings, sweep_cells)
    return msgspec.structs.replace(
        levels,
        off_answers=_digest(_tokens(observed.off)),
        figures=_figures(case, result),
    )


def _figures(case: Case, result: CellResult) -> dict[str, tuple[float, ...]]:
    found = {name: Estimate(result.metrics[name]) for name in KEPT if name in result.metrics}
    if case.requests:
        found |= acceptance_of(case) | _speed(speed_of(case))
    for arm in ("on", "off"):
        cached, prompt = (
            result.metrics.get(f"reuse/{n}_tokens.{arm}") for n in ("cached", "prompt")
        )
        if cached is not None and prompt:
            found[f"reuse/cached_share.{arm}"] = Estimate(cached / prompt)
    return {name: _rounded(found[name]) for name in sorted(found)}


def _speed(speed: Speed) -> dict[str, Estimate]:
    found: dict[str, Estimate | None] = {SPEEDUP: speed.speedup}
    for arm, one in (("on", speed.on), ("off", speed.off)):
        found[f"speed/first_token_seconds.{arm}"] = one.first_token_seconds
        found[f"speed/seconds_per_output_token.{arm}"] = one.seconds_per_output_token
        if one.tokens_per_second is not None:
            found[f"speed/tokens_per_second.{arm}"] = Estimate(one.tokens_per_second)
    return {name: estimate for name, estimate in found.items() if estimate is not None}


def _rounded(estimate: Estimate) -> tuple[float, ...]:
    values = [estimate.value]
    if estimate.low is not None and estimate.high is not None:
        values += [estimate.low, estimate.high]
    return tuple(float(f"{value:.{SIGNIFICANT_DIGITS}g}") for value in values)


def _engine(outcomes: Iterable[LaunchOutcome]) -> str:
    for outcome in outcomes:
        if outcome.facts.get("version"):
            return f"{outcome.facts.get('engine', '')} {outcome.facts['version']}".strip()
    return ""


def _tokens(answers: Sequence[Observation]) -> dict[str, bytes]:
    return {one.request: one.token_ids.tobytes() for one in answers}


def _digest(tokens: Mapping[str, bytes]) -> str:
    digest = hashlib.sha256()
    for request in sorted(tokens):
        digest.update(f"{request} {len(tokens[request])}\n".encode())
        digest.update(tokens[request])
    return digest.hexdigest()


def pending_words(pending: Sequence[Pending]) -> str:
    """Return a sentence on cells that nothing can be said of: the first one, and how many more."""
    first, more = pending[0], len(pending) - 1
    others = f" (and {more} more such {'cell' if more == 1 else 'cells'})" if more else ""
    return f"{first.cell} {first.what}{others}"


def unmeasured_words(verdicts: Sequence[Verdict]) -> str:
    """Say that no cell was measured; "" where one was. Of refusals and crashes nothing follows for
    outputs."""
    if not verdicts or not UNMEASURED.issuperset(verdicts):
        return ""
    ended = " or ".join(sorted(f"is {verdict}" for verdict in set(verdicts)))
    return f"nothing was measured: every cell {ended}"


def _pending(
    cells: Sequence[Cell], judged: Sequence[CellResult], evidences: Mapping[str, CellEvidence]
) -> tuple[Pending, ...]:
    verdicts = {result.cell.id for result in judged}
    names = dict.fromkeys([*(cell.id for cell in cells), *sorted(verdicts)])
    return tuple(
        _lacking(name, name in verdicts, name in evidences)
        for name in names
        if name not in verdicts or name not in evidences
    )


def _lacking(cell: str, has_verdict: bool, has_evidence: bool) -> Pending:
    if has_evidence:
        return Pending(cell, "has no verdict", "`matrixrun judge SWEEP` judges it by its evidence")
    what = "has a verdict, but its evidence is gone" if has_verdict else "has no verdict"
    return Pending(cell, what, "`matrixrun run FILE --results FOLDER` runs it again")
