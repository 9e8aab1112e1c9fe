"""MLflow shows what the results folder holds: once, whole, and never instead of it."""

from __future__ import annotations

import shutil
import socket
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from small_sweeps import FINDING, make_cell, make_result, make_store, run_cell

from matrixrun.evidence.errors import TrackingError
from matrixrun.evidence.launches import LaunchEnd, LaunchOutcome
from matrixrun.evidence.verdicts import CellResult, Verdict
from matrixrun.record import Store, SweepState, Tracking
from matrixrun.record.artifacts import command_line
from matrixrun.record.masking import mask
from matrixrun.record.runs import cell_run, metric_name, shorten
from matrixrun.record.tracking import default_uri


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database with MLflow's tables, which take seconds to make."""
    path = tmp_path_factory.mktemp("mlflow") / "mlflow.db"
    from mlflow import MlflowClient

    MlflowClient(f"sqlite:///{path}").search_experiments()
    return path


@pytest.fixture
def uri(empty_database: Path, tmp_path: Path) -> str:
    """A tracking URI of its own for each test."""
    return f"sqlite:///{shutil.copy(empty_database, tmp_path / 'mlflow.db')}"


def runs(uri: str, experiment: str = "small") -> list[Any]:
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    found = client.get_experiment_by_name(experiment)
    assert found is not None
    return list(client.search_runs([found.experiment_id], order_by=["tags.verdict"]))


def cell_runs(uri: str) -> list[Any]:
    return [run for run in runs(uri) if run.data.tags["matrixrun.kind"] == "cell"]


def artifacts(uri: str, run: Any) -> set[str]:
    root = Path(run.info.artifact_uri)
    return {p.relative_to(root).as_posix() for p in root.rglob("*") if p.is_file()}


def record(store: Store, *results: CellResult) -> None:
    for result in results:
        run_cell(store, result.cell)
        store.write_result(result)


FAILED = make_result(make_cell(1), Verdict.FAIL, findings=(FINDING,), reason="one wrong token")
PASSED = make_result(make_cell(8), coverage={"rejections": 5})


def test_cells_are_flat_runs_beside_one_of_the_sweep(store: Store, uri: str) -> None:
    record(store, FAILED, PASSED)
    tracking = Tracking(uri, "small")
    tracking.start(store)
    assert [run.info.status for run in runs(uri)] == ["RUNNING"]
    tracking.log_cell(store, FAILED)
    store.write_summary([FAILED, PASSED], 1)
    store.set_state(SweepState.COMPLETE, exit_code=1)
    assert tracking.sync(store) == 2

    failed, passed = cell_runs(uri)
    assert failed.info.run_name == "✗ FAIL ngram-k4 b1 tiny-dense vllm"
    assert (failed.info.status, passed.info.status) == ("FAILED", "FINISHED")
    assert failed.data.params["spec.method"] == "ngram"
    assert failed.data.params["batch"] == "1"
    assert failed.data.tags["verdict"] == "FAIL"
    assert failed.data.tags["fingerprint"] == FAILED.cell.fingerprint
    assert failed.data.tags["sweep"] == store.info.id
    assert failed.data.tags["faults"] == "unexplained-token"
    assert "4.2 nats" in failed.data.tags["mlflow.note.content"]
    assert passed.data.metrics["same/exact_match.on"] == 1.0
    assert passed.data.metrics["coverage/rejections"] == 5
    assert artifacts(uri, failed) == {
        "result.json",
        "evidence.json",
        "observations/on.parquet",
        "observations/off.parquet",
        "launches/on.command.sh",
        "launches/on.log",
        "launches/A.command.sh",
        "launches/A.log",
    }
    (summary,) = [run for run in runs(uri) if run.data.tags["matrixrun.kind"] == "sweep"]
    assert summary.info.status == "FAILED"
    assert summary.data.metrics["cells/FAIL"] == 1
    assert "summary.json" in artifacts(uri, summary)
    assert not any("mlflow.parentRunId" in run.data.tags for run in runs(uri))


def test_sending_again_adds_nothing_even_without_the_ledger(store: Store, uri: str) -> None:
    record(store, FAILED, PASSED)
    Tracking(uri, "small").sync(store)
    before = [(r.info.run_id, r.data.metrics, r.data.tags, r.info.end_time) for r in runs(uri)]
    Tracking(uri, "small").sync(store)
    (store.root / "mlflow.json").unlink()
    Tracking(uri, "small").sync(store)
    after = [(r.info.run_id, r.data.metrics, r.data.tags, r.info.end_time) for r in runs(uri)]
    assert after == before
    assert len(after) == 3


