"""`gc` deletes what is old, and nothing that anybody uses."""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import filelock
import pytest
from small_sweeps import make_store

from matrixrun.engines import prepare
from matrixrun.engines.environments import COMPLETE, key
from matrixrun.evidence.launches import Recipe
from matrixrun.record import InUse
from matrixrun.record.cleanup import DELETING, clean

DAY = 86400.0
RECIPE = Recipe(install=("something",))


class Places:
    """A cache with an environment, a checkpoint and what was compiled, and results with a sweep,
    all old."""

    def __init__(self, root: Path) -> None:
        self.cache, self.results = root / "cache", root / "results"
        self.environment = self.cache / "engines" / key(RECIPE)
        self.checkpoint = self.cache / "models" / "tiny-0123"
        self.compiled = self.cache / "compiled" / key(RECIPE)
        for folder, name in (
            (self.environment, COMPLETE),
            (self.checkpoint, "config.json"),
            (self.compiled, "graph.so"),
        ):
            folder.mkdir(parents=True)
            (folder / name).write_text("x")
        self.sweep = make_store(self.results / "sweep").root
        self.all = (self.environment, self.checkpoint, self.compiled, self.sweep)
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
    assert [line for line in listed if line.startswith("would delete ")] == listed[:4]
    assert all(folder.is_dir() for folder in places.all)
    places.clean()
    assert not any(folder.exists() for folder in places.all)
    assert not list(places.results.parent.rglob(f"{DELETING}*"))


def test_an_environment_that_is_used_is_not_old(places: Places) -> None:
    prepare(RECIPE, cache=places.cache, timeout=1, on_line=lambda _: None)
    places.clean()
    assert places.environment.is_dir()
    assert not places.checkpoint.exists()


@pytest.mark.parametrize("held", [0, 1, 2, 3])
def test_what_somebody_holds_the_lock_of_stays(places: Places, held: int) -> None:
    kept = places.all[held]
    lock = kept / ".lock" if kept == places.sweep else kept.with_name(f"{kept.name}.lock")
    with filelock.FileLock(lock):
        age(places.sweep)
        said = places.clean()
    assert f"in use: {places.all[held]}" in said
    assert [folder for folder in places.all if folder.exists()] == [places.all[held]]


USER = """
import pathlib
from matrixrun.record import InUse
used = InUse(pathlib.Path(input()))
for path in input().split():
    used.claim(f"{path}/in/it")
print("claimed", flush=True)
input()
used.release()
print("released", flush=True)
input()
"""


@contextlib.contextmanager
def user(cache: Path, *folders: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has claimed these folders, none of which its command names."""
    command, pipe = [sys.executable, "-c", USER], subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, bufsize=1) as process:
        process.stdin.write(f"{cache}\n{' '.join(map(str, folders))}\n")
        assert process.stdout.readline() == "claimed\n"
        try:
            yield process
        finally:
            process.kill()


def test_what_a_launch_works_with_stays_until_it_lets_go(places: Places) -> None:
    """However long it runs, and although no command names its compile cache."""
    in_cache = [folder for folder in places.all if folder != places.sweep]
    assert places.compiled in in_cache
    with user(places.cache, *in_cache) as process:
        said = places.clean(days=0)
        assert [f"in use: {folder}" for folder in in_cache] == said[:3]
        process.stdin.write("\n")
        assert process.stdout.readline() == "released\n"
        places.clean(days=0)
    assert not any(folder.exists() for folder in places.all)
    assert not list((places.cache / "in-use").iterdir())


def test_what_a_launch_that_was_killed_had_claimed_is_free(places: Places) -> None:
    with user(places.cache, places.compiled):
        pass
    assert list((places.cache / "in-use").iterdir())
    places.clean()
    assert not places.compiled.exists()
    assert not list((places.cache / "in-use").iterdir())


def test_what_is_claimed_between_the_look_and_the_lock_stays(
    places: Places, monkeypatch: pytest.MonkeyPatch
) -> None:
    acquire, used = filelock.FileLock.acquire, InUse(places.cache)

    def claim_first(self: filelock.FileLock, *args: Any, **options: Any) -> Any:
        if Path(self.lock_file).parent == places.compiled.parent:
            used.claim(places.compiled)
        return acquire(self, *args, **options)

    monkeypatch.setattr(filelock.FileLock, "acquire", claim_first)
    assert f"in use: {places.compiled}" in places.clean()
    assert places.compiled.is_dir()
    assert not places.checkpoint.exists()
    used.release()


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
    assert said[:4] == [f"in use: {folder}" for folder in places.all]


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


def test_nothing_to_delete_is_said_so(places: Places) -> None:
    (said,) = places.clean(delete=False, days=50)
    assert said == "nothing to delete: nothing here was unused for 50 days"
