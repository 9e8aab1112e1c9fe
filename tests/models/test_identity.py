"""Two checkpoints are the same if and only if an engine would read the same."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from matrixrun.evidence.errors import UserError
from matrixrun.models import checkpoint_identity


def make(folder: Path, weights: bytes = b"weights") -> Path:
    folder.mkdir()
    (folder / "config.json").write_text("{}")
    (folder / "tokenizer.json").write_text("{}")
    (folder / "model.safetensors").write_bytes(weights)
    return folder


def test_a_copy_has_the_same_identity_and_other_weights_another(tmp_path: Path) -> None:
    one = checkpoint_identity(make(tmp_path / "one"))
    copy = checkpoint_identity(make(tmp_path / "copy"))
    other = checkpoint_identity(make(tmp_path / "other", b"weightz"))
    assert one == copy
    assert one.sha256 != other.sha256
    assert one.size_bytes == len(b"{}{}weights")


def test_files_that_no_engine_reads_do_not_count(tmp_path: Path) -> None:
    folder = make(tmp_path / "one")
    before = checkpoint_identity(folder)
    (folder / "README.md").write_text("changed")
    assert checkpoint_identity(folder) == before


def test_a_renamed_weights_file_is_another_checkpoint(tmp_path: Path) -> None:
    folder = make(tmp_path / "one")
    before = checkpoint_identity(folder)
    (folder / "model.safetensors").rename(folder / "model-2.safetensors")
    assert checkpoint_identity(folder).sha256 != before.sha256


def test_hashes_are_remembered_until_size_or_time_changes(tmp_path: Path) -> None:
    folder, cache = make(tmp_path / "one"), tmp_path / "cache" / "identities"
    weights = folder / "model.safetensors"
    before, time = checkpoint_identity(folder, cache), weights.stat().st_mtime_ns
    weights.write_bytes(b"WEIGHTS")
    os.utime(weights, ns=(time, time))
    assert checkpoint_identity(folder, cache) == before  # not read again
    os.utime(weights, ns=(time, time + 1))
    assert checkpoint_identity(folder, cache) != before


def test_a_broken_cache_only_costs_time(tmp_path: Path) -> None:
    folder, cache = make(tmp_path / "one"), tmp_path / "identities"
    known = checkpoint_identity(folder)
    assert checkpoint_identity(folder, cache) == known
    entries = list(cache.glob("*.sha256"))
    assert len(entries) == len(known.files)
    for entry in entries:
        entry.write_text("cut")
    assert checkpoint_identity(folder, cache) == known
    cache = tmp_path / "file"
    cache.write_text("no folder")
    assert checkpoint_identity(folder, cache) == known


def test_launches_that_remember_at_once_lose_nothing_of_one_another(tmp_path: Path) -> None:
    cache = tmp_path / "identities"
    folders = [make(tmp_path / f"{n}", b"weights%d" % n) for n in range(8)]
    with ThreadPoolExecutor(len(folders)) as pool:
        known = list(pool.map(lambda folder: checkpoint_identity(folder, cache), folders))
    for folder in folders:
        keep_time_but_not_content(folder / "model.safetensors")
    assert [checkpoint_identity(folder, cache) for folder in folders] == known
    assert not list(cache.glob(".*"))


def keep_time_but_not_content(file: Path) -> None:
    """Change a file so that only who reads it would see."""
    times = file.stat().st_mtime_ns
    file.write_bytes(b"x" * file.stat().st_size)
    os.utime(file, ns=(times, times))


def test_a_single_gguf_file_has_an_identity(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    assert checkpoint_identity(tmp_path / "model.gguf").files[0][0] == "model.gguf"


def test_an_empty_folder_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="holds no checkpoint"):
        checkpoint_identity(tmp_path)
