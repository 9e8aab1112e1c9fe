"""Baselines, and SIGNED or NOT SIGNED with reasons."""

from __future__ import annotations

import datetime
import json
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from made_sweeps import (
    CRASHED,
    DRAFTED,
    FAULTY,
    HEALTHY,
    REFUSED,
    SHORT,
    Arm,
    grid,
    make_cell,
    make_store,
)

from matrixrun.cli import _main
from matrixrun.evidence.cells import Cell
from matrixrun.evidence.errors import MatrixError, UserError
from matrixrun.evidence.verdicts import Verdict
from matrixrun.record import read_expectations
from matrixrun.signoff import (
    Decision,
    Policy,
    SignoffOptions,
    accept,
    decide,
    levels_of,
    read_baseline,
    read_policy,
    sign_off,
    write_baseline,
)
from matrixrun.signoff.policy import reached

TODAY = datetime.date(2026, 6, 1)
SMALL, LARGE = make_cell(batch_size=1), make_cell(batch_size=8)
NEXT = "0.33.0"


def decided(
    folder: Path,
    new: list[tuple[Cell, Arm]],
    old: list[tuple[Cell, Arm]] | None = None,
    policy: str = "",
    **arguments: Any,
) -> Decision:
    """The decision on a sweep against another one, by a policy as a user writes it."""
    before = [(SMALL, HEALTHY), (LARGE, HEALTHY)] if old is None else old
    stores = [make_store(folder / name, arms) for name, arms in (("old", before), ("new", new))]
    path = folder / "policy.yaml"
    path.write_text(policy, encoding="utf-8")
    levels = [levels_of(store) for store in stores]
    return decide(levels[1], levels[0], read_policy(path), TODAY, **arguments)


# -- baselines -----------------------------------------------------------------------------------


def test_a_baseline_is_the_same_bytes_every_time(tmp_path: Path) -> None:
    store = make_store(tmp_path / "sweep", [(SMALL, HEALTHY), (LARGE, FAULTY)])

    assert accept(store) == accept(store)


def test_the_judge_reads_a_baseline_as_expectations(tmp_path: Path) -> None:
    store = make_store(tmp_path / "sweep", [(SMALL, HEALTHY), (LARGE, FAULTY)])

    expectations = read_expectations(write_baseline(tmp_path / "baseline.yaml", accept(store)))

    assert {entry.cell for entry in expectations} == {SMALL.id}
    length = next(e for e in expectations if e.metric == "acceptance/mean_acceptance_length")
    assert 1.0 < length.low < length.high < 4.0


def test_expectations_written_by_hand_are_read_as_before(tmp_path: Path) -> None:
    path = tmp_path / "expectations.yaml"
    path.write_text("a.b: {acceptance/mean_acceptance_length: [2, 3]}\n", encoding="utf-8")

    (entry,) = read_expectations(path)

    assert (entry.cell, entry.low, entry.high) == ("a.b", 2.0, 3.0)


def test_a_baseline_read_back_compares_as_its_sweep_does(tmp_path: Path) -> None:
    store = make_store(tmp_path / "sweep", [(SMALL, HEALTHY), (LARGE, REFUSED)])

    levels, read = (
        levels_of(store),
        read_baseline(write_baseline(tmp_path / "b.yaml", accept(store))),
    )

    assert read.cells == levels.cells
    assert read.name == levels.name


def test_a_sweep_that_was_cut_short_is_not_accepted(tmp_path: Path) -> None:
    store = make_store(tmp_path / "sweep", [(SMALL, HEALTHY), (LARGE, HEALTHY)])
    for name in ("evidence.json", "result.json"):
        (store.cell_folder(SMALL.id) / name).unlink()

    with pytest.raises(UserError, match="not complete"):
        accept(store)


@pytest.mark.parametrize("mark", [f"  {LARGE.id}:", "      speed/speedup:"])
def test_a_baseline_that_was_cut_short_is_refused(tmp_path: Path, mark: str) -> None:
    store = make_store(tmp_path / "sweep", [(SMALL, HEALTHY), (LARGE, HEALTHY)])
    text = accept(store)
    path = write_baseline(tmp_path / "cut.yaml", text[: text.rindex(mark)])

    for read in (read_baseline, read_expectations):
        with pytest.raises(UserError, match=r"cut\.yaml was cut short or edited"):
            read(path)


