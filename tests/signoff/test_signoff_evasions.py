"""What must not be signed, or not without a word: policies, baselines and folders that say less."""

from __future__ import annotations

import os
import re
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest
from made_sweeps import CRASHED, FAULTY, HEALTHY, IDLE, REFUSED, Made, make_cell, make_store
from test_signoff import LARGE, SMALL, TODAY, decided

from matrixrun.cli import _main
from matrixrun.evidence.errors import MatrixError, StoreError, UserError
from matrixrun.evidence.verdicts import Verdict
from matrixrun.judge import ExpectedVerdict, JudgeSettings
from matrixrun.record import Store
from matrixrun.record.files import write_bytes
from matrixrun.record.replay import rejudge
from matrixrun.signoff import (
    Policy,
    SignoffOptions,
    accept,
    build_page,
    decide,
    decision_text,
    levels_of,
    read_baseline,
    read_policy,
    sign_off,
    write_baseline,
)

CRASH_IS_KNOWN = """
known_faults:
  - {cells: "*", verdict: ERROR, link: "https://example.org/1", ends_in: "0.1", reason: crashes}
"""


def accepted(tmp_path: Path, store: Store) -> SignoffOptions:
    """A sign-off against the sweep's own baseline file."""
    return SignoffOptions(against=str(write_baseline(tmp_path / "own.yaml", accept(store))))


def baseline(tmp_path: Path, store: Store, *changes: tuple[str, str]) -> Path:
    """A baseline file as somebody has edited it, seal removed."""
    text = re.sub(r"^written:.*\n", "", accept(store), flags=re.M)
    for pattern, new in changes:
        assert re.search(pattern, text, flags=re.S)
        text = re.sub(pattern, new, text, flags=re.S)
    return write_baseline(tmp_path / "baseline.yaml", text)


def test_a_known_fault_of_an_engine_that_never_said_its_version_is_not_signed(
    tmp_path: Path,
) -> None:
    levels = levels_of(make_store(tmp_path / "sweep", [(SMALL, CRASHED)]))
    silent = msgspec.structs.replace(levels.cells[SMALL.id], engine="")
    levels = msgspec.structs.replace(levels, cells={SMALL.id: silent})
    (tmp_path / "policy.yaml").write_text(CRASH_IS_KNOWN)

    found = decide(levels, levels, read_policy(tmp_path / "policy.yaml"), TODAY)

    assert not found.signed
    assert any("never said which version" in one for one in found.reasons)


def test_what_a_policy_does_not_block_is_shown(tmp_path: Path) -> None:
    found = decided(tmp_path, [(SMALL, FAULTY), (LARGE, HEALTHY)], policy="block: []")

    assert found.signed
    assert any(one.startswith(f"FAIL is not in `block`: {SMALL.id}") for one in found.accepted)


def test_cells_that_may_be_missing_are_named_and_some_must_be_left(tmp_path: Path) -> None:
    policy = "missing_cells: report"

    some = decided(tmp_path / "some", [(SMALL, HEALTHY)], policy=policy)
    other = [(make_cell(batch_size=2), HEALTHY)]
    none = decided(tmp_path / "none", other, policy=policy)

    assert some.signed
    assert any(LARGE.id in one for one in some.accepted)
    assert not none.signed
    assert any("no cell in common" in one for one in none.reasons)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ((r"cells:\n.*", "cells: {}\n"), "no cells"),
        ((r"(acceptance/mean_acceptance_length): \[[^]]*\]\n", r"\1: [.nan]\n"), "mean_accept"),
    ],
)
def test_a_baseline_that_says_nothing_is_damaged(
    tmp_path: Path, change: tuple[str, str], words: str
) -> None:
    store = make_store(tmp_path / "sweep", [(SMALL, HEALTHY)])
    path = baseline(tmp_path, store, ("expect:.*?figures:", "figures:"), change)

    with pytest.raises(UserError, match=words):
        read_baseline(path)


def test_what_only_one_side_knows_is_said(tmp_path: Path) -> None:
    store = make_store(tmp_path / "sweep", [(SMALL, HEALTHY)])
    path = baseline(
        tmp_path, store, (r"target: \w+", "target: ''"), (r"figures:.*", "figures: {}\n")
    )

    decision = sign_off(store, SignoffOptions(against=str(path)), TODAY)

    told = " ".join(decision.changes[0].what)
    assert "the target's content is known on one side only" in told
    assert "mean acceptance length is known on one side only" in told


def test_a_draft_that_was_never_served_is_not_said_to_be_unknown(tmp_path: Path) -> None:
    path = baseline(tmp_path, make_store(tmp_path / "old", [(SMALL, HEALTHY)]))

    refused = make_store(tmp_path / "new", [(SMALL, REFUSED)])
    decision = sign_off(refused, SignoffOptions(against=str(path)), TODAY)

    (what,) = decision.changes[0].what
    assert what.startswith("PASS -> REFUSED")


