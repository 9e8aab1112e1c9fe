"""A sweep kept at a URL: what is there is whole and listed, and nothing written here is lost."""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import fsspec
import pytest
from fsspec.implementations.memory import MemoryFileSystem
from small_sweeps import MATRIX, make_cell, make_result, run_cell

from matrixrun.evidence.errors import StoreError, UserError
from matrixrun.record import Remote, Store, find_sweep, new_sweep, opened, place_of
from matrixrun.record import mirror as mirror_module
from matrixrun.record import objects as objects_module
from matrixrun.record.cleanup import clean
from matrixrun.record.remote import NEXT, SUMS, is_sent

OF_A_CELL = 14  # the files of one cell and its two launches, and four lists of them
URL = "flaky://bucket/sweeps/small"


class FlakyFileSystem(MemoryFileSystem):
    """A double of an object store that goes away after so many objects were put."""

    protocol = "flaky"
    store: ClassVar[dict] = {}
    pseudo_dirs: ClassVar[list] = [""]
    left: int | None = None
    error: Exception = OSError("could not reach the endpoint")

    @classmethod
    def _strip_protocol(cls, path):
        return super()._strip_protocol(path.removeprefix("flaky:/"))

    def _spend(self) -> None:
        if FlakyFileSystem.left == 0:
            raise FlakyFileSystem.error
        if FlakyFileSystem.left is not None:
            FlakyFileSystem.left -= 1

    def pipe(self, path, value=None, **_):
        for name, data in path.items():
            self._spend()
            self.pipe_file(name, data)

    def cat(self, path, *args, **kwargs):
        if FlakyFileSystem.left == 0:
            raise FlakyFileSystem.error
        return super().cat(path, *args, **kwargs)