def test_a_baseline_that_does_not_say_what_was_written_is_read(tmp_path: Path) -> None:
    store = make_store(tmp_path / "sweep", [(SMALL, HEALTHY)])

    path = write_baseline(tmp_path / "old.yaml", unsealed(accept(store)))

    assert "written" not in path.read_text()
    assert read_baseline(path).cells == levels_of(store).cells


@pytest.mark.parametrize("place", ["expect", "figures"])
def test_a_reversed_interval_in_a_baseline_is_refused(tmp_path: Path, place: str) -> None:
    name = "acceptance/mean_acceptance_length"
    text = unsealed(accept(make_store(tmp_path / "sweep", [(SMALL, HEALTHY)])))
    content = yaml.safe_load(text)
    values = content["cells"][SMALL.id][place][name]
    values[-2:] = reversed(values[-2:])
    path = write_baseline(tmp_path / "reversed.yaml", yaml.safe_dump(content))

    with pytest.raises(UserError, match=rf"reversed\.yaml is damaged: {SMALL.id}: {name}"):
        read_baseline(path)


def unsealed(text: str) -> str:
    """A baseline as it was written before it said what was written."""
    return re.sub(r"^written: \{[^}]*\}\n", "", text, flags=re.MULTILINE)


@pytest.mark.parametrize(
    ("files", "what", "remedy"),
    [
        (["evidence.json"], "has a verdict, but its evidence is gone", "matrixrun run FILE"),
        (["result.json"], "has no verdict", "matrixrun judge SWEEP"),
        (["evidence.json", "result.json"], "has no verdict", "matrixrun run FILE"),
    ],
)
def test_a_cell_that_lost_a_file_is_neither_signed_nor_accepted(
    tmp_path: Path, files: list[str], what: str, remedy: str
) -> None:
    whole = make_store(tmp_path / "whole", [(SMALL, HEALTHY), (LARGE, HEALTHY)])
    store = make_store(tmp_path / "sweep", [(SMALL, HEALTHY), (LARGE, HEALTHY)])
    for name in files:
        (store.cell_folder(SMALL.id) / name).unlink()

    decision = decide(levels_of(store), levels_of(whole), Policy(), TODAY)

    (reason,) = decision.reasons
    assert f"{SMALL.id} {what}: `{remedy}" in reason
    assert [change.what for change in decision.changes if change.new is None] == [(what,)]
    with pytest.raises(UserError, match=what) as caught:
        accept(store)
    assert remedy in str(caught.value)
    with pytest.raises(UserError, match=what):
        sign_off(whole, SignoffOptions(against=str(store.root)), TODAY)


def test_of_several_cells_without_a_verdict_the_first_is_named(tmp_path: Path) -> None:
    store = make_store(tmp_path / "sweep", [(SMALL, HEALTHY), (LARGE, HEALTHY)])
    for cell in (SMALL, LARGE):
        (store.cell_folder(cell.id) / "evidence.json").unlink()

    with pytest.raises(UserError, match=r"is gone \(and 1 more such cell\)"):
        accept(store)


# -- decisions -----------------------------------------------------------------------------------


def test_the_same_again_is_signed(tmp_path: Path) -> None:
    found = decided(tmp_path, [(SMALL, HEALTHY), (LARGE, HEALTHY)])

    assert found.signed
    assert {change.direction for change in found.changes} == {"same"}


@pytest.mark.parametrize("arm", [FAULTY, CRASHED, SHORT, replace(HEALTHY, accept=None)])
def test_a_bad_verdict_is_not_signed(tmp_path: Path, arm: Arm) -> None:
    found = decided(tmp_path, [(SMALL, HEALTHY), (LARGE, arm)])

    assert not found.signed
    assert found.reasons[0].startswith(LARGE.id)
    assert found.changes[0].cell == LARGE.id
    assert found.changes[0].direction == "worse"


def test_a_new_refusal_is_not_signed_and_an_old_one_is(tmp_path: Path) -> None:
    refused = [(SMALL, HEALTHY), (LARGE, REFUSED)]

    new = decided(tmp_path / "a", refused)
    old = decided(tmp_path / "b", refused, refused)
    reported = decided(tmp_path / "c", refused, policy="new_refusals: report")

    assert "REFUSED where the baseline was not" in new.reasons[0]
    assert old.signed
    assert reported.signed


