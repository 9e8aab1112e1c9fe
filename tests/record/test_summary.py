"""summary.json holds what programs rely on; summary.md says it in words."""

from __future__ import annotations

import json

from small_sweeps import FINDING, make_cell, make_result

from matrixrun.evidence.verdicts import Verdict
from matrixrun.record import Store, summary_markdown
from matrixrun.record.grid import fit, lay_out

RESULTS = (
    make_result(make_cell(8)),
    make_result(make_cell(1), Verdict.FAIL, findings=(FINDING,), reason="one wrong token"),
    make_result(make_cell(1, method="mtp"), Verdict.REFUSED, expected=True, reason="no head"),
)


def test_summary_json_has_the_documented_keys(store: Store) -> None:
    store.write_summary(RESULTS, 1, pending=("later",))
    content = json.loads((store.root / "summary.json").read_text())
    assert content["sweep"] == store.info.id
    assert content["exit_code"] == 1
    assert content["pending"] == ["later"]
    failed = content["cells"][1]
    assert failed["id"] == "vllm.tiny-dense.ngram-k4.b1"
    assert failed["axes"]["batch_size"] == 1
    assert failed["axes"]["speculation"]["num_speculative_tokens"] == 4
    assert failed["verdict"] == "FAIL"
    assert failed["reason"] == "one wrong token"
    assert failed["expected"] is False
    assert failed["fingerprint"] == make_cell(1).fingerprint
    assert failed["metrics"]["same/exact_match.on"] == 1.0
    (finding,) = failed["findings"]
    assert finding == {
        "kind": "unexplained-token",
        "severity": "fault",
        "text": FINDING.text,
        "numbers": {"position": 17, "regret": 4.2},
    }


def test_summary_md_shows_the_matrix_and_the_findings() -> None:
    text = summary_markdown(RESULTS, "small-1", 1, pending=("later",))
    assert "4 cells: 1 FAIL, 1 REFUSED, 1 PASS, 1 without a verdict" in text
    assert "Exit code 1: a FAIL or an ERROR." in text
    assert "| verdict | ✗ FAIL | ✓ PASS | - REFUSED* |" in text
    assert "- fault `unexplained-token`: request p3" in text
    assert text.index("## vllm.tiny-dense.ngram-k4.b1") < text.index("mtp-k4.b1\n")
    assert "- later" in text


def test_the_grid_puts_configurations_down_and_speculation_across() -> None:
    cells = [make_cell(b, tensor_parallel_size=tp) for tp in (1, 2) for b in (1, 8)]
    grid = lay_out([make_result(cell) for cell in cells[:3]])
    assert grid.constant == "vllm tiny-dense ngram-k4"
    assert grid.columns == ("b1", "b8")
    assert [row for row, _ in grid.rows] == ["default", "tp2"]
    assert grid.rows[1][1][1] is None


def test_batch_sizes_are_ordered_as_numbers_wherever_results_come_from() -> None:
    grid = lay_out([make_result(make_cell(b)) for b in (1, 16, 8)])
    assert grid.columns == ("b1", "b8", "b16")


def test_a_wide_grid_is_split_or_turned_to_fit() -> None:
    results = [make_result(make_cell(b, k)) for k in range(1, 9) for b in (1, 8)]
    assert lay_out(results).split(40) != [list(range(16))]
    turned = fit(results, 40)
    assert turned.columns == ("b1", "b8")
    assert len(turned.rows) == 8
    assert turned.split(40) == [[0, 1]]
    assert fit(results, 400).rows[0][0] == "verdict"


def test_an_empty_sweep_has_a_summary_too() -> None:
    assert "nothing ran" in summary_markdown((), "small-1", 5)
