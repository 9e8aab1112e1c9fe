"""The report: what it holds, and what it never lets in."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from made_sweeps import (
    CRASHED,
    DRAFTED,
    FAULTY,
    HEALTHY,
    REFUSED,
    Arm,
    Made,
    grid,
    make_cell,
    make_store,
)

from matrixrun.evidence.cells import Speculation
from matrixrun.judge import Expectation, JudgeSettings
from matrixrun.matrix.covering import cover
from matrixrun.record import Store
from matrixrun.record.grid import lay_out
from matrixrun.signoff import build_page, write_report

EVIL = "</script><!--<script>alert(1)//\u2028 &amp; \ud7ff"


def data_of(path: Path) -> dict[str, object]:
    """The JSON that a report carries, by the id of its script element."""
    found = re.findall(
        r'<script type="application/json" id="([^"]+)">(.*?)</script>',
        path.read_text(encoding="utf-8"),
        re.DOTALL,
    )
    return {name: json.loads(text) for name, text in found}


def test_the_report_is_one_file_in_the_results_folder(tmp_path: Path) -> None:
    store = make_store(tmp_path / "sweep", [(make_cell(), HEALTHY)])

    path = write_report(store)

    assert path == store.root / "report.html"
    text = path.read_text(encoding="utf-8")
    assert not re.findall(r'(?:src|href)="(?!#)', text)
    assert "default-src 'none'" in text


def test_nothing_that_a_model_or_an_engine_wrote_can_end_the_script(tmp_path: Path) -> None:
    arms = [
        (make_cell(batch_size=1), Arm(text=EVIL)),
        (make_cell(batch_size=2), replace(FAULTY, text=EVIL)),
        (make_cell(batch_size=4), replace(CRASHED, words=EVIL)),
    ]
    path = write_report(make_store(tmp_path / "sweep", arms))

    text = path.read_text(encoding="utf-8")
    assert text.count("</script>") == text.count("<script")
    assert "alert(1)" not in re.sub(r"<script.*?</script>|<pre>.*?</pre>", "", text, flags=re.S)
    assert EVIL[:20] in json.dumps(data_of(path)["cell-1"])


def test_a_cell_shows_the_tokens_at_its_divergences_with_probabilities(tmp_path: Path) -> None:
    page = build_page(make_store(tmp_path / "sweep", [(make_cell(), FAULTY)]))

    (detail,) = page.details
    first = detail.divergences[0]
    here = first.position - first.start

    assert detail.forks == 5
    assert [site.named for site in detail.divergences] == [True, True, True, False, False]
    assert first.gap == pytest.approx(4.0, abs=1e-3)
    assert first.on.tokens[here] != first.off.tokens[here] == first.null.tokens[here]
    assert first.on.tokens[:here] == first.off.tokens[:here]
    assert first.off.top[0].token == first.off.tokens[here]
    assert 0 < first.off.top[1].probability < first.off.top[0].probability < 1
    assert first.shared_text is not None
    assert first.on.text != first.off.text


def test_without_stored_texts_the_token_ids_remain_and_no_log_is_shown(tmp_path: Path) -> None:
    arms = [(make_cell(batch_size=1), FAULTY), (make_cell(batch_size=2), CRASHED)]
    page = build_page(make_store(tmp_path / "sweep", arms, store_text=False))

    by_id = {row.id: detail for row, detail in zip(page.rows, page.details, strict=True)}
    site = by_id[make_cell(batch_size=1).id].divergences[0]
    assert site.on.tokens
    assert site.shared_text is None
    assert all(launch.log == "" for launch in page.launches.values())


def test_acceptance_stands_beside_the_band_that_is_expected(tmp_path: Path) -> None:
    cell = make_cell()
    metric = "acceptance/rate.position.0"
    band = Expectation(cell=cell.id, metric=metric, low=0.5, high=0.7)
    settings = JudgeSettings(detect_rate=0.1, expectations=(band,))
    page = build_page(make_store(tmp_path / "sweep", [(cell, HEALTHY)], settings=settings))

    rates = {rate.name: rate for rate in page.details[0].acceptance}

    assert rates["rate.position.0"].expected is not None
    assert rates["rate.position.1"].expected is None
    estimate = rates["rate.position.0"].estimate
    assert estimate.low < estimate.value < estimate.high


def test_regret_of_the_on_arm_stands_against_the_controls(tmp_path: Path) -> None:
    page = build_page(make_store(tmp_path / "sweep", [(make_cell(), FAULTY)]))

    curves = page.details[0].curves

    assert curves["on"].points[0] == (4.0, 1)
    assert curves["on"].points[-1][1] == 5
    assert curves["null"].points == ()
    assert curves["on"].scored == curves["null"].scored == 960


def test_launches_are_shown_with_command_versions_and_hashes(tmp_path: Path) -> None:
    page = build_page(make_store(tmp_path / "sweep", [(make_cell(), HEALTHY)]))

    launches = page.details[0].launches
    on, off = (page.launches[launches[role]] for role in ("on", "A"))
    assert "--speculative-config" in on.command
    assert "--speculative-config" not in off.command
    assert on.facts["version"] == "0.32.0"
    assert on.checkpoints["draft"] == "d" * 64
    assert page.head.engines == ("vllm 0.32.0",)


def test_cells_that_are_missing_excluded_or_cut_short_are_named(tmp_path: Path) -> None:
    cells = [make_cell(batch_size=1), make_cell(batch_size=2), make_cell(batch_size=4)]
    store = make_store(tmp_path / "sweep", [(c, HEALTHY) for c in cells])
    for name in ("evidence.json", "result.json"):
        (store.cell_folder(cells[0].id) / name).unlink()

    page = build_page(Store.open(store.root))

    assert page.pending == (cells[0].id,)
    assert page.head.exit_code == 2


def test_a_sweep_that_has_only_begun_is_incomplete(tmp_path: Path) -> None:
    store = make_store(tmp_path / "sweep", [(make_cell(), HEALTHY)])
    for name in ("evidence.json", "result.json"):
        (store.cell_folder(make_cell().id) / name).unlink()

    head = build_page(Store.open(write_report(store).parent)).head

    assert (head.exit_code, head.exit_text) == (2, "interrupted or incomplete")


def test_a_damaged_pass_costs_its_cell_the_evidence_and_the_report_nothing(tmp_path: Path) -> None:
    arms = [(make_cell(batch_size=1), HEALTHY), (make_cell(batch_size=2), FAULTY)]
    store = make_store(tmp_path / "sweep", arms)
    evidence = store.evidence(arms[0][0].id)
    assert evidence is not None
    (store.root / evidence.records["on"].path).write_bytes(b"cut short")

    page = build_page(store)

    by_id = {row.id: detail for row, detail in zip(page.rows, page.details, strict=True)}
    assert "damaged or was changed" in (by_id[arms[0][0].id].missing or "")
    said: list[str] = []
    write_report(store, say=said.append)
    assert [line.partition(":")[0] for line in said] == [f"no evidence for {arms[0][0].id}"]
    assert "damaged or was changed" in said[0]
    assert by_id[arms[1][0].id].divergences


def test_a_verdict_whose_evidence_is_gone_is_told(tmp_path: Path) -> None:
    store = make_store(tmp_path / "sweep", [(make_cell(), HEALTHY)])
    (store.cell_folder(make_cell().id) / "evidence.json").unlink()

    said: list[str] = []
    write_report(store, say=said.append)

    (line,) = said
    assert line.startswith(f"no evidence for {make_cell().id}: its evidence is gone")
    assert "`matrixrun run FILE --results FOLDER`" in line


def test_expected_verdicts_and_refusals_are_told_apart(tmp_path: Path) -> None:
    arms = [(make_cell(speculation=DRAFTED), REFUSED), (make_cell(), HEALTHY)]
    page = build_page(Made(tmp_path / "sweep", arms).write())

    assert [row.verdict for row in page.rows] == ["REFUSED", "PASS"]
    assert page.localised[0].text.startswith("REFUSED where speculation.method=draft_model")


def covering_sweep(root: Path) -> Store:
    """A sweep of all pairs of three axes; the one cell with tp2 and a draft model crashed."""
    axes = {
        "tensor_parallel_size": [1, 2],
        "batch_size": [1, 2, 4],
        "speculation": [Speculation(method="ngram", num_speculative_tokens=3), DRAFTED],
    }
    cells = grid(**axes)
    places, held = cover([cell.axes for cell in cells], [], axes, 2)
    chosen = [cells[place] for place in places]
    bad = [c for c in chosen if c.axes["tensor_parallel_size"] == 2]
    crashed = {cell.id for cell in bad if cell.axes["speculation"] == DRAFTED}
    arms = [(cell, CRASHED if cell.id in crashed else HEALTHY) for cell in chosen]
    return make_store(root, arms, plan={"interactions": held})


def test_a_covering_sweep_says_which_combinations_came_to_a_verdict(tmp_path: Path) -> None:
    store = covering_sweep(tmp_path / "sweep")

    found = build_page(store).covered
    assert found is not None
    together = {one.axes: one for one in found.interactions}
    pair = together["tensor_parallel_size", "speculation"]
    assert (pair.planned, pair.decided) == (4, 3)
    assert pair.open == ("tp2 with draft_model-k3",)
    assert found.planned == 16
    assert found.decided < found.planned
    assert "strength 2" in found.lines[0]


def test_a_sweep_of_the_full_grid_says_nothing_of_combinations(tmp_path: Path) -> None:
    assert build_page(make_store(tmp_path / "sweep", [(make_cell(), HEALTHY)])).covered is None


def speculations(folder: Path) -> Store:
    """k2, k4 and n-gram k2; with k4 many answers differ at near ties."""
    drafts = [
        Speculation(method="draft_model", num_speculative_tokens=k, draft="draft") for k in (2, 4)
    ]
    kinds = [*drafts, Speculation(method="ngram", num_speculative_tokens=2)]
    arms = [(make_cell(speculation=one), HEALTHY) for one in kinds]
    arms[1] = (arms[1][0], replace(HEALTHY, ties=20))
    return make_store(folder, arms)


def test_a_cell_with_notices_is_marked_with_their_kinds(tmp_path: Path) -> None:
    rows = build_page(speculations(tmp_path / "sweep")).rows

    noted = {row.id: (row.notices, row.noticed) for row in rows if row.notices}
    assert noted == {"vllm.tiny-dense.draft_model-k4.b8": (1, ("numerics-changed",))}


def test_columns_are_ordered_as_on_the_terminal(tmp_path: Path) -> None:
    store = speculations(tmp_path / "sweep")

    (axis,) = build_page(store).axes

    assert axis.values == lay_out(store.results()).columns
    assert axis.values == ("draft_model-k2", "draft_model-k4", "ngram-k2")
