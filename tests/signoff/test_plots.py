"""A cell's evidence as an image among its run's artifacts."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
from made_sweeps import CRASHED, FAULTY, HEALTHY, make_cell, make_store
from mlflow import MlflowClient

from matrixrun.judge import Expectation, JudgeSettings
from matrixrun.judge.witnesses.acceptance import POSITION
from matrixrun.record import Tracking
from matrixrun.record.artifacts import PLOT
from matrixrun.signoff import build_page, write_plots
from matrixrun.signoff.plots import plot


def pixels(image: bytes) -> np.ndarray:
    from matplotlib.image import imread

    return np.asarray(imread(io.BytesIO(image), format="png"))


def test_every_cell_with_answers_gets_an_image_the_same_each_time(tmp_path: Path) -> None:
    cells = [make_cell(batch_size=size) for size in (1, 2, 4)]
    arms = [HEALTHY, FAULTY, CRASHED]
    store = make_store(tmp_path / "sweep", list(zip(cells, arms, strict=True)))

    written = write_plots(store)

    assert sorted(path.parents[1].name for path in written) == [cells[0].id, cells[1].id]
    before = [path.read_bytes() for path in written]
    assert [path.read_bytes() for path in write_plots(store)] == before
    assert pixels(before[0]).shape[:2] == (396, 990)


def test_a_fault_and_a_band_are_seen(tmp_path: Path) -> None:
    healthy, faulty = make_cell(batch_size=1), make_cell(batch_size=2)
    band = Expectation(cell=faulty.id, metric=f"{POSITION}0", low=0.2, high=0.3)
    settings = JudgeSettings(detect_rate=0.1, control="within-launch", expectations=(band,))
    store = make_store(
        tmp_path / "sweep", [(healthy, HEALTHY), (faulty, FAULTY)], settings=settings
    )
    page = build_page(store)
    details = {row.id: detail for row, detail in zip(page.rows, page.details, strict=True)}

    def grey(cell: str) -> int:
        image = pixels(plot(details[cell], "title"))[..., :3]
        return int((np.abs(image - 0.8).max(axis=2) < 0.01).sum())

    assert any(rate.expected for rate in details[faulty.id].acceptance)
    assert grey(faulty.id) > grey(healthy.id) + 500
    assert details[faulty.id].curves["on"].points
    assert plot(details[faulty.id], "t") != plot(details[healthy.id], "t")


def test_the_image_is_among_the_runs_artifacts(tmp_path: Path) -> None:
    store = make_store(tmp_path / "sweep", [(make_cell(), FAULTY)])
    write_plots(store)
    uri = f"sqlite:///{tmp_path / 'mlflow.db'}"
    Tracking(uri, "made").sync(store)

    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("made")
    assert experiment is not None
    (run,) = client.search_runs([experiment.experiment_id], "tags.`matrixrun.kind` = 'cell'")
    folder, name = PLOT.split("/")
    assert [a.path for a in client.list_artifacts(run.info.run_id, folder)] == [f"{folder}/{name}"]