def test_the_end_of_a_sweep_waits_a_bounded_time_and_sync_sends_the_rest(
    store: Store, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The worst verdicts first, and how far it is is told meanwhile."""
    clock = SteppedClock()
    monkeypatch.setattr("matrixrun.record.tracking.time", clock)
    record(store, PASSED, FAILED)
    tracking, said = Tracking(uri, "small"), []
    with pytest.raises(TrackingError, match="1 of 2 cells after 15 s"):
        tracking.sync(store, most_seconds=15, say=said.append)
    assert [run.data.tags["verdict"] for run in cell_runs(uri)] == ["FAIL"]
    assert said == ["MLflow has 1 of 2 cells"]
    assert len(runs(uri)) == 2  # the sweep's own run too
    assert tracking.sync(store) == 2
    assert len(cell_runs(uri)) == 2


class SteppedClock:
    """A clock that goes on by ten seconds whenever it is looked at."""

    def __init__(self) -> None:
        self._now = 0.0

    def monotonic(self) -> float:
        self._now += 10
        return self._now


def test_a_second_judgement_changes_the_run_it_had(store: Store, uri: str) -> None:
    record(store, make_result(make_cell(), metrics={"regret/max.on": 9.0, "gone": 1.0}))
    Tracking(uri, "small").sync(store)
    (first,) = cell_runs(uri)
    again = make_result(make_cell(), Verdict.INCONCLUSIVE, metrics={"regret/max.on": 1.0})
    store.write_result(again)
    Tracking(uri, "small").sync(store)
    (second,) = cell_runs(uri)
    assert second.info.run_id == first.info.run_id
    assert second.info.run_name.startswith("? INCONCLUSIVE")
    assert second.info.status == "KILLED"
    assert second.data.metrics["regret/max.on"] == 1.0  # though 9.0 was larger
    assert second.data.metrics["gone"] != 1.0
    assert '"INCONCLUSIVE"' in (Path(second.info.artifact_uri) / "result.json").read_text()


def test_a_run_that_was_left_half_sent_is_completed(
    store: Store, uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from mlflow import MlflowClient

    record(store, PASSED)
    with monkeypatch.context() as patch:
        patch.setattr(MlflowClient, "log_artifacts", lambda *_: (_ for _ in ()).throw(OSError(28)))
        with pytest.raises(TrackingError):
            Tracking(uri, "small").sync(store)
    assert [run.info.status for run in cell_runs(uri)] == ["RUNNING"]
    Tracking(uri, "small").sync(store)
    (run,) = cell_runs(uri)
    assert run.info.status == "FINISHED"
    assert "evidence.json" in artifacts(uri, run)


def test_a_run_deleted_by_hand_is_sent_anew(store: Store, uri: str) -> None:
    from mlflow import MlflowClient

    record(store, PASSED)
    Tracking(uri, "small").sync(store)
    MlflowClient(uri).delete_run(cell_runs(uri)[0].info.run_id)
    Tracking(uri, "small").sync(store)
    assert len(cell_runs(uri)) == 1


def test_two_sweeps_of_a_matrix_share_an_experiment(tmp_path: Path, uri: str) -> None:
    for name in ("one", "two"):
        store = make_store(tmp_path / name)
        record(store, PASSED)
        Tracking(uri, "small").sync(store)
    assert len(cell_runs(uri)) == 2
    assert len({run.data.tags["sweep"] for run in runs(uri)}) == 2


def test_another_server_has_a_ledger_of_its_own(store: Store, uri: str, tmp_path: Path) -> None:
    record(store, PASSED)
    Tracking(uri, "small").sync(store)
    other = f"sqlite:///{shutil.copy(tmp_path / 'mlflow.db', tmp_path / 'other.db')}"
    Tracking(other, "elsewhere").sync(store)
    assert len(runs(other, "elsewhere")) == 2
    assert len(runs(uri)) == 2


def test_the_experiment_keeps_a_view_of_the_sweep(store: Store, uri: str) -> None:
    from mlflow import MlflowClient

    record(store, FAILED, PASSED)
    tracking = Tracking(uri, "small")
    assert tracking.where() == f"mlflow ui --backend-store-uri {uri}"
    tracking.sync(store)
    experiment = MlflowClient(uri).get_experiment_by_name("small")
    view = msgspec.json.decode(experiment.tags[f"mlflow.sharedViewState.{store.info.id}"])
    assert view["orderByKey"] == "tags.`verdict`"
    assert store.info.id in view["searchFilter"]
    assert "params.`batch`" in view["selectedColumns"]  # differs between the cells
    assert "params.`engine`" not in view["selectedColumns"]
    assert "metrics.`same/exact_match.on`" in view["selectedColumns"]
    page = f"/#/experiments/{experiment.experiment_id}/runs?viewStateShareKey={store.info.id}"
    assert tracking.where().endswith(page)


def test_a_private_sweep_sends_no_engine_log(tmp_path: Path, uri: str) -> None:
    store = make_store(tmp_path / "sweep", store_text=False)
    record(store, PASSED)
    Tracking(uri, "small").sync(store)
    assert not any(path.endswith(".log") for path in artifacts(uri, cell_runs(uri)[0]))


def test_a_server_that_is_away_costs_seconds_and_no_results(store: Store) -> None:
    record(store, PASSED)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        port = taken.getsockname()[1]
        tracking = Tracking(f"http://someone:hunter2@127.0.0.1:{port}", "small")
        began = time.monotonic()
        with pytest.raises(TrackingError, match="matrixrun sync") as failure:
            tracking.log_cell(store, PASSED)
        assert time.monotonic() - began < 30
        began = time.monotonic()
        with pytest.raises(TrackingError):
            tracking.log_cell(store, PASSED)
        assert time.monotonic() - began < 1
    assert "hunter2" not in str(failure.value)
    assert f"***@127.0.0.1:{port}" in str(failure.value)
    assert "hunter2" not in tracking.where()
    assert store.results() == (PASSED,)


def test_a_lost_file_is_named_and_does_not_look_like_a_fault_of_the_server(
    store: Store, uri: str
) -> None:
    record(store, PASSED)
    evidence = store.evidence(PASSED.cell.id)
    assert evidence is not None
    (store.root / evidence.records["on"].path).unlink()
    with pytest.raises(TrackingError, match=r"not up to date: .*b8-\w+\.parquet is missing"):
        Tracking(uri, "small").sync(store)


def test_a_deleted_experiment_is_explained(store: Store, uri: str) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    number = client.create_experiment("small")
    client.delete_experiment(number)
    with pytest.raises(TrackingError, match=f"restore --experiment-id {number}"):
        Tracking(uri, "small").start(store)


def test_sqlite_in_the_working_folder_is_the_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    assert Tracking(None, "small").uri == default_uri() == f"sqlite:///{tmp_path}/mlflow.db"
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://tracking")
    assert Tracking(None, "small").uri == "http://tracking"
    assert Tracking("http://given", "small").uri == "http://given"


def test_long_texts_are_cut_where_it_can_be_seen(store: Store) -> None:
    assert shorten("short", 8000) == "short"
    content = cell_run(make_result(make_cell(), reason="x" * 20_000), None, store.info)
    note = content.tags["mlflow.note.content"]
    assert len(note) == 8000
    assert note.endswith("the whole text is in the artifacts and in the results folder")


def test_a_cells_run_says_which_engine_ran_in_each_arm(tmp_path: Path, store: Store) -> None:
    evidence = run_cell(store, make_cell())
    ran = {
        role: msgspec.structs.replace(evidence.outcomes[name], facts=facts)
        for role, name, facts in (
            ("on", "on", {"engine": "llamacpp", "version": "2026.10.11549"}),
            ("A", "on", {"engine": "llamacpp", "version": "2026.9.11000"}),
            ("B", "on", {"engine": "llamacpp", "version": "1"}),
        )
    }
    evidence = msgspec.structs.replace(evidence, outcomes=ran)
    shown = cell_run(make_result(make_cell()), evidence, store.info).params
    assert shown["engine.on"] == "llamacpp 2026.10.11549"
    assert shown["engine.off"] == "llamacpp 2026.9.11000"


def test_metric_names_and_values_are_ones_that_mlflow_takes(store: Store) -> None:
    assert metric_name("acceptance/rate@1 (p%).on") == "acceptance/rate_1 _p__.on"
    result = make_result(
        make_cell(), metrics={"a/b": float("nan"), "c/d": float("inf"), "e/f": 1 / 3}
    )
    content = cell_run(result, None, store.info)
    assert content.metrics.keys() == {"e/f", "findings/faults", "findings/notices"}
    assert content.metrics["e/f"] == 0.333333
    assert "`a/b` is nan, `c/d` is inf" in content.tags["mlflow.note.content"]


def test_secrets_are_masked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_TOKEN", "t0p-secret")
    shown = mask("postgresql://me:pw@db/x?password=abc said t0p-secret")
    assert shown == "postgresql://***@db/x?password=*** said ***"
    outcome = LaunchOutcome(
        launch="on.x",
        fingerprint="f",
        end=LaunchEnd.SERVED,
        argv=("$PYTHON", "serve", "--a b"),
        env={"HF_TOKEN": "hf_abc", "OMP_NUM_THREADS": "1"},
    )
    line = command_line(outcome)
    assert "HF_TOKEN='***'" in line or "HF_TOKEN=***" in line
    assert "hf_abc" not in line
    assert "OMP_NUM_THREADS=1" in line
    assert "$PYTHON serve '--a b'" in line
