"""`matrices/llamacpp-quantized.yaml` on a `llama-server` that is built from source, for two of its
quantizations: a quarter of an hour for the first build, some minutes for the sweep.

    python -m pytest -m long tests/e2e/test_llamacpp_source.py
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.long, pytest.mark.timeout(7200)]

MATRIX = Path(__file__).parents[2] / "matrices" / "llamacpp-quantized.yaml"
CHANGES = {
    "{kind: llamacpp}": '{kind: llamacpp, binary: "builtin:llama-server"}',
    "quantization: [none, f16, q8_0, q4_k_m]": "quantization: [q8_0, q4_k_m]",
}
ROWS_OF_OTHER_KERNELS = 4  # of llama.cpp's products with Q4_K weights on this kind of CPU


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("source")
    text = MATRIX.read_text()
    for old, new in CHANGES.items():
        assert old in text
        text = text.replace(old, new)
    (folder / "m.yaml").write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "matrixrun", "run", "m.yaml", "--results", "out", "--no-tracking"],
        cwd=folder, capture_output=True, text=True, timeout=7000, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "out"


@pytest.fixture(scope="module")
def cells(sweep: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((sweep / "summary.json").read_text())["cells"]
    return found


def test_every_launch_is_the_server_from_source(sweep: Path) -> None:
    outcomes = [json.loads(path.read_text()) for path in sweep.glob("launches/*/outcome.json")]
    assert len(outcomes) == 16
    assert {Path(one["argv"][0]).name for one in outcomes} == {"llama-server"}
    assert len({one["facts"]["version"] for one in outcomes}) == 1


def test_what_changes_with_the_width_of_a_step_is_the_targets_own_arithmetic(
    cells: list[dict[str, Any]],
) -> None:
    assert len(cells) == 12
    assert {cell["verdict"] for cell in cells} == {"PASS"}
    for cell in cells:
        axes = cell["axes"]
        rows = axes["speculation"]["num_speculative_tokens"] + 1
        kinds = {finding["kind"] for finding in cell["findings"]}
        other = axes["quantization"] == "q4_k_m" and rows >= ROWS_OF_OTHER_KERNELS
        assert ("numerics-changed" in kinds) is other, cell["id"]
        assert (cell["metrics"]["same/exact_match.on"] < 1) is other, cell["id"]
        assert cell["metrics"]["acceptance/draft_tokens"] > 0
