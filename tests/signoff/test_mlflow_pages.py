"""MLflow's own pages in a real browser: what a reviewer needs is on them."""

from __future__ import annotations

import datetime
import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest
from browser import Page, browser, installed
from made_sweeps import DRAFTED, FAULTY, HEALTHY, grid, make_store
from mlflow import MlflowClient
from ui_screenshots import served

from matrixrun.record import Store, Tracking
from matrixrun.record.view import view_page
from matrixrun.signoff import SignoffOptions, accept, sign_off, tag_baseline, write_plots
from matrixrun.signoff.registry import record

pytestmark = pytest.mark.skipif(
    installed() is None, reason="no Chromium is installed: apt-get install chromium"
)
MODEL = "tiny-dense + draft"
BROKEN = "vllm.tiny-dense.pc-on.draft_model-k3.b8"


class Site:
    """A tracking server that holds a signed sweep and the one after it, in which a cell fails;
    and a browser to look at it. Pictures are kept in the folder that MATRIXRUN_PICTURES names."""

    def __init__(self, address: str, page: Page, uri: str, sweep: Store) -> None:
        self.address, self.page, self.sweep = address, page, sweep
        self.client = MlflowClient(uri)
        self.experiment = self.client.get_experiment_by_name("made").experiment_id  # type: ignore[union-attr]
        tag = f"tags.sweep = '{sweep.info.id}'"
        found = self.client.search_runs([self.experiment], tag, order_by=["tags.verdict"])
        self.cells = [r for r in found if r.data.tags["matrixrun.kind"] == "cell"]
        (self.run,) = [r for r in found if r.data.tags["matrixrun.kind"] == "sweep"]

    def shows(self, path: str, *wanted: str, name: str, height: int = 1300) -> str:
        """Open a page, wait until it shows all that is wanted, and return what it says."""
        self.page.visit(self.address + path, 2600, height)
        try:
            for text in wanted:
                self.page.wait(f"document.body.innerText.includes({json.dumps(text)})")
        finally:
            if folder := os.environ.get("MATRIXRUN_PICTURES"):
                self.page.photograph(Path(folder) / f"{name}.png")
        return str(self.page.ask("document.body.innerText"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("mlflow")
    uri = f"sqlite:///{folder / 'mlflow.db'}"
    cells = grid(prefix_caching=[True, False], speculation=[DRAFTED], batch_size=[1, 8])
    older, old = (
        make_store(folder / name, [(cell, HEALTHY) for cell in cells]) for name in ("older", "old")
    )
    newer = replace(HEALTHY, version="0.33.0")
    arms = [(cell, FAULTY if cell.id == BROKEN else newer) for cell in cells]
    new = make_store(folder / "new", arms)
    for store in (old, new):
        write_plots(store)
        Tracking(uri, "made").sync(store)
    tag_baseline(old, accept(old), uri)
    for store, before in ((old, older), (new, old)):
        options = SignoffOptions(against=str(before.root))
        decision = sign_off(store, options, datetime.date(2026, 6, 1))
        record(store, decision, "ada", uri)
    with served(uri) as address, browser() as page:
        yield Site(address, page, uri, new)


def test_the_table_of_a_sweep_shows_verdicts_worst_first(site: Site) -> None:
    text = site.shows(
        view_page(site.experiment, site.sweep.info.id), "✗ FAIL", "✓ PASS", name="runs"
    )

    assert text.index("✗ FAIL") < text.index("✓ PASS")
    for column in ("verdict", "faults", "same/exact_match.on", "regret/max.on"):
        assert column in text


def test_the_comparison_shows_verdicts_settings_and_figures_side_by_side(site: Site) -> None:
    ids = quote(json.dumps([run.info.run_id for run in site.cells]))
    page = f"/#/compare-runs?runs={ids}&experiments={quote(json.dumps([site.experiment]))}"
    text = site.shows(
        page, "✗ FAIL", "prefix_cache", "acceptance/draft_acceptance", name="compare", height=2400
    )

    for wanted in ("✓ PASS", "batch", "spec.draft", "0.394"):
        assert wanted in text


def test_a_sweeps_description_is_the_table_of_its_verdicts(site: Site) -> None:
    page = f"/#/experiments/{site.experiment}/runs/{site.run.info.run_id}"
    text = site.shows(page, "4 cells: 1 FAIL, 3 PASS", "signed_by", name="sweep")

    assert site.page.ask("document.querySelectorAll('table td').length") >= 4
    assert "ada" in text


def test_a_cells_evidence_is_an_image_on_its_page(site: Site) -> None:
    worst = site.cells[0].info.run_id
    page = f"/#/experiments/{site.experiment}/runs/{worst}/artifacts/plots/evidence.png"
    site.shows(page, "evidence.png", name="evidence")

    site.page.wait(
        "[...document.images].some((one) => one.naturalWidth > 800 && one.naturalHeight > 300)"
        " || document.querySelector('[class*=image], canvas, [style*=blob]') !== null"
    )


def test_the_registered_model_shows_which_version_is_approved_and_which_is_not_signed(
    site: Site,
) -> None:
    text = site.shows(f"/#/models/{quote(MODEL)}", "Version 2", "approved", name="model")

    for wanted in ("Version 1", "✗ NOT SIGNED", "approved is version 1: vllm 0.32.0"):
        assert wanted in text
    assert str(site.client.get_model_version_by_alias(MODEL, "approved").version) == "1"


def test_a_version_says_who_signed_what_and_why_not(site: Site) -> None:
    text = site.shows(
        f"/#/models/{quote(MODEL)}/versions/2", "NOT SIGNED", "signed_by", name="version"
    )

    for wanted in ("ada", site.sweep.info.id, "vllm 0.33.0"):
        assert wanted in text


def test_the_accepted_baseline_is_found_by_its_tag(site: Site) -> None:
    found = site.client.search_runs([site.experiment], "tags.baseline = 'accepted'")

    assert len(found) == 5
    assert {len(run.data.tags["baseline_sha256"]) for run in found} == {64}
    assert site.run.info.run_id not in {run.info.run_id for run in found}