def test_other_settings_of_the_judge_are_said(tmp_path: Path) -> None:
    store = make_store(tmp_path / "sweep", [(SMALL, HEALTHY)])
    path = baseline(tmp_path, store, (r"judging: \w+", "judging: 0123456789abcdef"))

    decision = sign_off(store, SignoffOptions(against=str(path)), TODAY)

    assert any("judged by other settings" in one for one in decision.notes)


def test_a_sweep_is_not_compared_with_itself(tmp_path: Path) -> None:
    store = make_store(tmp_path / "sweep", [(SMALL, HEALTHY)])

    with pytest.raises(UserError, match="compared with itself"):
        sign_off(store, SignoffOptions(against=str(store.root)), TODAY)


def test_a_sweep_against_the_baseline_that_it_became_is_said_to_be_that(tmp_path: Path) -> None:
    store = make_store(tmp_path / "sweep", [(SMALL, HEALTHY)])

    decision = sign_off(store, accepted(tmp_path, store), TODAY)

    assert decision.signed
    assert any("was written from" in one for one in decision.notes)


def test_a_sweep_of_refusals_alone_is_neither_accepted_nor_signed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    old = make_store(tmp_path / "old", [(SMALL, HEALTHY)])
    refused = make_store(tmp_path / "new", [(SMALL, REFUSED)])
    lenient = tmp_path / "policy.yaml"
    lenient.write_text("new_refusals: report")

    assert command(monkeypatch, "baseline", "accept", str(refused.root)) == 4
    assert "every cell is REFUSED" in capsys.readouterr().err
    options = SignoffOptions(against=str(old.root), policy=lenient)
    assert sign_off(refused, options, TODAY).reasons == (
        "nothing was measured: every cell is REFUSED",
    )
    page = (refused.root / "report.html").read_text()
    assert '"exit_code":5' in page
    assert "nothing against shipping" not in page


def test_what_was_compared_with_nothing_is_not_signed(tmp_path: Path) -> None:
    others = replace(HEALTHY, prompts=41)

    found = decided(tmp_path, [(SMALL, others), (LARGE, HEALTHY)], [(SMALL, HEALTHY)])

    (reason,) = found.reasons
    assert reason.startswith("nothing is compared with made-")
    assert any("other prompts were sent" in what for one in found.changes for what in one.what)


def test_a_cell_that_the_baseline_lacks_is_told_or_blocks(tmp_path: Path) -> None:
    new = [(SMALL, HEALTHY), (LARGE, HEALTHY)]

    told = decided(tmp_path / "a", new, [(SMALL, HEALTHY)])
    blocked = decided(tmp_path / "b", new, [(SMALL, HEALTHY)], policy="new_cells: block")

    assert told.signed
    assert any(one.startswith(f"{LARGE.id} is not in the baseline") for one in told.notes)
    assert blocked.reasons == (f"{LARGE.id}: not in the baseline",)


def test_a_verdict_that_its_evidence_does_not_give_is_not_believed(tmp_path: Path) -> None:
    store = make_store(tmp_path / "sweep", [(SMALL, FAULTY)])
    result = store.cell_folder(SMALL.id) / "result.json"
    result.write_text(result.read_text().replace('"verdict": "FAIL"', '"verdict": "PASS"'))

    with pytest.raises(StoreError, match="is PASS, its evidence gives FAIL"):
        levels_of(store)


@pytest.mark.parametrize("name", ["result.json", "summary.json"])
def test_a_report_does_not_show_a_verdict_that_was_edited_as_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    store = make_store(tmp_path / "sweep", [(SMALL, IDLE)])
    assert command(monkeypatch, "report", str(store.root)) == 0
    folder = store.cell_folder(SMALL.id) if name == "result.json" else store.root
    text = (folder / name).read_text()
    (folder / name).write_text(text.replace('"verdict": "INACTIVE"', '"verdict": "PASS"'))

    assert command(monkeypatch, "report", str(store.root)) == 2
    assert "PASS, its evidence gives INACTIVE" in capsys.readouterr().err
    head = build_page(store).head
    assert (head.exit_code, head.exit_text) == (2, "verdicts are not supported by their evidence")
    assert "its evidence gives INACTIVE" in (store.root / "report.html").read_text()

    assert command(monkeypatch, "judge", str(store.root)) == 6
    told = "is PASS, its evidence gives INACTIVE: changed" in capsys.readouterr().err
    assert told is (name == "result.json")
    assert command(monkeypatch, "report", str(store.root)) == 0


def test_a_report_on_damaged_evidence_is_written_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = make_store(tmp_path / "sweep", [(SMALL, HEALTHY)])
    evidence = store.evidence(SMALL.id)
    assert evidence is not None
    file = store.root / evidence.records["on"].path
    file.write_bytes(file.read_bytes()[:100])

    assert command(monkeypatch, "report", str(store.root)) == 2
    assert f"no evidence for {SMALL.id}" in capsys.readouterr().err
    assert '"exit_code":2' in (store.root / "report.html").read_text()