@pytest.fixture(autouse=True)
def there(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    fsspec.register_implementation("flaky", FlakyFileSystem, clobber=True)
    monkeypatch.setattr(objects_module, "PUT_WHOLE", frozenset({"flaky"}))
    FlakyFileSystem.store, FlakyFileSystem.pseudo_dirs = {}, [""]
    FlakyFileSystem.left = None
    yield
    FlakyFileSystem.left = None


@pytest.fixture
def on_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Each machine has a cache of its own."""

    def move(name: str) -> None:
        monkeypatch.setenv("MATRIXRUN_CACHE", str(tmp_path / name))

    move("one")
    return move


def begin(url: str = URL) -> Store:
    remote = Remote(url)
    remote.pull()
    store = Store.create(remote.local, new_sweep("small", MATRIX), remote)
    store.write_matrix(MATRIX)
    return store


def objects() -> dict[str, bytes]:
    fs = fsspec.filesystem("flaky")
    root = "/bucket/sweeps/small/"
    return {name.removeprefix(root): fs.cat_file(name) for name in fs.find(root)}


def test_what_was_written_is_there_and_sha256sum_agrees(on_machine, tmp_path: Path) -> None:
    store = begin()
    with store.writing():
        run_cell(store, make_cell())
    found = objects()
    del found[NEXT]
    listed = dict(line.split("  ")[::-1] for line in found.pop(SUMS).decode().splitlines())
    assert listed == {path: hashlib.sha256(data).hexdigest() for path, data in found.items()}
    here = {p.relative_to(store.root).as_posix() for p in store.root.rglob("*") if p.is_file()}
    assert set(found) == {path for path in here if not path.startswith(".")}
    for path, data in objects().items():
        (tmp_path / "got" / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "got" / path).write_bytes(data)
    subprocess.run(["sha256sum", "--quiet", "-c", SUMS], cwd=tmp_path / "got", check=True)


def test_another_machine_goes_on_where_the_first_one_died(on_machine) -> None:
    store = begin()
    with store.writing():
        first = run_cell(store, make_cell())
    on_machine("two")
    remote = Remote(URL)
    assert remote.pull() == []
    again = Store.open(remote.local, remote)
    assert again.finished(first.cell.fingerprint) == first
    assert again.info.id == store.info.id
    with again.writing():
        second = run_cell(again, make_cell(batch_size=1))
    on_machine("one")
    with opened(URL, Path("nowhere")) as back:
        assert sorted(e.cell.id for e in back.evidences()) == [second.cell.id, first.cell.id]
        assert back.root == store.root


@pytest.mark.parametrize("objects_put", range(16))
def test_a_push_broken_off_anywhere_leaves_only_what_is_whole(on_machine, objects_put: int) -> None:
    """What another machine finds then is either a finished cell or a cell to be run."""
    store = begin()
    store.settle()
    evidence = run_cell(store, make_cell())
    store.write_result(make_result(make_cell()))
    FlakyFileSystem.left = objects_put
    broken_off = False
    try:
        store.settle()
    except StoreError:
        broken_off = True
    FlakyFileSystem.left = None
    assert broken_off == (objects_put < OF_A_CELL)

    on_machine("two")
    remote = Remote(URL)
    assert remote.pull() == []
    found = Store.open(remote.local, remote)
    assert found.finished(evidence.cell.fingerprint) in (None, evidence)
    assert not found.results() or found.evidences()

    on_machine("one")
    again = Remote(URL)
    again.pull()
    again.push()
    assert is_sent(again.local)
    on_machine("three")
    with opened(URL, Path("nowhere")) as whole:
        assert whole.finished(evidence.cell.fingerprint) == evidence


def test_a_replaced_file_is_never_seen_without_its_checksum(on_machine) -> None:
    store = begin()
    run_cell(store, make_cell())
    store.write_result(make_result(make_cell()))
    store.settle()
    store.write_result(make_result(make_cell(), reason="judged again"))
    FlakyFileSystem.left = 2  # the announcement and the file, but not the list without the old one
    with pytest.raises(StoreError):
        store.settle()
    FlakyFileSystem.left = None
    on_machine("two")
    with opened(URL, Path("nowhere")) as found:
        assert found.results()[0].reason == "judged again"


def test_a_store_that_is_away_meanwhile_is_told_once_and_gets_all_of_it_later(
    on_machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror_module, "PAUSE_SECONDS", 0.02)
    store, said, tried = begin(), [], threading.Event()
    push = Remote.push

    def counted(self: Remote) -> int:
        try:
            return push(self)
        finally:
            if FlakyFileSystem.left == 0:
                counted.times += 1
                if counted.times > 3:
                    tried.set()

    counted.times = 0
    monkeypatch.setattr(Remote, "push", counted)
    with store.writing(said.append):
        FlakyFileSystem.left = 0
        evidence = run_cell(store, make_cell())
        assert tried.wait(10)
        FlakyFileSystem.left = None
    assert len([line for line in said if "cannot" in line]) == 1
    assert "nothing is lost" in said[0]
    on_machine("two")
    with opened(URL, Path("nowhere")) as found:
        assert found.evidences() == (evidence,)


def test_a_store_that_is_away_at_the_end_is_an_error_and_the_same_again_sends_it(
    on_machine, tmp_path: Path
) -> None:
    store = begin()
    evidence = None

    def work() -> None:
        nonlocal evidence
        with store.writing():
            FlakyFileSystem.left = 0
            evidence = run_cell(store, make_cell())

    with pytest.raises(StoreError, match=r"cannot \w+ flaky://") as caught:
        work()
    assert str(store.root) in str(caught.value)
    FlakyFileSystem.left = None
    assert not any("evidence" in path for path in objects())
    said: list[str] = []
    clean(-1, results_root=tmp_path / "none", delete=True, say=said.append)
    assert store.root.exists()  # there is something in it that was not sent
    with opened(URL, Path("nowhere")):
        pass
    assert any("evidence" in path for path in objects())
    clean(-1, results_root=tmp_path / "none", delete=True, say=said.append)
    assert not store.root.exists()
    with opened(URL, Path("nowhere")) as again:
        assert again.evidences() == (evidence,)


def test_a_damaged_object_is_told_and_its_cell_is_run_again(on_machine) -> None:
    store = begin()
    evidence = run_cell(store, make_cell())
    store.settle()
    path = evidence.records["on"].path
    fsspec.filesystem("flaky").pipe_file(f"/bucket/sweeps/small/{path}", b"cut")
    on_machine("two")
    with pytest.raises(StoreError, match="is damaged"), opened(URL, Path("nowhere")):
        pass
    remote = Remote(URL)
    (told,) = remote.pull()
    assert path in told
    found = Store.open(remote.local, remote)
    assert len(found.set_damaged_aside()) == 1
    assert found.finished(evidence.cell.fingerprint) is None


@pytest.mark.parametrize("damage", ["cut", "lost"])
def test_a_damaged_object_is_listed_no_more_once_its_cell_was_run_again(
    on_machine, damage: str
) -> None:
    store = begin()
    path = run_cell(store, make_cell()).records["on"].path
    store.settle()
    fs, place = fsspec.filesystem("flaky"), f"/bucket/sweeps/small/{path}"
    fs.rm(place) if damage == "lost" else fs.pipe_file(place, b"cut")
    on_machine("two")
    remote = Remote(URL)
    assert len(remote.pull()) == 1
    again = Store.open(remote.local, remote)
    with again.writing():
        again.set_damaged_aside()
        evidence = run_cell(again, make_cell(), text="other")
    assert evidence.records["on"].path != path
    on_machine("three")
    with opened(URL, Path("nowhere")) as found:
        assert found.finished(evidence.cell.fingerprint) == evidence
    assert path.encode() not in objects()[SUMS]


def test_what_another_machine_replaces_while_it_is_read_is_not_damaged(
    on_machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = decided()
    run_cell(writer, make_cell())
    writer.write_result(make_result(make_cell()))
    writer.settle()
    on_machine("two")
    read_all, replaced = objects_module.Objects.read_all, []

    def meanwhile(self, paths):
        if any(path.startswith("cells/") for path in paths) and not replaced:
            replaced.append(True)  # the lists were read, the files were not
            writer.write_result(make_result(make_cell(), reason="judged again"))
            writer.withdraw_decision()
            writer.settle()
        return read_all(self, paths)

    monkeypatch.setattr(objects_module.Objects, "read_all", meanwhile)
    with opened(URL, Path("nowhere")) as found:
        assert found.results()[0].reason == "judged again"
    assert replaced


def test_what_a_driver_here_works_on_is_read_as_it_stands_and_sent_by_the_driver(
    on_machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mirror_module, "PAUSE_SECONDS", 60)
    store = begin()
    run_cell(store, make_cell())
    with store.writing():
        store.write_result(make_result(make_cell(), reason="the driver's"))
        before = objects()
        with opened(URL, Path("nowhere")) as found:
            assert found.results()[0].reason == "the driver's"
            (found.root / "report.html").write_text("a report")
        assert objects() == before
    assert objects()["report.html"] == b"a report"


def test_what_is_written_after_a_driver_here_has_ended_is_sent(on_machine) -> None:
    store = begin()
    with store.writing():
        run_cell(store, make_cell())
        reading = opened(URL, Path("nowhere"))
        found = reading.__enter__()
    (found.root / "report.html").write_text("a report")
    reading.__exit__(None, None, None)
    assert objects()["report.html"] == b"a report"
    assert is_sent(store.root)


def test_a_folder_that_was_lost_there_is_sent_again_as_a_whole(on_machine) -> None:
    store = begin()
    evidence = run_cell(store, make_cell())
    store.settle()
    before = objects()
    fsspec.filesystem("flaky").rm("/bucket", recursive=True)
    with opened(URL, Path("nowhere")):
        pass
    after = objects()
    assert {**before, NEXT: b""} == {**after, NEXT: b""}
    on_machine("two")
    with opened(URL, Path("nowhere")) as found:
        assert found.finished(evidence.cell.fingerprint) == evidence


def test_a_listed_file_that_is_missing_is_told(on_machine) -> None:
    store = begin()
    path = run_cell(store, make_cell()).records["on"].path
    store.settle()
    fsspec.filesystem("flaky").rm(f"/bucket/sweeps/small/{path}")
    on_machine("two")
    (told,) = Remote(URL).pull()
    assert f"{path} is missing" in told
    with pytest.raises(StoreError, match="is missing"), opened(URL, Path("nowhere")):
        pass


def decided() -> Store:
    """A sweep with a cell and a decision, all of it sent."""
    store = begin()
    run_cell(store, make_cell())
    (store.root / "signoff.json").write_text("signed")
    store.settle()
    return store


def test_a_decision_that_was_withdrawn_comes_back_nowhere(on_machine) -> None:
    store = decided()
    on_machine("two")
    with opened(URL, Path("nowhere")) as copy:
        assert (copy.root / "signoff.json").exists()
    on_machine("one")
    store.withdraw_decision()
    store.settle()
    assert "signoff.json" not in objects()
    assert b"signoff" not in objects()[SUMS] + objects()[NEXT]
    for machine in ("one", "two", "three"):
        on_machine(machine)
        with opened(URL, Path("nowhere")) as found:
            assert not (found.root / "signoff.json").exists()
            assert len(found.evidences()) == 1
    assert "signoff.json" not in objects()


def test_a_decision_is_withdrawn_there_too_when_the_store_was_away_at_first(
    on_machine, tmp_path: Path
) -> None:
    store = decided()
    store.withdraw_decision()
    FlakyFileSystem.left = 0
    with pytest.raises(StoreError):
        store.settle()
    FlakyFileSystem.left = None
    assert not is_sent(store.root)
    with opened(URL, Path("nowhere")) as found:
        assert not (found.root / "signoff.json").exists()
    assert "signoff.json" not in objects()
    assert is_sent(store.root)


def test_a_copy_that_was_deleted_here_withdraws_nothing(on_machine) -> None:
    store = decided()
    before = objects()
    shutil.rmtree(store.root)
    with opened(URL, Path("nowhere")) as found:
        assert (found.root / "signoff.json").exists()
    assert objects() == before


def test_a_cell_that_was_set_aside_is_set_aside_there(on_machine) -> None:
    store = begin()
    evidence = run_cell(store, make_cell())
    store.settle()
    (store.root / evidence.records["on"].path).write_bytes(b"cut")
    assert store.set_damaged_aside()
    store.settle()
    assert not any(path.startswith("cells/") for path in objects())
    assert any(path.startswith("damaged/") for path in objects())
    assert evidence.records["on"].path in objects()


def test_a_damaged_copy_here_is_mended_from_there(on_machine) -> None:
    store = begin()
    evidence = run_cell(store, make_cell())
    store.settle()
    (store.root / evidence.records["on"].path).write_bytes(b"cut")
    store.settle()
    with opened(URL, Path("nowhere")) as found:
        assert found.finished(evidence.cell.fingerprint) == evidence


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (PermissionError("Access Denied"), "credentials"),
        (ValueError("Unable to locate credentials"), "credentials"),
        (FileNotFoundError("The specified bucket does not exist"), "make the bucket"),
        (OSError("Could not connect to the endpoint URL"), "check the address"),
    ],
)
def test_what_is_wrong_with_a_store_is_one_message_with_a_remedy(
    on_machine, monkeypatch: pytest.MonkeyPatch, error: Exception, remedy: str
) -> None:
    store = begin()
    monkeypatch.setattr(FlakyFileSystem, "error", error)

    def absent(*_, **__):
        raise error

    monkeypatch.setattr(FlakyFileSystem, "pipe", absent)
    with pytest.raises(StoreError) as caught, store.writing():
        pytest.fail("began although the store cannot be written")
    assert str(error) in caught.value.message
    assert remedy in str(caught.value.remedy)


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("nosuch://bucket/sweep", "Protocol not known"),
        ("dropbox://bucket/sweep", "(?i)install"),
    ],
)
def test_a_url_that_cannot_be_used_is_the_users_mistake(on_machine, url: str, words: str) -> None:
    with pytest.raises(UserError, match=words) as caught:
        place_of(url)
    assert caught.value.remedy


def test_a_place_that_holds_something_else_is_left_alone(on_machine) -> None:
    fsspec.filesystem("flaky").pipe_file("/bucket/sweeps/small/thesis.txt", b"mine")
    with pytest.raises(UserError, match="not the results folder"):
        begin()
    with pytest.raises(UserError), opened(URL, Path("nowhere")):
        pass


def test_a_list_that_points_outside_is_refused(on_machine) -> None:
    line = f"{'0' * 64}  ../../evil.txt\n".encode()
    fsspec.filesystem("flaky").pipe_file(f"/bucket/sweeps/small/{SUMS}", line)
    with pytest.raises(StoreError, match="damaged"):
        Remote(URL).pull()


def test_where_writing_is_not_one_step_files_are_written_beside_and_renamed(
    on_machine, tmp_path: Path
) -> None:
    shared = tmp_path / "shared" / "small"
    store = begin(f"file://{shared}")
    with store.writing():
        evidence = run_cell(store, make_cell())
    assert not [p for p in shared.rglob("*") if p.name.endswith(".tmp")]
    assert Store.open(shared).finished(evidence.cell.fingerprint) == evidence
    assert find_sweep(str(shared)) == shared


def test_credentials_in_a_url_are_not_shown(on_machine) -> None:
    remote = Remote("flaky://user:hunter22@bucket/sweeps/small")
    assert "hunter22" not in remote.shown
    assert "hunter22" not in str(remote.local)


def test_what_is_wrong_names_the_url_and_not_the_copy(on_machine) -> None:
    store = begin()
    run_cell(store, make_cell())
    with pytest.raises(StoreError) as no_plan:
        store.pending()
    with store.writing(), pytest.raises(UserError) as busy, store.writing():
        pass
    for caught in (no_plan, busy):
        assert URL in str(caught.value)
        assert str(store.root) not in str(caught.value)


def test_a_remote_with_nothing_new_asks_nothing_of_the_store(on_machine) -> None:
    store = begin()
    store.settle()
    FlakyFileSystem.left = 0
    store.settle()


def test_the_package_for_a_url_is_only_asked_for_when_one_is_named() -> None:
    code = "import sys, matrixrun.record; sys.exit('fsspec' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
