"""Writing, loading and expanding matrix files."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings
from matrix_files import Expand, Write

from matrixrun.evidence.errors import MatrixError
from matrixrun.matrix import Expansion, Matrix, expand, load

settings.register_profile("shared machine", deadline=None)
settings.load_profile("shared machine")


@pytest.fixture
def write(tmp_path: Path) -> Write:
    def _write(text: str) -> Path:
        path = tmp_path / "matrix.yaml"
        path.write_text(text, encoding="utf-8")
        return path

    return _write


@pytest.fixture
def read(write: Write) -> Callable[[str], Matrix]:
    return lambda text: load(write(text))


@pytest.fixture
def cells(write: Write) -> Expand:
    def _cells(text: str) -> Expansion:
        path = write(text)
        return expand(load(path), file=str(path))

    return _cells


@pytest.fixture
def mistake(write: Write) -> Callable[[str], MatrixError]:
    """The error that loading and expanding a text raises."""

    def _mistake(text: str) -> MatrixError:
        path = write(text)
        with pytest.raises(MatrixError) as caught:
            expand(load(path), file=str(path))
        assert str(caught.value).startswith(str(path))
        return caught.value

    return _mistake
