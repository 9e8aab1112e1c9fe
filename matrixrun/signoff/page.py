"""A sweep's results folder as the data of one page: a light index, and a detail a cell."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from matrixrun.evidence.cells import Cell, Excluded
from matrixrun.evidence.errors import StoreError
from matrixrun.evidence.launches import LaunchOutcome
from matrixrun.evidence.verdicts import (
    UNMEASURED,
    CellEvidence,
    CellResult,
    Severity,
    Verdict,
    exit_text,
)
from matrixrun.judge import JudgeSettings, exit_code
from matrixrun.matrix import Interactions
from matrixrun.record import Store, SweepState
from matrixrun.record.artifacts import command_line
from matrixrun.record.grid import ORDER
from matrixrun.record.naming import labels, varying
from matrixrun.record.replay import (
    Reader,
    judge_store,
    unsupported_summary,
    unsupported_verdicts,
)
from matrixrun.signoff.axes import Axis, axes_of, axis_word
from matrixrun.signoff.causes import Group, Localised, groups, localised
from matrixrun.signoff.detail import CellDetail, bare_detail, detail_of, rounded
from matrixrun.signoff.estimates import Speed
from matrixrun.signoff.interactions import Covered, covered
from matrixrun.signoff.narrow import read_follow_up, sentence

LOG_LINES = 40
UNSUPPORTED = "verdicts are not supported by their evidence"
# Figures that the matrix can show in place of the verdict, by the metric's name.
FIGURES = {
    "exact": "same/exact_match.on",
    "exact_null": "same/exact_match.null",
    "length": "acceptance/mean_acceptance_length",
    "regret": "regret/max.on",
    "regret_null": "regret/max.null",
    "visible": "power/visible_fault_rate",
}


class Row(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A cell in lists and matrices; `at` holds the place of its value on each varying axis,
    `noticed` the kinds of its notices (why a verdict is expected or a launch ended is none)."""

    id: str
    verdict: Verdict
    reason: str
    at: tuple[int, ...]
    expected: bool = False
    faults: int = 0
    notices: int = 0
    noticed: tuple[str, ...] = ()
    figures: dict[str, float] = {}
    speed: Speed = Speed()


