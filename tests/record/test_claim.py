"""One driver at a time at a URL, on whichever machines: who lives is left alone, who died is not
waited for, and who was taken over sends nothing more."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import fsspec
import pytest
from small_sweeps import MATRIX, make_cell, run_cell

from matrixrun.evidence.errors import StoreError, UserError
from matrixrun.record import Remote, Store, claim, new_sweep
from matrixrun.record.objects import CLAIM, Objects
from matrixrun.record.remote import SUMS

URL = "memory://bucket/sweeps/small"
OBJECT = f"/bucket/sweeps/small/{CLAIM}"
THEIRS = claim.Driver(copy="theirs", host="elsewhere", pid=7, since="then")
On = Callable[[str], Store]


@pytest.fixture
def fs(monkeypatch: pytest.MonkeyPatch) -> Iterator[fsspec.AbstractFileSystem]:
    for name, seconds in {"BEAT": 0.05, "DEAD": 0.6, "SETTLE": 0.1}.items():
        monkeypatch.setattr(claim, f"{name}_SECONDS", seconds)
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    yield memory
    memory.store.clear()


@pytest.fixture
def on(
    fs: fsspec.AbstractFileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[On]:
    """The sweep as a machine sees it, which has a cache of its own."""

    def machine(name: str) -> Store:
        monkeypatch.setenv("MATRIXRUN_CACHE", str(tmp_path / name))
        remote = Remote(URL)
        remote.pull()
        if (remote.local / "sweep.json").exists():
            return Store.open(remote.local, remote)
        store = Store.create(remote.local, new_sweep("small", MATRIX), remote)
        store.write_matrix(MATRIX)
        return store

    return machine


@contextlib.contextmanager
def died(fs: fsspec.AbstractFileSystem, store: Store) -> Iterator[None]:
    """What a driver leaves that is killed: its claim."""
    with store.writing():
        left = fs.cat_file(OBJECT)
    fs.pipe_file(OBJECT, left)
    yield


def test_a_driver_elsewhere_that_lives_is_left_alone_and_named(on: On) -> None:
    first = on("one")
    with first.writing():
        second, said = on("two"), []
        with (
            pytest.raises(UserError, match="another driver is writing to memory") as told,
            second.writing(said.append),
        ):
            pytest.fail("two drivers")
        assert "process" in str(told.value)
        assert "is claimed" in said[0]
        evidence = run_cell(first, make_cell())
    assert on("two").finished(evidence.cell.fingerprint) == evidence


def test_a_driver_that_ended_leaves_no_claim(on: On, fs: fsspec.AbstractFileSystem) -> None:
    with on("one").writing():
        assert fs.exists(OBJECT)
    assert not fs.exists(OBJECT)
    with on("two").writing(pytest.fail):
        assert fs.exists(OBJECT)


def test_the_sweep_of_a_driver_that_died_is_taken_over(
    on: On, fs: fsspec.AbstractFileSystem
) -> None:
    said: list[str] = []
    with died(fs, on("one")), on("two").writing(said.append):
        pass
    assert "taken over" in said[-1]
    assert not fs.exists(OBJECT)


def test_a_driver_that_is_started_again_on_its_machine_goes_on_at_once(
    on: On, fs: fsspec.AbstractFileSystem
) -> None:
    store = on("one")
    with died(fs, store), store.writing(pytest.fail):
        pass


def test_a_driver_that_died_before_it_sent_anything_bars_nobody(
    on: On, fs: fsspec.AbstractFileSystem
) -> None:
    with on("one").writing():
        left = fs.cat_file(OBJECT)
    fs.store.clear()
    fs.pipe_file(OBJECT, left)
    with on("two").writing():
        pass


def test_a_driver_whose_sweep_was_taken_over_sends_nothing_more_and_says_so(
    on: On, fs: fsspec.AbstractFileSystem
) -> None:
    store = on("one")
    with contextlib.ExitStack() as driver:
        driver.enter_context(store.writing())
        until = time.monotonic() + 20
        while time.monotonic() < until and not told(store):
            # Again: a claim that this one is just writing anew takes its place.
            fs.pipe_file(OBJECT, claim.encoded(THEIRS))
            time.sleep(0.02)
        evidence = run_cell(store, make_cell())
        with pytest.raises(StoreError, match=r"taken over .* process 7 on elsewhere"):
            driver.close()
    assert fs.cat_file(OBJECT) == claim.encoded(THEIRS)
    fs.rm(OBJECT)
    assert on("two").finished(evidence.cell.fingerprint) is None


def test_a_takeover_is_seen_by_the_next_push_before_anything_is_sent(
    on: On, fs: fsspec.AbstractFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long it is until the driver that was cut off writes its claim again."""
    monkeypatch.setattr(claim, "BEAT_SECONDS", 60)
    store = on("one")
    with contextlib.ExitStack() as driver:
        driver.enter_context(store.writing())
        fs.pipe_file(OBJECT, claim.encoded(THEIRS))
        run_cell(store, make_cell())
        before = dict(fs.store)
        with pytest.raises(StoreError, match=r"taken over .* process 7 on elsewhere"):
            store.settle()
        assert fs.store == before
        with pytest.raises(StoreError, match="taken over"):
            driver.close()


