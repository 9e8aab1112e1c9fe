"""A task put to vLLM and to SGLang, with a draft model, as a user's sweep puts it: two launches
each, of a model that knows the task's text by heart.

    python -m pytest -m long tests/e2e/test_accuracy_engines.py
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from matrixrun.faultbench.task import known_text

pytestmark = [pytest.mark.engine, pytest.mark.long, pytest.mark.timeout(3600)]

FOLDER = Path(__file__).with_name("accuracy_task")
DOCUMENTS = 60


@pytest.mark.parametrize("engine", ["vllm", "sglang"])
def test_healthy_arms_answer_alike(engine: str, tmp_path: Path) -> None:
    known_text.write(tmp_path)
    text = (FOLDER / f"{engine}.yaml").read_text()
    matrix = tmp_path / "matrix.yaml"
    matrix.write_text(text.replace("../../engines/", f"{FOLDER.parents[1]}/engines/"))
    done = subprocess.run(
        [sys.executable, "-m", "matrixrun", "run", str(matrix),
         "--results", "out", "--no-tracking"],
        cwd=tmp_path, capture_output=True, text=True, timeout=3500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    (cell,) = json.loads((tmp_path / "out" / "summary.json").read_text())["cells"]
    assert cell["verdict"] == "PASS", cell["reason"]
    metrics = cell["metrics"]
    assert metrics["accuracy/documents"] == DOCUMENTS
    assert 0.3 < metrics["accuracy/right.off"] <= 1.0
    assert metrics["accuracy/lost"] + metrics["accuracy/gained"] <= 3
    assert metrics["acceptance/draft_acceptance_rate"] > 0.1