def test_a_decision_does_not_outlive_the_verdicts_it_was_made_from(tmp_path: Path) -> None:
    store = make_store(tmp_path / "sweep", [(SMALL, HEALTHY)])
    options = SignoffOptions(against=str(write_baseline(tmp_path / "b.yaml", accept(store))))
    sign_off(store, options, TODAY)
    assert (store.root / "signoff.json").exists()

    result = store.cell_folder(SMALL.id) / "result.json"
    result.write_text(result.read_text().replace('"verdict": "PASS"', '"verdict": "FAIL"'))
    with pytest.raises(StoreError):
        sign_off(store, options, TODAY)
    assert not (store.root / "signoff.json").exists()

    rejudge(store)
    sign_off(store, options, TODAY)
    result.write_text(result.read_text().replace('"verdict": "PASS"', '"verdict": "FAIL"'))
    rejudge(store)
    assert not (store.root / "signoff.json").exists()


def test_why_a_verdict_is_expected_is_shown_to_who_signs(tmp_path: Path) -> None:
    expect = ExpectedVerdict(when={"batch_size": 1}, verdict=Verdict.FAIL, reason="known to differ")
    settings = JudgeSettings(detect_rate=0.1, control="within-launch", expect=(expect,))
    store = Made(tmp_path / "sweep", [(SMALL, FAULTY)], settings=settings).write()

    decision = sign_off(store, accepted(tmp_path, store), TODAY)

    assert decision.signed
    assert any("FAIL is expected: known to differ" in one for one in decision.accepted)


@pytest.mark.parametrize(
    "text",
    [
        "block: [PASS]",
        'waive: [{cells: a, until: 2026-12-31, reason: " "}]',
        'known_faults: [{cells: a, verdict: PASS, link: l, ends_in: "1", reason: r}]',
    ],
)
def test_policies_that_mean_nothing_are_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(MatrixError):
        read_policy(path)


def test_nobody_signs_nothing(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command(monkeypatch, "signoff", "x", "--against", "y", "--by", " ") == 4
    assert "--by names nobody" in capsys.readouterr().err


def test_a_report_on_a_healthy_sweep_is_no_mistake(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = make_store(tmp_path / "sweep", [(SMALL, HEALTHY)])

    assert command(monkeypatch, "report", str(store.root), "--bundles", str(tmp_path / "b")) == 0
    assert "nothing to reproduce" in capsys.readouterr().err


def command(monkeypatch: pytest.MonkeyPatch, *words: str) -> int:
    monkeypatch.setattr("sys.argv", ["matrixrun", *words])
    return _main()


def test_what_is_no_regular_file_is_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(StoreError, match="no regular file"):
        write_bytes(pipe, b"x")
    assert pipe.is_fifo()


def test_a_slip_of_the_pen_leaves_the_last_decision(tmp_path: Path) -> None:
    store = make_store(tmp_path / "sweep", [(SMALL, HEALTHY)])
    sign_off(store, accepted(tmp_path, store), TODAY)

    with pytest.raises(UserError):
        sign_off(store, SignoffOptions(against=str(tmp_path / "basline.yaml")), TODAY)

    assert (store.root / "signoff.json").exists()


def test_a_damaged_result_is_judged_anew_and_takes_the_decision_with_it(tmp_path: Path) -> None:
    store = make_store(tmp_path / "sweep", [(SMALL, HEALTHY)])
    sign_off(store, accepted(tmp_path, store), TODAY)
    (store.cell_folder(SMALL.id) / "result.json").write_text("{")

    rejudge(store)

    assert [one.verdict for one in store.results()] == [Verdict.PASS]
    assert not (store.root / "signoff.json").exists()


def test_words_of_a_decision_name_settings_engines_and_cells_plainly_and_once(
    tmp_path: Path,
) -> None:
    policy = """
known_faults:
  - {when: {speculation: {method: ngram}}, link: l, ends_in: "9", reason: r}
"""
    new, old = [(SMALL, HEALTHY)], [(SMALL, HEALTHY), (LARGE, HEALTHY)]
    found = decided(tmp_path, new, old, policy=policy)

    assert any(
        one.startswith("known fault speculation.method=ngram (l) is gone") for one in found.reasons
    )
    assert decision_text(found).count(LARGE.id) == 1

    stores = [Store.open(tmp_path / name) for name in ("old", "new")]
    before, after = map(levels_of, stores)
    silent = {name: msgspec.structs.replace(one, engine="") for name, one in after.cells.items()}
    after = msgspec.structs.replace(after, cells=silent)
    notes = decide(after, before, Policy(), TODAY).notes
    assert "engine: vllm 0.32.0 -> not known (no launch said its version)" in notes
