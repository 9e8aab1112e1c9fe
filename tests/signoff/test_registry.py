"""The sign-off in MLflow's model registry, by MLflow itself on a database file."""

from __future__ import annotations

import datetime
from dataclasses import replace
from pathlib import Path

import pytest
from made_sweeps import DRAFTED, FAULTY, HEALTHY, Arm, make_cell, make_store
from mlflow import MlflowClient

from matrixrun.evidence.errors import TrackingError
from matrixrun.record import Store, Tracking
from matrixrun.signoff import SignoffOptions, sign_off
from matrixrun.signoff.registry import record

TODAY = datetime.date(2026, 6, 1)


def signed(folder: Path, uri: str, arm: Arm, name: str) -> tuple[Store, object]:
    """A sweep of one model with and without a draft, in MLflow, decided on and recorded."""
    cells = [make_cell(batch_size=1), make_cell(batch_size=1, speculation=DRAFTED)]
    if not (folder / "old").exists():
        make_store(folder / "old", [(cell, HEALTHY) for cell in cells])
    store = make_store(folder / name, [(cell, arm) for cell in cells])
    Tracking(uri, "made").sync(store)
    decision = sign_off(store, SignoffOptions(against=str(folder / "old")), TODAY)
    return store, record(store, decision, "ada", uri)


def test_the_last_signed_version_is_the_approved_one(tmp_path: Path) -> None:
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"

    good, _ = signed(tmp_path, uri, replace(HEALTHY, version="0.33.0"), "good")
    bad, told = signed(tmp_path, uri, FAULTY, "bad")

    client = MlflowClient(uri)
    assert [one.model for one in told] == ["tiny-dense", "tiny-dense + draft"]  # type: ignore
    approved = client.get_model_version_by_alias("tiny-dense + draft", "approved")
    assert approved.tags["sweep"] == good.info.id
    assert approved.tags["engine"] == "vllm 0.33.0"
    assert approved.tags["signed_by"] == "ada"
    versions = client.search_model_versions("name = 'tiny-dense'")
    assert {one.tags["sweep"]: one.tags["signed"] for one in versions} == {
        good.info.id: "yes",
        bad.info.id: "no",
    }
    run = client.get_run(approved.run_id)
    assert run.data.tags["signed"] == "yes"
    assert {"report.html", "signoff.json"} <= {
        a.path for a in client.list_artifacts(run.info.run_id)
    }

    again = record(good, sign_off(good, SignoffOptions(against=str(bad.root)), TODAY), "bo", uri)
    assert len(client.search_model_versions("name = 'tiny-dense'")) == 2
    assert client.get_model_version("tiny-dense", again[0].version).tags["signed_by"] == "bo"


def test_a_sweep_that_mlflow_does_not_hold_cannot_be_recorded(tmp_path: Path) -> None:
    old, store = (make_store(tmp_path / n, [(make_cell(), HEALTHY)]) for n in ("old", "sweep"))
    decision = sign_off(store, SignoffOptions(against=str(old.root)), TODAY)

    with pytest.raises(TrackingError, match="does not hold sweep"):
        record(store, decision, "ada", f"sqlite:///{tmp_path / 'mlflow.db'}")
