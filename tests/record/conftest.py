"""Fixtures of the record tests."""

from __future__ import annotations

from pathlib import Path

import pytest
from small_sweeps import make_store

from matrixrun.record import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    """A sweep that has just begun, in a folder of its own."""
    return make_store(tmp_path / "sweep")
