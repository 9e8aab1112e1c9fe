"""From a results folder back to what the judge reads; judging again gives the same verdicts."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from matrixrun.evidence.errors import StoreError
from matrixrun.evidence.requests import Observation, PassRecord, ProbeRecords, Score
from matrixrun.evidence.verdicts import CellEvidence, CellResult, Verdict
from matrixrun.judge import (
    CellObservations,
    JudgeSettings,
    ProbeObserved,
    exit_code,
    judge_sweep,
)
from matrixrun.record.files import read_json
from matrixrun.record.store import Store
from matrixrun.workloads import Prompt

LEDGER = "ledger."


class Reader:
    """Reads the evidence of many cells; files that cells share are read and checked once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._observations = _kept(store.read_observations)
        self._scores = _kept(store.read_scores)
        self._ledgers = _kept(store.read_ledger)

    def cell(self, evidence: CellEvidence) -> CellObservations:
        """Load one cell's observations and scores.

        Raises:
            StoreError: a file is missing, damaged or was changed.
        """
        model = str(evidence.cell.axes["model"])
        records = evidence.records
        off = self._observed(records.get("off"))
        prompts = self._prompts(model) if records else {}
        return CellObservations(
            evidence=evidence,
            on=self._observed(records.get("on")),
            off=off,
            null=self._observed(records.get("null")),
            on_scores=self._scored(records.get("on.scores")),
            off_scores=self._scored(records.get("off.scores")),
            null_scores=self._scored(records.get("null.scores")),
            confirmations=self._scored(records.get("confirm")),
            probes=self._probes(evidence),
            ledgers={
                name.removeprefix(LEDGER): self._ledgers(record.path, record)
                for name, record in records.items()
                if name.startswith(LEDGER)
            },
            prompts={one.request: prompts[one.prompt].token_ids for one in off},
            answers={
                one.request: answer
                for one in off
                if (answer := prompts[one.prompt].answer) is not None
            },
        )

    def cells(self, evidences: Iterable[CellEvidence]) -> list[CellObservations]:
        """Load several cells."""
        return [self.cell(evidence) for evidence in evidences]

    def _probes(self, evidence: CellEvidence) -> tuple[ProbeObserved, ...]:
        by_kind: dict[str, list[ProbeRecords]] = {}
        for one in evidence.probes:
            by_kind.setdefault(one.kind, []).append(one)
        return tuple(
            ProbeObserved(
                kind=kind,
                compared=arms[0].compared,
                observations={
                    one.arm: tuple(seen for record in one.passes for seen in self._observed(record))
                    for one in arms
                },
                scores={
                    one.arm: tuple(score for record in one.scores for score in self._scored(record))
                    for one in arms
                },
                records={one.arm: one.passes for one in arms},
            )
            for kind, arms in by_kind.items()
        )

    def _observed(self, record: PassRecord | None) -> tuple[Observation, ...]:
        return () if record is None else self._observations(record.path, record)

    def _scored(self, record: PassRecord | None) -> tuple[Score, ...]:
        return () if record is None else self._scores(record.path, record)

    @functools.cache  # noqa: B019 (a reader lives as long as one judgement)
    def _prompts(self, model: str) -> dict[str, Prompt]:
        return {prompt.id: prompt for prompt in self._store.workload(model).prompts}


def _kept(
    read: Callable[[PassRecord], Iterable[Any]],
) -> Callable[[str, PassRecord], tuple[Any, ...]]:
    kept: dict[str, tuple[Any, ...]] = {}

    def reader(path: str, record: PassRecord) -> tuple[Any, ...]:
        if path not in kept:
            kept[path] = tuple(read(record))
        return kept[path]

    return reader


def judge_store(
    store: Store, settings: JudgeSettings, fingerprints: Iterable[str] | None = None
) -> tuple[CellResult, ...]:
    """Judge a results folder's evidence: all of it, or the cells with these fingerprints."""
    wanted = None if fingerprints is None else set(fingerprints)
    evidences = [e for e in store.evidences() if wanted is None or e.cell.fingerprint in wanted]
    return judge_sweep(Reader(store).cells(evidences), settings, final=True).results


def rejudge(
    store: Store, say: Callable[[str], None] | None = None
) -> tuple[tuple[CellResult, ...], int]:
    """Judge a finished sweep again with the settings it was run with, and keep the verdicts.

    Returns the results and the exit code; `say` is told of each stored verdict that they change.
    """
    with store.writing():
        results = judge_store(store, store.settings(JudgeSettings))
        if say is not None:
            for line in _changed(store, results):
                say(line)
        withdraw_if_changed(store, results)
        pending = store.pending()
        code = exit_code(results, complete=not pending)
        for result in results:
            store.write_result(result)
        store.write_summary(results, code, pending=pending)
    return results, code


def withdraw_if_changed(store: Store, results: Iterable[CellResult]) -> None:
    """Withdraw a sign-off that was made from other verdicts than these, which are to be stored."""
    try:
        same = _verdicts(results) == _verdicts(store.results())
    except StoreError:  # a damaged result is about to be written anew
        same = False
    if not same:
        store.withdraw_decision()


def require_judged(store: Store, settings: JudgeSettings, results: Iterable[CellResult]) -> None:
    """Judge again, and hold stored results to what comes of it.

    Raises:
        StoreError: the evidence gives another verdict than one of them.
    """
    if unsupported := unsupported_verdicts(results, judge_store(store, settings)):
        raise StoreError(
            f"{store.where}: {unsupported[0]}",
            remedy=f"`matrixrun judge {store.where}` judges what is there; then look again",
        )


def unsupported_verdicts(
    stored: Iterable[CellResult], judged: Iterable[CellResult]
) -> tuple[str, ...]:
    """Name the stored verdicts that their evidence, judged again, does not give."""
    found = _verdicts(judged)
    told = []
    for result in stored:
        gives = found.get(result.cell.id)
        if gives is not None and gives != (result.verdict, result.expected):
            stands = _words(result.verdict, result.expected)
            told.append(
                f"the stored verdict of {result.cell.id} is {stands}, its evidence gives"
                f" {_words(*gives)}"
            )
    return tuple(told)


def unsupported_summary(store: Store, judged: Iterable[CellResult]) -> tuple[str, ...]:
    """Name the verdicts in summary.json that the evidence does not give: others read that file."""
    path = store.root / "summary.json"
    if not path.exists():
        return ()
    try:
        stated = read_json(path, _Summary).cells
    except StoreError as error:
        return (str(error),)
    found = {result.cell.id: result.verdict for result in judged}
    return tuple(
        f"summary.json says of {one.id} {one.verdict}, its evidence gives {found[one.id]}"
        for one in stated
        if found.get(one.id, one.verdict) is not one.verdict
    )


class _Stated(msgspec.Struct, frozen=True):
    id: str
    verdict: Verdict


class _Summary(msgspec.Struct, frozen=True):
    """What is read of summary.json here."""

    cells: tuple[_Stated, ...] = ()


def _changed(store: Store, results: Iterable[CellResult]) -> tuple[str, ...]:
    try:
        stored = store.results()
    except StoreError as error:
        return (f"{error}; verdicts are written anew",)
    return tuple(f"{line}: changed" for line in unsupported_verdicts(stored, results))


def _words(verdict: Verdict, expected: bool) -> str:
    return f"{verdict}{' (expected)' if expected else ''}"


def _verdicts(results: Iterable[CellResult]) -> dict[str, tuple[Verdict, bool]]:
    return {one.cell.id: (one.verdict, one.expected) for one in results}
