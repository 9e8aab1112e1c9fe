"""`status` and `logs` of a results folder that is here ask nobody."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from small_sweeps import make_cell, make_store, run_cell

from matrixrun.cli import _main
from matrixrun.evidence.errors import UserError
from matrixrun.record import SweepState, Tracking
from matrixrun.record.files import require_place
from matrixrun.record.standing import here, standing_text


@pytest.fixture(autouse=True)
def nobody_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("a cluster was asked")

    monkeypatch.setattr("ray.job_submission.JobSubmissionClient", refuse)
    for name in ("RAY_API_SERVER_ADDRESS", "RAY_ADDRESS"):
        monkeypatch.delenv(name, raising=False)


def test_status_of_a_folder_says_where_its_sweep_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = make_store(tmp_path / "results" / "nightly")
    with store.writing():
        store.write_plan({"cells": [make_cell()]})
        assert "running" in standing_text(store.root).splitlines()[1].split()
    assert "its driver was killed" in standing_text(store.root)
    store.set_state(SweepState.INTERRUPTED, exit_code=2)
    monkeypatch.chdir(tmp_path)
    for reference in ("results/nightly", store.info.id):
        monkeypatch.setattr(sys, "argv", ["matrixrun", "status", reference])
        assert _main() == 0
        told = capsys.readouterr().out
        assert "interrupted" in told
        assert "0 of 1 judged" in told
        assert "exit 2" in told


def test_logs_of_a_folder_say_how_launches_ended_and_where_their_logs_lie(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = make_store(tmp_path / "sweep")
    evidence = run_cell(store, make_cell())
    launch = evidence.outcomes["on"].launch
    store.write_outcome(evidence.outcomes["on"])
    store.write_log(launch, b"INFO ready\n")
    monkeypatch.setattr(sys, "argv", ["matrixrun", "logs", str(store.root)])
    assert _main() == 0
    told = capsys.readouterr().out
    assert f"served   {launch}\n" in told
    assert str(store.launch_folder(launch) / "engine.log") in told


def test_a_cluster_that_is_named_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = make_store(tmp_path / "results" / "nightly")
    monkeypatch.chdir(tmp_path)
    assert here(str(store.root), "http://head:8265") is None
    assert here(store.info.id, None) is not None
    assert here("elsewhere", None) is None
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "http://head:8265")
    assert here(store.info.id, None) is None
    assert here(str(store.root), None) == store.root


@pytest.mark.parametrize(
    ("uri", "told"),
    [("nonsense://x", "known are: "), ("htpp://me:hunter22@mlflow:5000", "did you mean `http`?")],
)
def test_an_address_that_mlflow_has_no_store_for_is_told_at_once(uri: str, told: str) -> None:
    with pytest.raises(UserError) as caught:
        Tracking(uri, "small")
    assert told in str(caught.value.remedy)
    assert "hunter22" not in str(caught.value)


@pytest.mark.parametrize(
    "uri", ["sqlite:////x.db", "mysql+pymysql://db/x", "http://host", "databricks", "/folder"]
)
def test_addresses_that_mlflow_knows_are_taken(uri: str) -> None:
    assert Tracking(uri, "small").uri == uri


@pytest.mark.parametrize("command", ["status", "logs", "stop", "resume"])
def test_no_cluster_is_guessed_where_none_is_named(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["matrixrun", command, "nightly"])
    assert _main() == 4
    assert "give --address http://HEAD:8265, or set RAY_API_SERVER_ADDRESS" in (
        capsys.readouterr().err
    )
    monkeypatch.setattr(sys, "argv", ["matrixrun", command, "nightly", "--address", "banana"])
    assert _main() == 4
    assert "write http://HEAD:8265" in capsys.readouterr().err


@pytest.mark.parametrize("command", ["stop", "resume"])
def test_a_folder_that_is_here_has_no_job_to_stop_or_to_resume(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    command: str,
) -> None:
    store = make_store(tmp_path / "nightly")
    store.set_state(SweepState.COMPLETE, exit_code=0)
    monkeypatch.setattr(sys, "argv", ["matrixrun", command, str(store.root)])
    assert _main() == 4
    told = capsys.readouterr().err
    assert "no cluster is named; its sweep's state: complete" in told


@pytest.mark.parametrize("root", ["/nope", "/nope/deeper", "{folder}/nope/deeper"])
def test_more_than_the_last_folder_is_never_made_nor_one_at_the_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], root: str
) -> None:
    store = make_store(tmp_path / "nightly")
    folder = root.format(folder=tmp_path)
    for arguments in (
        ["report", str(store.root), "--out", f"{folder}/x.html"],
        ["report", str(store.root), "--junit", f"{folder}/x.xml"],
        ["report", str(store.root), "--bundles", f"{folder}/bundles"],
        ["baseline", "accept", str(store.root), "--out", f"{folder}/x.yaml", "--no-tracking"],
        ["sync", str(store.root), "--tracking-uri", f"sqlite:///{folder}/x.db"],
    ):
        monkeypatch.setattr(sys, "argv", ["matrixrun", *arguments])
        assert _main() == 4, arguments
        assert "there is no folder" in capsys.readouterr().err
    assert not Path("/nope").exists()
    assert not (tmp_path / "nope").exists()


def test_a_folder_in_a_files_place_is_told_before_any_work_and_the_other_way_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A bench of an hour that cannot be written would be lost."""
    store = make_store(tmp_path / "nightly")
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").touch()
    for arguments, words in (
        (["report", str(store.root), "--out", "folder"], "that is a folder"),
        (["report", str(store.root), "--junit", "folder"], "that is a folder"),
        (["report", str(store.root), "--bundles", "file"], "that is no folder"),
        (["baseline", "accept", str(store.root), "--out", "folder"], "that is a folder"),
        (["sync", str(store.root), "--tracking-uri", f"sqlite:///{tmp_path}/folder"], "a folder"),
        (["faultbench", "--only", "healthy", "--json", "folder"], "that is a folder"),
    ):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setattr(sys, "argv", ["matrixrun", *arguments])
        assert _main() == 4, arguments
        assert words in capsys.readouterr().err
    assert not (store.root / "report.html").exists()


def test_the_last_folder_may_be_made(tmp_path: Path) -> None:
    require_place(tmp_path / "new" / "x.html", "--out")
    require_place(Path("x.html"), "--out")
