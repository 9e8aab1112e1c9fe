"""`gc` deletes what is old, and nothing that anybody uses."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import filelock
import pytest
from small_sweeps import make_store

from matrixrun.engines import prepare
from matrixrun.engines.environments import COMPLETE, key
from matrixrun.evidence.launches import Recipe
from matrixrun.record.cleanup import DELETING, clean

DAY = 86400.0
RECIPE = Recipe(install=("something",))


class Places:
    """A cache with an environment and a checkpoint, and results with a sweep, all old."""

    def __init__(self, root: Path) -> None:
        self.cache, self.results = root / "cache", root / "results"
        self.environment = self.cache / "engines" / key(RECIPE)
        self.checkpoint = self.cache / "models" / "tiny-0123"
        for folder, name in ((self.environment, COMPLETE), (self.checkpoint, "config.json")):
            folder.mkdir(parents=True)
            (folder / name).write_text("x")
        self.sweep = make_store(self.results / "sweep").root
        self.all = (self.environment, self.checkpoint, self.sweep)
        for folder in self.all:
            age(folder)

    def clean(self, *, delete: bool = True, days: float = 30) -> list[str]:
        said: list[str] = []
        clean(days * DAY, results_root=self.results, delete=delete, say=said.append)
        return said


def age(folder: Path) -> None:
    """Make a folder and all in it forty days old."""
    then = time.time() - 40 * DAY
    for path in (*folder.rglob("*"), folder):
        os.utime(path, (then, then))


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Places:
    monkeypatch.setenv("MATRIXRUN_CACHE", str(tmp_path / "cache"))
    return Places(tmp_path)


def test_what_is_old_is_listed_and_deleted_only_when_told(places: Places) -> None:
    listed = places.clean(delete=False)
    assert [line for line in listed if line.startswith("would delete ")] == listed[:3]
    assert all(folder.is_dir() for folder in places.all)
    assert places.clean(days=50) == ["0.00 GiB"]
    places.clean()
    assert not any(folder.exists() for folder in places.all)
    assert not list(places.results.parent.rglob(f"{DELETING}*"))


def test_an_environment_that_is_used_is_not_old(places: Places) -> None:
    prepare(RECIPE, cache=places.cache, timeout=1, on_line=lambda _: None)
    places.clean()
    assert places.environment.is_dir()
    assert not places.checkpoint.exists()


@pytest.mark.parametrize("held", [0, 1, 2])
def test_what_somebody_holds_the_lock_of_stays(places: Places, held: int) -> None:
    lock = (f"{places.environment}.lock", f"{places.checkpoint}.lock", places.sweep / ".lock")[held]
    with filelock.FileLock(lock):
        age(places.sweep)
        said = places.clean()
    assert f"in use: {places.all[held]}" in said
    assert [folder for folder in places.all if folder.exists()] == [places.all[held]]


def test_what_is_used_between_the_look_and_the_lock_stays(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    acquire = filelock.FileLock.acquire

    def use_first(self: filelock.FileLock, *args: Any, **options: Any) -> Any:
        lock = Path(self.lock_file)
        folder = lock.parent if lock.name == ".lock" else lock.with_suffix("")
        (folder / ".used").touch()
        return acquire(self, *args, **options)

    monkeypatch.setattr(filelock.FileLock, "acquire", use_first)
    said = places.clean()
    assert all(folder.is_dir() for folder in places.all)
    assert said[:3] == [f"in use: {folder}" for folder in places.all]


def test_what_a_running_process_works_with_stays(places: Places) -> None:
    command = [sys.executable, "-c", "input()", f"--model={places.checkpoint}/target"]
    with subprocess.Popen(command, stdin=subprocess.PIPE) as engine:
        assert f"in use: {places.checkpoint}" in places.clean(days=0)
        engine.communicate(b"\n")
    assert places.checkpoint.is_dir()
    assert not places.environment.exists()


def test_only_sweeps_are_deleted_below_the_results(places: Places, tmp_path: Path) -> None:
    own = places.results / "thesis"
    own.mkdir()
    (own / "chapter.md").write_text("years of work")
    elsewhere = make_store(tmp_path / "elsewhere").root
    (places.results / "link").symlink_to(elsewhere)
    age(own)
    age(elsewhere)
    places.clean()
    assert (own / "chapter.md").exists()
    assert (elsewhere / "sweep.json").exists()
    assert not places.sweep.exists()


def test_a_deletion_that_is_cut_short_leaves_nothing_that_looks_whole(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    with monkeypatch.context() as patch:
        patch.setattr(shutil, "rmtree", refuse)
        said = places.clean()
    assert f"cannot delete {places.environment}: Permission denied" in said
    assert not any(folder.exists() for folder in places.all)
    for left in places.results.parent.rglob(f"{DELETING}*"):
        age(left)
    places.clean()
    assert not list(places.results.parent.rglob(f"{DELETING}*"))
