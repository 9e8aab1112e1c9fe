"""The state probes through the driver: what is sent to which launch, kept and judged."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from doubles import LEDGER, Trouble, launches, matrix, new_store, sweep

from matrixrun.evidence.errors import StoreError
from matrixrun.evidence.launches import LaunchEnd
from matrixrun.evidence.verdicts import Severity, Verdict
from matrixrun.fanout import sweep as driver
from matrixrun.fanout.cluster import Node
from matrixrun.judge import settings_for
from matrixrun.matrix import expand
from matrixrun.plan import build
from matrixrun.record import Store
from matrixrun.record.replay import Reader, judge_store
from matrixrun.signoff.detail import detail_of

PROBES = ("equality", "acceptance", "conversation", "rollback", "pressure", "ledger")


def swept(folder: Path, trouble: Trouble) -> Store:
    """Return the results of a sweep of doubles with every state probe."""
    small = matrix()
    speculation = {"method": "ngram", "num_speculative_tokens": 2}
    grid = {**small.grid, "batch_size": 4, "speculation": speculation}
    made = small.model_copy(update={"probes": PROBES, "grid": grid})
    planned = build(made, expand(made, file="double.yaml"))
    kept = new_store(folder / "out")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driver, "RunningLaunch", launches(trouble, []))
        patch.setattr(driver.cluster, "nodes", lambda: [Node("n", 8, 0, None)])
        patch.setattr(driver.cluster, "free", lambda nodes, _: nodes)
        running = sweep(kept, planned)
        running.matrix = made
        running.__post_init__()
        asyncio.run(running.run())
    return kept


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return swept(tmp_path_factory.mktemp("state"), {})


def test_every_cell_holds_what_every_probe_saw(store) -> None:
    for evidence in store.evidences():
        cell = Reader(store).cell(evidence)
        seen = {probe.kind: probe for probe in cell.probes}
        assert set(seen) == {"conversation", "rollback", "pressure", "ledger"}
        assert seen.pop("ledger").answers("on")
        for probe in seen.values():
            assert all(probe.answers(arm) for arm in ("on", "off", "null"))
            assert all(probe.scores[arm] for arm in ("on", "off", "null"))


def test_each_extra_launch_answers_its_own_probe_and_no_other(store) -> None:
    for evidence in store.evidences():
        assert {"on", "A", "forced", "traced"} == set(evidence.outcomes)
        extra = {"rollback": "forced", "ledger": "traced"}
        for probe in Reader(store).cell(evidence).probes:
            role = extra.get(probe.kind, "on")
            launch = evidence.outcomes[role].launch
            assert {record.launch for record in probe.records["on"]} == {launch}


def test_answers_alike_are_no_fault_and_what_never_happened_is_told(store) -> None:
    for result in judge_store(store, settings_for(matrix())):
        faults = [one for one in result.findings if one.severity is Severity.FAULT]
        assert {one.kind for one in faults} == {"ledger"}
        # The double reports no cached tokens, drops nothing and stops at no token.
        assert result.coverage["conversation.turns"] == 0
        assert result.coverage["pressure.requests_dropped"] == 0
        assert result.metrics["pressure.same/exact_match"] == 1.0


def test_ledgers_are_evidence_of_the_cell_and_a_broken_rule_fails_it(store) -> None:
    for evidence in store.evidences():
        cell = Reader(store).cell(evidence)
        assert set(cell.ledgers) == {"forced", "traced"}
        record = evidence.all_records()["ledger.traced"]
        assert (store.root / record.path).read_bytes() == LEDGER
    for result in judge_store(store, settings_for(matrix())):
        assert result.verdict is Verdict.FAIL
        assert "step 3 of the" in result.reason


def test_the_ledger_of_an_attempt_that_was_lost_is_no_evidence(store, tmp_path: Path) -> None:
    (evidence, *_) = store.evidences()
    lost = evidence.outcomes["traced"].launch
    again = swept(tmp_path, {lost: [LaunchEnd.LOST] * driver.ATTEMPTS})
    for evidence in again.evidences():
        assert evidence.outcomes["traced"].end is LaunchEnd.LOST
        assert set(Reader(again).cell(evidence).ledgers) == {"forced"}


def test_a_ledger_that_was_changed_is_told(store) -> None:
    (evidence, *_) = store.evidences()
    path = store.root / evidence.all_records()["ledger.traced"].path
    path.write_bytes(LEDGER + b"x")
    with pytest.raises(StoreError, match="was changed"):
        Reader(store).cell(evidence)
    path.write_bytes(LEDGER)


def test_the_report_shows_conversations_turn_by_turn(store) -> None:
    settings = settings_for(matrix())
    results = {result.cell.id: result for result in judge_store(store, settings)}
    for evidence in store.evidences():
        cell = Reader(store).cell(evidence)
        detail = detail_of(cell, results[evidence.cell.id], settings, 1)
        assert [turn.turn for turn in detail.turns] == [1, 2, 3, 4]
        # Four further conversations of two turns: the stand-in ends nothing but at its limit.
        assert [turn.requests for turn in detail.turns] == [12, 12, 8, 8]
        assert detail.coverage["pressure.border_prompts"] > 0