def test_a_cell_that_is_gone_is_not_signed(tmp_path: Path) -> None:
    found = decided(tmp_path, [(SMALL, HEALTHY)])

    assert found.reasons == (f"{LARGE.id}: in the baseline, but not in this sweep",)


def test_acceptance_outside_its_interval_is_not_signed(tmp_path: Path) -> None:
    found = decided(tmp_path, [(SMALL, HEALTHY), (LARGE, Arm(accept=0.3))])

    assert found.changes[0].cell == LARGE.id
    assert "mean acceptance length" in found.reasons[0]


def test_other_answers_of_the_off_arm_are_counted(tmp_path: Path) -> None:
    found = decided(tmp_path, [(SMALL, HEALTHY), (LARGE, Arm(off_tokens=1))])

    assert found.signed
    assert found.changes[0].what == ("the off arm's own answers changed in 40 of 40 requests",)


def test_a_loss_of_speed_blocks_where_the_policy_says_so(tmp_path: Path) -> None:
    old = [(SMALL, HEALTHY), (LARGE, Arm(slow=1.8))]
    new = [(SMALL, HEALTHY), (LARGE, Arm(slow=1.3))]

    free = decided(tmp_path / "a", new, old)
    bound = decided(tmp_path / "b", new, old, "slower_by: 0.1")
    within = decided(tmp_path / "c", new, old, "slower_by: 0.5")

    assert (free.signed, bound.signed, within.signed) == (True, False, True)
    assert "speedup 1.8" in bound.reasons[0]


def test_a_changed_draft_needs_approval_by_its_hash(tmp_path: Path) -> None:
    new = [(SMALL, HEALTHY), (LARGE, Arm(draft_hash="e" * 64))]

    bare = decided(tmp_path / "a", new)
    approved = decided(
        tmp_path / "b", new, policy="approve: [{sha256: eeeeeeee, reason: retrained}]"
    )

    assert f"the draft's content changed (dddddddd -> eeeeeeee) in {LARGE.id}:" in bare.reasons[0]
    assert approved.signed
    assert "retrained" in approved.accepted[0]


@pytest.mark.parametrize(
    ("sha256", "told"),
    [
        ("eeeeeeef", "matches no checkpoint of this sweep; did you mean eeeeeeee?"),
        ("0123456789", "matches no checkpoint of this sweep"),
        ("aaaaaaaa", "is not needed: no checkpoint changed to it"),
    ],
)
def test_an_approval_that_lets_nothing_through_is_said(
    tmp_path: Path, sha256: str, told: str
) -> None:
    new = [(SMALL, HEALTHY), (LARGE, Arm(draft_hash="e" * 64))]

    found = decided(tmp_path, new, policy=f'approve: [{{sha256: "{sha256}", reason: retrained}}]')

    assert not found.signed
    assert f"the approval of {sha256} (retrained) {told}" in found.notes


@pytest.mark.parametrize(
    ("name", "meant"), [("unexplained-tokens", "unexplained-token"), ("regert", "regret")]
)
def test_a_known_fault_that_no_witness_can_find_is_a_mistake(
    tmp_path: Path, name: str, meant: str
) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(KNOWN.replace("unexplained-token", name))

    with pytest.raises(MatrixError) as caught:
        read_policy(path)

    assert f"no fault is named `{name}`: did you mean `{meant}`?" in str(caught.value)


@pytest.mark.parametrize(("until", "signed"), [("2026-06-01", True), ("2026-05-31", False)])
def test_a_waiver_holds_to_its_last_day(tmp_path: Path, until: str, signed: bool) -> None:
    policy = f'waive: [{{cells: "*.b8", until: {until}, reason: unused here}}]'

    found = decided(tmp_path, [(SMALL, HEALTHY), (LARGE, FAULTY)], policy=policy)

    assert found.signed is signed
    assert bool(found.accepted) is signed
    assert any("ended on" in note for note in found.notes) is not signed


KNOWN = """
known_faults:
  - {when: {batch_size: 8}, finding: unexplained-token, link: "https://example.org/1",
     ends_in: "0.33", reason: KV of rejected tokens}
"""


