"""A run whose results lie at a URL, and the commands that read them from there."""

from __future__ import annotations

import json
from pathlib import Path

import mlflow
import pytest
from test_staleness import MATRIX, write_prompts
from typer.testing import CliRunner

from matrixrun.cli import app
from matrixrun.evidence.errors import StoreError, UserError
from matrixrun.fanout import RunOptions, run_matrix
from matrixrun.fanout.jobs import Submission, check
from matrixrun.record import Remote, Store, Tracking, place_of

NOTHING_MEASURED = 5  # every cell of these sweeps is refused


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A matrix whose cells are refused, so that nothing is launched."""
    monkeypatch.setenv("MATRIXRUN_CACHE", str(tmp_path / "cache"))
    write_prompts(tmp_path, "abc")
    (tmp_path / "m.yaml").write_text(MATRIX)
    return tmp_path


def matrixrun(*words: str) -> str:
    """What a command prints; it must succeed, or say that nothing was measured."""
    done = CliRunner().invoke(app, list(words))
    assert done.exit_code in (0, NOTHING_MEASURED), (words, done.output, done.exception)
    return done.output


def test_every_command_takes_the_url_that_run_was_given(folder: Path) -> None:
    """What it writes is there too, and it says the URL and not the copy it worked on."""
    there, url = folder / "bucket" / "small", f"file://{folder}/bucket/small"
    tracking = ("--tracking-uri", f"sqlite:///{folder}/mlflow.db")
    run = ("run", f"{folder}/m.yaml", "--results", url, *tracking)
    assert f"results: {url}" in matrixrun(*run)
    assert json.loads((there / "summary.json").read_text())["exit_code"] == NOTHING_MEASURED
    assert Store.open(there).info.id == "small"

    for words in (
        ("judge", url),
        ("sync", url, *tracking),
        ("report", url),
        ("plan", f"{folder}/m.yaml", "--costs", url),
    ):
        matrixrun(*words)
    assert (there / "report.html").exists()
    for words in (("signoff", url, "--against", url), ("baseline", "accept", url, *tracking)):
        done = CliRunner().invoke(app, list(words))
        assert isinstance(done.exception, UserError)
        assert "nothing was measured" in done.exception.message

    matrixrun(*run)
    client = mlflow.MlflowClient(f"sqlite:///{folder}/mlflow.db")
    experiment = client.get_experiment_by_name("small")
    assert len(client.search_runs([experiment.experiment_id])) == 3  # two cells and the sweep


def test_what_cannot_go_on_is_told_of_the_url_and_not_of_the_copy(folder: Path) -> None:
    url = f"file://{folder}/bucket/small"
    run = ("run", f"{folder}/m.yaml", "--results", url, "--no-tracking")
    matrixrun(*run)
    (result, *_) = sorted(folder.glob("cache/sweeps/*/small/cells/*/result.json"))
    result.write_text(result.read_text().replace('"REFUSED"', '"PASS"'))
    signoff = CliRunner().invoke(app, ["signoff", url, "--against", url])
    write_prompts(folder, "abd")
    other_prompts = CliRunner().invoke(app, list(run))
    (folder / "m.yaml").write_text(MATRIX.replace("[1, 4]", "[4, 8]"))
    other_matrix = CliRunner().invoke(app, list(run))
    for told, words in (
        (signoff, f"`matrixrun judge {url}`"),
        (other_prompts, f"{url}: 2 of 2 cells"),
        (other_matrix, f"restore the file from {url}/matrix.yaml"),
    ):
        said = str(told.exception)
        assert told.exit_code
        assert words in said
        assert "/cache/" not in said


def test_a_second_driver_here_ends_before_it_touches_the_copy(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = place_of(f"file://{folder}/bucket/small")
    options = RunOptions(results=place, quiet=True, track=False)
    store = run_matrix(folder / "m.yaml", options, lambda store: store.root).store
    assert store is not None
    with store.writing():
        monkeypatch.setattr(Remote, "pull", lambda _: pytest.fail("changed the driver's copy"))
        with pytest.raises(UserError, match="another process is writing to file://"):
            run_matrix(folder / "m.yaml", options, lambda store: store.root)


def test_nothing_is_logged_before_the_results_are_where_they_are_kept(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bucket = folder / "bucket"
    logged: list[bool] = []
    monkeypatch.setattr(Tracking, "start", lambda *_: None)
    monkeypatch.setattr(Tracking, "where", lambda *_: "")

    def sync(*_, **__) -> None:
        logged.append(bool(list(bucket.glob("small/cells/*/result.json"))))

    monkeypatch.setattr(Tracking, "sync", sync)
    options = RunOptions(results=place_of(f"file://{bucket}/small"), quiet=True)

    assert run_matrix(folder / "m.yaml", options, lambda store: store.root).code == NOTHING_MEASURED
    assert logged == [True]


def test_a_store_that_is_away_at_the_end_keeps_mlflow_waiting_too(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    logged: list[str] = []
    monkeypatch.setattr(Tracking, "start", lambda *_: None)
    monkeypatch.setattr(Tracking, "sync", lambda *_, **__: logged.append("logged"))
    place = place_of(f"file://{folder}/bucket/small")
    options = RunOptions(results=place, quiet=True)

    def away(store: Store) -> Path:
        """The report is the last thing that is written before MLflow's turn."""
        (folder / "bucket" / "small").rename(folder / "elsewhere")
        (folder / "bucket" / "small").write_text("no folder any more")
        (store.root / "report.html").write_text("")
        return store.root

    with pytest.raises(StoreError, match="nothing is lost"):
        run_matrix(folder / "m.yaml", options, away)
    assert logged == []
    assert f"matrixrun sync file://{folder}/bucket/small" in capsys.readouterr().out


def test_a_job_may_keep_its_results_at_a_url_without_credentials(folder: Path) -> None:
    file = str(folder / "m.yaml")
    submission = Submission(file=file, results="s3://bucket/sweeps/upgrade")
    check(submission)
    assert submission.sweep == "upgrade"
    with pytest.raises(UserError, match="credentials"):
        check(Submission(file=file, results="ftp://me:hunter22@host/sweeps/upgrade"))
