"""Two versions of llama.cpp server side by side: the older one of `matrices/llamacpp-upgrade.yaml`
loses the answer before where drafts were accepted beyond its end."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.timeout(900)]

MATRIX = Path(__file__).parents[2] / "matrices" / "llamacpp-upgrade.yaml"


@pytest.fixture(scope="module")
def cells(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The matrix's two cells, by engine."""
    folder = tmp_path_factory.mktemp("versions")
    arguments = ["--results", "out", "--no-tracking"]
    done = subprocess.run(
        [sys.executable, "-m", "matrixrun", "run", str(MATRIX), *arguments],
        cwd=folder, capture_output=True, text=True, timeout=800, check=False,
    )  # fmt: skip
    summary = folder / "out" / "summary.json"
    assert summary.exists(), done.stdout + done.stderr
    found = json.loads(summary.read_text())["cells"]
    return {cell["id"].partition(".")[0]: cell for cell in found}


def test_the_old_server_loses_the_answer_before_and_is_told_by_it(
    cells: dict[str, dict[str, Any]],
) -> None:
    cell = cells["llamacpp-old"]
    assert cell["verdict"] == "FAIL"
    (fault,) = (one for one in cell["findings"] if one["severity"] == "fault")
    assert fault["kind"] == "reuse"
    assert fault["numbers"]["on"] >= fault["numbers"]["answer"] > fault["numbers"]["off"]


def test_the_new_one_keeps_it(cells: dict[str, dict[str, Any]]) -> None:
    cell = cells["llamacpp-new"]
    assert cell["verdict"] == "PASS", cell
    metrics = cell["metrics"]
    again = metrics["conversation/prefilled_again.on"]
    assert again <= metrics["conversation/prefilled_again.off"] + 2
    assert metrics["acceptance/speculated_share"] > 0.1