class LaunchView(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A launch as a reader starts it again: command, versions, hardware, how it ended."""

    role: str
    command: str
    end: str
    facts: dict[str, Any] = {}
    hardware: dict[str, Any] = {}
    checkpoints: dict[str, str] = {}
    ready_seconds: float | None = None
    attempts: int = 1
    log: str = ""


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """What the page says of the sweep as a whole. `constant` names the axes that do not vary;
    `damage` says which verdicts their evidence does not give, since it is damaged or gone or they
    were changed: then `exit_code` is 2."""

    sweep: str
    name: str
    created: str
    finished: str | None
    state: str
    program: str
    matrix_sha256: str
    exit_code: int
    exit_text: str
    damage: tuple[str, ...]
    engines: tuple[str, ...]
    hardware: tuple[str, ...]
    constant: str
    control: str
    stores_text: bool
    notes: tuple[str, ...]
    confidence: float | None
    claim: str


class Page(msgspec.Struct, frozen=True, kw_only=True):
    """All that one report shows. `details` are in the order of `rows`."""

    head: Head
    axes: tuple[Axis, ...]
    rows: tuple[Row, ...]
    localised: tuple[Localised, ...]
    narrowed: tuple[tuple[Verdict, str], ...]
    groups: tuple[Group, ...]
    pending: tuple[str, ...]
    excluded: tuple[tuple[str, str], ...]
    covered: Covered | None
    launches: dict[str, LaunchView]
    details: tuple[CellDetail, ...]


class PlanView(msgspec.Struct, frozen=True):
    """What is read of plan.json here."""

    cells: tuple[Cell, ...] = ()
    excluded: tuple[Excluded, ...] = ()
    notes: tuple[str, ...] = ()
    interactions: Interactions | None = None


def build_page(store: Store) -> Page:
    """Read a results folder into a page.

    A cell whose observations cannot be read is shown with the reason in their place.

    Raises:
        StoreError: the folder itself, its plan or a result cannot be read.
    """
    plan = store.planned(PlanView)
    # Of cells with the same verdict those with findings come first.
    stored = _planned(store.results(), plan)
    found = sorted(stored, key=lambda one: one.cell.id)
    found.sort(key=lambda one: not one.findings)
    results = sorted(found, key=lambda one: ORDER.index(one.verdict))
    done = {result.cell.id for result in results}
    pending = tuple(cell.id for cell in plan.cells if cell.id not in done)
    evidences = {evidence.cell.id: evidence for evidence in store.evidences()}
    details = tuple(_details(store, results, evidences))
    axes = axes_of([result.cell for result in stored])  # as on the terminal
    launches = _launches(store, evidences.values())
    return Page(
        head=_head(
            store, plan, results, pending, launches, damage=_damage(store, results, details)
        ),
        axes=axes,
        rows=tuple(_row(r, axes, d) for r, d in zip(results, details, strict=True)),
        localised=localised(results),
        narrowed=_narrowed(store),
        groups=groups(results),
        pending=pending,
        excluded=tuple((labels(one.axes), one.reason) for one in plan.excluded),
        covered=covered(plan.interactions, plan.cells, results),
        launches=launches,
        details=details,
    )


def settings_of(store: Store) -> JudgeSettings:
    """What the judge was asked; the defaults where the folder does not say."""
    if (store.root / "judging.json").exists():
        return store.settings(JudgeSettings)
    return JudgeSettings()


def _narrowed(store: Store) -> tuple[tuple[Verdict, str], ...]:
    """What further cells told of the failures, each with its verdict."""
    told = read_follow_up(store)
    return () if told is None else tuple((one.verdict, sentence(one)) for one in told.narrowed)


def _planned(results: Sequence[CellResult], plan: PlanView) -> list[CellResult]:
    """The results that the plan asks for: a resumed folder may hold others."""
    wanted = {cell.fingerprint for cell in plan.cells}
    return [result for result in results if not wanted or result.cell.fingerprint in wanted]


def _details(
    store: Store, results: Sequence[CellResult], evidences: dict[str, CellEvidence]
) -> Iterator[CellDetail]:
    reader, settings = Reader(store), settings_of(store)
    for result in results:
        evidence = evidences.get(result.cell.id)
        if evidence is None:
            lost = "its evidence is gone; `matrixrun run FILE --results FOLDER` runs it again"
            yield msgspec.structs.replace(bare_detail(result, None, lost), damaged=True)
            continue
        if "on" not in evidence.records or "off" not in evidence.records:
            yield bare_detail(result, evidence, "no answers of both arms: see how they ended")
            continue
        try:
            yield detail_of(reader.cell(evidence), result, settings, len(results))
        except StoreError as error:
            bare = bare_detail(result, evidence, str(error))
            yield msgspec.structs.replace(bare, damaged=True)


def _damage(
    store: Store, results: Sequence[CellResult], details: Sequence[CellDetail]
) -> tuple[str, ...]:
    """Say of which verdicts there is no evidence, or evidence that gives another one."""
    gone = tuple(
        f"no evidence for {result.cell.id}: {detail.missing}"
        for result, detail in zip(results, details, strict=True)
        if detail.damaged
    )
    if gone or store.info.state is SweepState.RUNNING:
        # A verdict depends on the whole sweep: of a part of it others may come.
        return gone
    try:
        judged = judge_store(store, settings_of(store))
    except StoreError as error:
        return (str(error),)
    return unsupported_verdicts(results, judged) + unsupported_summary(store, judged)


def _row(result: CellResult, axes: Sequence[Axis], detail: CellDetail) -> Row:
    words = [(axis, axis_word(axis.name, result.cell.axes[axis.name])) for axis in axes]
    faults = sum(finding.severity is Severity.FAULT for finding in result.findings)
    # What the verdict's own words say already is no further notice.
    told = {"expected-verdict"} if result.expected else set()
    told |= {"launch"} if result.verdict in UNMEASURED else set()
    notices = [
        finding.kind
        for finding in result.findings
        if finding.severity is Severity.NOTICE and finding.kind not in told
    ]
    found = {name: result.metrics.get(metric) for name, metric in FIGURES.items()}
    return Row(
        id=result.cell.id,
        verdict=result.verdict,
        reason=result.reason,
        at=tuple(axis.values.index(word) for axis, word in words),
        expected=result.expected,
        faults=faults,
        notices=len(notices),
        noticed=tuple(dict.fromkeys(notices)),
        figures={name: rounded(value) for name, value in found.items() if value is not None},
        speed=detail.speed,
    )


def _launches(store: Store, evidences: Any) -> dict[str, LaunchView]:
    views: dict[str, LaunchView] = {}
    for evidence in evidences:
        for role, outcome in evidence.outcomes.items():
            if outcome.launch and outcome.launch not in views:
                views[outcome.launch] = _launch(store, role, outcome)
    return views


def _launch(store: Store, role: str, outcome: LaunchOutcome) -> LaunchView:
    # An engine's log may quote prompts: where no text is stored none is shown.
    lines = outcome.log_tail.splitlines()[-LOG_LINES:] if store.info.store_text else []
    return LaunchView(
        role=role,
        command=command_line(outcome) if outcome.argv else "",
        end=outcome.end.value + (f": {outcome.message}" if outcome.message else ""),
        facts={k: v for k, v in outcome.facts.items() if v not in (None, "", [], {})},
        hardware=outcome.hardware,
        checkpoints=outcome.checkpoints,
        ready_seconds=outcome.ready_seconds,
        attempts=outcome.attempts,
        log="\n".join(lines),
    )


def _head(
    store: Store,
    plan: PlanView,
    results: Sequence[CellResult],
    pending: Sequence[str],
    launches: dict[str, LaunchView],
    *,
    damage: tuple[str, ...],
) -> Head:
    info, settings = store.info, settings_of(store)
    code = 2 if damage else exit_code(results, complete=not pending)
    cells = [result.cell for result in results]
    differing = varying(cells)
    constant = (
        labels(cells[0].axes, [a for a in cells[0].axes if a not in differing]) if cells else ""
    )
    confidences = [
        r.metrics["power/sweep_confidence"]
        for r in results
        if "power/sweep_confidence" in r.metrics
    ]
    return Head(
        sweep=info.id,
        name=info.matrix_name,
        created=info.created,
        finished=info.finished,
        state=info.state.value,
        program=info.program,
        matrix_sha256=info.matrix_sha256,
        exit_code=code,
        exit_text=UNSUPPORTED if damage else exit_text(code, results),
        damage=damage,
        engines=_distinct(f"{v.facts.get('engine')} {v.facts['version']}"
                          for v in launches.values() if v.facts.get("version")),
        hardware=_distinct(hardware_words(v.hardware) for v in launches.values()),
        constant=constant,
        control=settings.control,
        stores_text=info.store_text,
        notes=plan.notes,
        confidence=rounded(min(confidences)) if confidences else None,
        claim=(
            f"asked for: a fault in {settings.detect_rate:.3g} of requests, "
            f"at confidence {settings.detect_confidence:.3g}"
        ),
    )  # fmt: skip


def hardware_words(hardware: dict[str, Any]) -> str:
    """The machine in a few words: accelerators where there are any, else the processor."""
    accelerators = hardware.get("accelerators") or []
    if accelerators:
        names = _distinct(a.get("name", a) if isinstance(a, dict) else a for a in accelerators)
        return f"{len(accelerators)} x {', '.join(names)}"
    cpu = hardware.get("cpu")
    return f"{cpu}, {hardware.get('cores', '?')} cores" if cpu else ""


def _distinct(words: Any) -> tuple[str, ...]:
    return tuple(dict.fromkeys(str(word) for word in words if word))