def test_a_known_fault_does_not_block_before_its_version(tmp_path: Path) -> None:
    found = decided(tmp_path, [(SMALL, HEALTHY), (LARGE, FAULTY)], policy=KNOWN)

    assert found.signed
    assert "https://example.org/1" in found.accepted[0]


def test_a_known_fault_that_outlives_its_version_blocks(tmp_path: Path) -> None:
    new = [(SMALL, HEALTHY), (LARGE, replace(FAULTY, version=NEXT))]

    found = decided(tmp_path, new, policy=KNOWN)

    assert "should have ended in 0.33" in found.reasons[0]
    assert "engine: vllm 0.32.0 -> vllm 0.32.0, vllm 0.33.0" in found.notes


def test_a_known_fault_that_is_fixed_blocks_until_its_entry_is_removed(tmp_path: Path) -> None:
    found = decided(tmp_path, [(SMALL, HEALTHY), (LARGE, HEALTHY)], policy=KNOWN)

    assert not found.signed
    assert "is gone" in found.reasons[0]
    assert "remove" in found.reasons[0]


@pytest.mark.parametrize(
    "entry",
    [
        "waive: [{cells: WRONG, until: 2026-12-31, reason: x}]",
        "known_faults: [{cells: WRONG, reason: x, link: y, ends_in: '9'}]",
    ],
)
def test_a_misspelt_cell_in_a_policy_is_told_with_the_nearest_one(
    tmp_path: Path, entry: str
) -> None:
    wrong = SMALL.id.replace("ngram", "ngarm")
    found = decided(tmp_path, [(SMALL, HEALTHY)], policy=entry.replace("WRONG", wrong))

    assert any(
        f"{wrong} matches no cell of this sweep; did you mean {SMALL.id}?" in note
        for note in found.notes
    )


def test_another_fault_is_not_the_known_one(tmp_path: Path) -> None:
    found = decided(tmp_path, [(SMALL, HEALTHY), (LARGE, CRASHED)], policy=KNOWN)

    assert not found.signed


def test_old_and_new_engine_in_one_sweep_are_compared(tmp_path: Path) -> None:
    arms = [
        (make_cell(engine="old", batch_size=1), HEALTHY),
        (make_cell(engine="new", batch_size=1), replace(HEALTHY, version=NEXT)),
        (make_cell(engine="old", batch_size=8), HEALTHY),
        (make_cell(engine="new", batch_size=8), replace(FAULTY, version=NEXT)),
    ]
    store = make_store(tmp_path / "sweep", arms)
    levels = levels_of(store)

    found = decide(levels, levels, Policy(), TODAY, {"old": "new"})

    assert [change.cell for change in found.changes] == [
        make_cell(engine="new", batch_size=8).id,
        make_cell(engine="new", batch_size=1).id,
    ]
    assert (found.changes[0].old, found.changes[0].new) == (Verdict.PASS, Verdict.FAIL)
    assert len(found.reasons) == 1


def test_what_matters_most_comes_first(tmp_path: Path) -> None:
    cells = [make_cell(batch_size=size) for size in (1, 2, 4, 8, 16, 32)]
    now = [
        HEALTHY, Arm(off_tokens=1), Arm(accept=0.3), REFUSED, FAULTY, Arm(slow=0.4),
    ]  # fmt: skip

    found = decided(
        tmp_path, list(zip(cells, now, strict=True)), [(cell, HEALTHY) for cell in cells]
    )

    assert [change.cell for change in found.changes] == [
        cells[place].id for place in (4, 2, 3, 5, 1, 0)
    ]


def test_settings_that_bring_a_failure_on_are_named(tmp_path: Path) -> None:
    cells = grid(speculation=[DRAFTED, SMALL.axes["speculation"]], batch_size=[1, 8])
    broken = make_cell(speculation=DRAFTED, batch_size=8).id
    arms = [(cell, FAULTY if cell.id == broken else HEALTHY) for cell in cells]

    found = decided(tmp_path, arms, [(cell, HEALTHY) for cell in cells])

    assert found.causes[0].startswith("FAIL where batch_size=8 and speculation.method=draft_model")


