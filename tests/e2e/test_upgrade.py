"""Two real versions of vLLM in one sweep, each in its own environment, and the sign-off of the new
one against the old. Long: two environments of 3 GB, and six launches of half a minute or more.

    python -m pytest -m long tests/e2e/test_upgrade.py
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.engine, pytest.mark.long, pytest.mark.timeout(3600)]

MATRIX = Path(__file__).parents[2] / "matrices" / "cpu-upgrade.yaml"
VERSIONS = {"vllm-old": "0.31.0", "vllm-new": "0.32.0"}


def matrixrun(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "matrixrun", *arguments],
        cwd=cwd, capture_output=True, text=True, timeout=3500, check=False,
    )  # fmt: skip


@pytest.fixture(scope="module")
def sweep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which the matrix ran once, into `out`."""
    folder = tmp_path_factory.mktemp("upgrade")
    done = matrixrun("run", str(MATRIX), "--results", "out", "--no-tracking", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder


@pytest.fixture(scope="module")
def outcomes(sweep: Path) -> dict[str, dict[str, Any]]:
    paths = (sweep / "out" / "launches").glob("*/outcome.json")
    return {one["launch"]: one for one in (json.loads(path.read_text()) for path in paths)}


def test_each_engine_is_its_own_version_in_its_own_environment(
    outcomes: dict[str, dict[str, Any]],
) -> None:
    environments: dict[str, set[str]] = {}
    for name, outcome in outcomes.items():
        engine = name.split(".")[1]
        assert outcome["facts"]["version"].startswith(VERSIONS[engine]), name
        environments.setdefault(engine, set()).add(outcome["argv"][0])
    assert {len(found) for found in environments.values()} == {1}
    assert environments["vllm-old"] != environments["vllm-new"]


def test_both_versions_pass_and_accept_alike(sweep: Path) -> None:
    cells = json.loads((sweep / "out" / "summary.json").read_text())["cells"]
    assert len(cells) == 8
    assert {cell["verdict"] for cell in cells} == {"PASS"}
    kinds = {finding["kind"] for cell in cells for finding in cell["findings"]}
    assert "acceptance-invariance" not in kinds


def test_the_new_version_is_signed_against_the_old_one_of_the_same_sweep(sweep: Path) -> None:
    done = matrixrun(
        "signoff", "out", "--against", "out", "--upgrade", "vllm-old=vllm-new", cwd=sweep
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SIGNED" in done.stdout
