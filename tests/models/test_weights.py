"""Checkpoints are read once a node, ahead of the engine, and hashed once."""

from __future__ import annotations

import ctypes
import mmap
import os
import threading
import time
from pathlib import Path

import pytest

from matrixrun.evidence.errors import UserError
from matrixrun.models import Weights, checkpoint_identity, read_ahead, weights

SIZE = 32 * 2**20


def checkpoint(folder: Path, content: bytes = b"weights") -> Path:
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(content)
    return folder


def test_a_checkpoint_is_known_by_its_content_and_a_hub_id_by_nothing_here(tmp_path: Path) -> None:
    target = checkpoint(tmp_path / "target")
    found = Weights({"target": str(target), "draft": "org/draft"}, tmp_path / "cache").identities()
    assert found == {"target": checkpoint_identity(target).sha256}


def test_the_next_launch_on_a_node_does_not_read_it_again(tmp_path: Path) -> None:
    target, cache = checkpoint(tmp_path / "target"), tmp_path / "cache"
    before = Weights({"target": str(target)}, cache).identities()
    file = target / "model.safetensors"
    times = file.stat().st_mtime_ns
    file.write_bytes(b"w3ights")  # seen only by who reads it
    os.utime(file, ns=(times, times))
    assert Weights({"target": str(target)}, cache).identities() == before
    os.utime(file)
    assert Weights({"target": str(target)}, cache).identities() != before


def test_launches_that_begin_at_once_hash_a_checkpoint_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, cache = checkpoint(tmp_path / "target"), tmp_path / "cache"
    inside, most = 0, 0
    lock = threading.Lock()

    def counted(folder: Path, remembered: Path | None = None):
        nonlocal inside, most
        with lock:
            inside += 1
            most = max(most, inside)
        time.sleep(0.05)
        with lock:
            inside -= 1
        return checkpoint_identity(folder, remembered)

    monkeypatch.setattr(weights, "checkpoint_identity", counted)
    begun = [Weights({"target": str(target)}, cache) for _ in range(4)]
    assert len({one.identities()["target"] for one in begun}) == 1
    assert most == 1


def test_what_nobody_asks_for_is_not_hashed(tmp_path: Path) -> None:
    target, cache = checkpoint(tmp_path / "target"), tmp_path / "cache"
    assert Weights({"target": str(target)}, cache, identify=False).identities() == {}
    assert not cache.exists()


def test_a_folder_without_a_checkpoint_is_told_before_an_engine_starts(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="holds no checkpoint"):
        Weights({"target": str(tmp_path / "empty")}, tmp_path / "cache")


def test_what_is_asked_for_is_in_memory_when_the_engine_comes(tmp_path: Path) -> None:
    file = checkpoint(tmp_path / "target", os.urandom(SIZE)) / "model.safetensors"
    with file.open("rb") as opened:
        os.fsync(opened.fileno())
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    if resident(file) > 0.5:
        pytest.skip("this file system keeps all in memory")
    assert read_ahead([file]) == SIZE
    until = time.monotonic() + 30
    while resident(file) < 0.99:
        assert time.monotonic() < until
        time.sleep(0.05)


def test_what_memory_cannot_hold_is_left_to_the_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = checkpoint(tmp_path / "target") / "model.safetensors"
    small = type("Memory", (), {"available": 3})
    monkeypatch.setattr(weights.psutil, "virtual_memory", lambda: small)
    assert read_ahead([file]) == 0


def resident(file: Path) -> float:
    """The share of a file's pages that the page cache holds (mincore)."""
    pages = -(-file.stat().st_size // mmap.PAGESIZE)
    held = (ctypes.c_ubyte * pages)()
    with file.open("r+b") as opened, mmap.mmap(opened.fileno(), 0) as mapped:
        address = ctypes.addressof(ctypes.c_char.from_buffer(mapped))
        libc = ctypes.CDLL(None, use_errno=True)
        code = libc.mincore(ctypes.c_void_p(address), ctypes.c_size_t(len(mapped)), held)
        assert code == 0, os.strerror(ctypes.get_errno())
    return sum(one & 1 for one in held) / pages
