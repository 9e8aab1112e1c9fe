"""A sweep in S3, as a server double (moto) keeps it, through s3fs:

pip install -e '.[dev,s3]' 'moto[server]'
python -m pytest tests/record/test_s3.py
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("s3fs")
server = pytest.importorskip("moto.server")

import httpx  # noqa: E402
import s3fs  # noqa: E402
from small_sweeps import MATRIX, make_cell, run_cell  # noqa: E402

from matrixrun.evidence.errors import StoreError, UserError  # noqa: E402
from matrixrun.record import Remote, Store, claim, new_sweep, opened  # noqa: E402
from matrixrun.record.objects import CLAIM, Objects  # noqa: E402

URL = "s3://bucket/sweeps/small"


@pytest.fixture
def s3(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[s3fs.S3FileSystem]:
    """An S3 without buckets, and what a user has in the environment to reach it."""
    running = server.ThreadedMotoServer(port=0)
    running.start()
    host, port = running.get_host_and_port()
    httpx.post(f"http://{host}:{port}/moto-api/reset")  # its buckets outlive a server
    for name, value in {
        "MATRIXRUN_CACHE": str(tmp_path / "one"),
        "AWS_ENDPOINT_URL": f"http://{host}:{port}",
        "AWS_ACCESS_KEY_ID": "testing",
        "AWS_SECRET_ACCESS_KEY": "testing",
        "AWS_DEFAULT_REGION": "us-east-1",
    }.items():
        monkeypatch.setenv(name, value)
    s3fs.S3FileSystem.clear_instance_cache()
    try:
        yield s3fs.S3FileSystem()
    finally:
        running.stop()
        s3fs.S3FileSystem.clear_instance_cache()


def begin(url: str = URL) -> Store:
    remote = Remote(url)
    remote.pull()
    store = Store.create(remote.local, new_sweep("small", MATRIX), remote)
    store.write_matrix(MATRIX)
    return store


def test_a_sweep_goes_to_s3_and_comes_back_on_another_machine(
    s3: s3fs.S3FileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    s3.mkdir("bucket")
    store = begin()
    with store.writing():
        evidence = run_cell(store, make_cell())
    assert s3.exists("bucket/sweeps/small/SHA256SUMS")
    assert not [name for name in s3.find("bucket") if name.endswith(".tmp")]
    monkeypatch.setenv("MATRIXRUN_CACHE", str(tmp_path / "two"))
    with opened(URL, Path("nowhere")) as found:
        assert found.finished(evidence.cell.fingerprint) == evidence
        assert found.root != store.root


def test_what_was_withdrawn_or_set_aside_is_removed_there(s3: s3fs.S3FileSystem) -> None:
    s3.mkdir("bucket")
    store = begin()
    evidence = run_cell(store, make_cell())
    (store.root / "signoff.json").write_text("signed")
    store.settle()
    assert s3.exists("bucket/sweeps/small/signoff.json")
    store.withdraw_decision()
    (store.root / evidence.records["on"].path).write_bytes(b"cut")
    assert store.set_damaged_aside()
    store.settle()
    s3.invalidate_cache()
    left = [name.removeprefix("bucket/sweeps/small/") for name in s3.find("bucket")]
    assert not [name for name in left if name.startswith(("signoff", "cells/"))]
    assert evidence.records["on"].path in left
    with opened(URL, Path("nowhere")) as found:
        assert found.evidences() == ()


def test_a_bucket_that_is_not_there_is_told_before_anything_runs(s3: s3fs.S3FileSystem) -> None:
    store = begin("s3://absent/sweeps/small")
    with pytest.raises(StoreError) as caught, store.writing():
        pytest.fail("began")
    assert "make the bucket" in str(caught.value.remedy)
    assert str(store.root) in str(caught.value.remedy)


def test_a_driver_elsewhere_that_lives_is_left_alone(
    s3: s3fs.S3FileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, seconds in {"BEAT": 0.2, "DEAD": 2.0}.items():
        monkeypatch.setattr(claim, f"{name}_SECONDS", seconds)
    s3.mkdir("bucket")
    there = Objects(URL, "")
    with begin().writing():
        assert not there.create(CLAIM, b"in one step, on condition")
        monkeypatch.setenv("MATRIXRUN_CACHE", str(tmp_path / "two"))
        remote = Remote(URL)
        remote.pull()
        with (
            pytest.raises(UserError, match="another driver is writing to s3"),
            Store.open(remote.local, remote).writing(),
        ):
            pytest.fail("two drivers")
    assert there.create(CLAIM, b"free again")