# -- the policy file and the commands ------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("blok: [FAIL]", 1, "did you mean `block`"),
        ("block: [FAIL]\nblock: [ERROR]", 2, "block"),
        ("block: [BROKEN]", 1, "PASS"),
        ("waive:\n  - {until: 2026-01-01, reason: x}", 2, "names no cells"),
        ("waive:\n  - {cells: a, until: soon, reason: x}", 2, "until"),
        ("waive:\n  - {when: {batch: 8}, until: 2026-01-01, reason: x}", 2, "unknown axis `batch`"),
        ("known_faults:\n  - {cells: a, reason: x, ends_in: '1'}", 2, "link"),
        ("slower_by: 2", 1, "less than 1"),
        ("- a", 1, "not a mapping"),
    ],
)
def test_mistakes_in_a_policy_name_file_line_and_key(
    tmp_path: Path, text: str, line: int, words: str
) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text(text, encoding="utf-8")

    with pytest.raises(MatrixError) as caught:
        read_policy(path)

    assert str(caught.value).startswith(f"{path}:{line}:")
    assert words in str(caught.value)


def test_all_mistakes_in_a_policy_are_told_at_once(tmp_path: Path) -> None:
    path = tmp_path / "policy.yaml"
    path.write_text("block: [BROKEN]\nslower_by: 2\napprove: [{sha256: AB, reason: x}]\n")

    with pytest.raises(MatrixError) as caught:
        read_policy(path)

    told = [line for line in str(caught.value).splitlines() if line.startswith(str(path))]
    assert [line.split(": ")[1] for line in told] == ["block[0]", "slower_by", "approve[0].sha256"]
    assert "at least 8 characters" in told[2]


@pytest.mark.parametrize(
    ("version", "limit", "there"),
    [
        ("0.33.0", "0.33", True), ("0.33.0rc1", "0.33", False), ("0.9.2", "0.10", False),
        ("b5000", "b4999", True), ("b998", "b4999", False), ("0.33.1.dev3+gabc", "0.33", True),
        ("2026.10.11549", "2026.9", True), ("2026.10.11549", "b4999", None), ("b9", "2026.9", None),
    ],
)  # fmt: skip
def test_versions_are_compared_as_versions(version: str, limit: str, there: bool | None) -> None:
    assert reached(version, limit) is there


def test_a_decision_is_kept_with_the_sweep_and_shown_in_its_report(tmp_path: Path) -> None:
    make_store(tmp_path / "old", [(SMALL, HEALTHY)])
    store = make_store(tmp_path / "new", [(SMALL, FAULTY)])

    sign_off(store, SignoffOptions(against=str(tmp_path / "old")), TODAY)

    kept = json.loads((store.root / "signoff.json").read_text())
    assert kept["signed"] is False
    assert "# ✗ NOT SIGNED: 1 reason" in (store.root / "signoff.md").read_text()
    assert '"signed":false' in (store.root / "report.html").read_text()


def run(monkeypatch: pytest.MonkeyPatch, *words: object) -> int:
    monkeypatch.setattr("sys.argv", ["matrixrun", *map(str, words)])
    return _main()


def test_exit_codes_of_the_commands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good, bad, file = tmp_path / "good", tmp_path / "bad", tmp_path / "baseline.yaml"
    make_store(good, [(SMALL, HEALTHY)])
    make_store(bad, [(SMALL, FAULTY)])

    assert run(monkeypatch, "baseline", "accept", good, "--out", file) == 0
    assert run(monkeypatch, "signoff", good, "--against", file) == 0
    assert run(monkeypatch, "signoff", bad, "--against", file) == 1
    assert "NOT SIGNED: 1 reason" in capsys.readouterr().out
    assert run(monkeypatch, "signoff", bad, "--against", tmp_path / "none.yaml") == 4
    assert run(monkeypatch, "signoff", bad, "--against", file, "--upgrade", "vllm") == 4
    assert run(monkeypatch, "signoff", bad, "--against", file, "--upgrade", "old=new") == 4
    assert run(monkeypatch, "report", bad, "--junit", tmp_path / "junit.xml") == 0
    assert (bad / "report.html").exists()
    assert (tmp_path / "junit.xml").exists()
    assert run(monkeypatch, "report", tmp_path / "nowhere") == 4
    capsys.readouterr()