def test_a_takeover_during_a_push_leaves_the_list_to_the_new_driver(
    on: On, fs: fsspec.AbstractFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim, "BEAT_SECONDS", 60)
    store, sums = on("one"), f"/bucket/sweeps/small/{SUMS}"
    write_all = Objects.write_all

    def taken_over(self: Objects, files: Mapping[str, bytes]) -> None:
        write_all(self, files)
        if any(name.endswith("evidence.json") for name in files):
            fs.pipe_file(OBJECT, claim.encoded(THEIRS))

    with contextlib.ExitStack() as driver:
        driver.enter_context(store.writing())
        run_cell(store, make_cell())
        listed = fs.cat_file(sums)
        monkeypatch.setattr(Objects, "write_all", taken_over)
        with pytest.raises(StoreError, match="taken over"):
            store.settle()
        assert fs.cat_file(sums) == listed
        with pytest.raises(StoreError, match="taken over"):
            driver.close()


def told(store: Store) -> bool:
    try:
        store.settle()
    except StoreError:
        return True
    return False


def test_what_a_driver_wrote_before_the_claim_was_free_is_not_replaced(
    on: On, fs: fsspec.AbstractFileSystem
) -> None:
    """The second has looked at what is there when the first runs a cell and ends."""
    first = on("one")
    with first.writing():
        pass
    second = on("two")
    with first.writing():
        theirs = run_cell(first, make_cell(), text="the first's")
    with second.writing(pytest.fail):
        assert second.finished(theirs.cell.fingerprint) == theirs
    assert on("three").finished(theirs.cell.fingerprint) == theirs


def test_a_sweep_that_another_driver_began_meanwhile_goes_on_as_that_one(on: On) -> None:
    second = on("two")  # nothing is there yet: it begins one
    first = on("one")
    with first.writing():
        theirs = run_cell(first, make_cell())
    with second.writing():
        assert second.info.id == first.info.id
        assert second.evidences() == (theirs,)


@pytest.mark.parametrize("later", [b"", b'{"copy": 7}', b'{"format": 9'])
def test_a_claim_that_cannot_be_read_is_somebodys(
    on: On, fs: fsspec.AbstractFileSystem, later: bytes
) -> None:
    """It is of another version, or the file is just being written."""
    fs.pipe_file(OBJECT, b"{")
    said: list[str] = []

    def write(words: str) -> None:
        said.append(words)
        fs.pipe_file(OBJECT, later)

    with pytest.raises(UserError, match="another driver is writing"), on("one").writing(write):
        pytest.fail("two drivers")
    assert "cannot be read" in said[0]
    assert fs.cat_file(OBJECT) == later
    with on("one").writing(said.append):  # it is not written anew
        assert "taken over" in said[-1]


def test_a_store_that_hangs_does_not_keep_a_driver_from_its_end(
    on: On, fs: fsspec.AbstractFileSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(claim, "LAST_BEAT_SECONDS", 0.1)
    hanging, goes_on = threading.Event(), threading.Event()

    def hang(_: claim.Claim) -> None:
        hanging.set()
        goes_on.wait(30)

    monkeypatch.setattr(claim.Claim, "_beat", hang)
    began = time.monotonic()
    with on("one").writing():
        assert hanging.wait(10)
    assert time.monotonic() - began < 10
    goes_on.set()
    assert fs.exists(OBJECT)  # another one takes over


def test_a_command_sends_nothing_while_a_driver_elsewhere_does(
    on: On, fs: fsspec.AbstractFileSystem
) -> None:
    first = on("one")
    with first.writing():
        run_cell(first, make_cell())
        first.settle()
        second = on("two")
        (second.root / "signoff.json").write_text("signed")
        with pytest.raises(UserError, match="another driver is writing"):
            second.remote.send()
        assert not fs.exists("/bucket/sweeps/small/signoff.json")
    second.remote.send()
    assert fs.exists("/bucket/sweeps/small/signoff.json")
    assert not fs.exists(OBJECT)


def test_of_two_that_take_over_in_the_same_moment_one_is_told(
    on: On, fs: fsspec.AbstractFileSystem, tmp_path: Path
) -> None:
    """Both have seen that the third is dead, and write."""
    with died(fs, on("three")):
        both = [Claimed(tmp_path / name) for name in ("one", "two")]
    with ThreadPoolExecutor(2) as pool:
        ends = list(pool.map(Claimed.attempt, both))
    assert sorted(ends) == ["held", "told"]


class Claimed:
    """A claim on another machine, and whether it could be held."""

    gate = threading.Barrier(2)

    def __init__(self, copy: Path) -> None:
        self.claim = claim.Claim(Objects(URL, ""), copy)

    def attempt(self) -> str:
        self.gate.wait()
        try:
            with self.claim.held(lambda _: None):
                time.sleep(0.5)
                self.claim.check()
                return "held"
        except (UserError, StoreError):
            return "told"


@pytest.mark.parametrize("scheme", ["memory://", "file://"])
def test_a_file_is_made_by_one_alone(
    scheme: str, fs: fsspec.AbstractFileSystem, tmp_path: Path
) -> None:
    there = Objects(f"{scheme}{tmp_path}/sweep", "")
    assert there.create("x", b"first")
    assert not there.create("x", b"second")
    assert there.read("x") == b"first"
