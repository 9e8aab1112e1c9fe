"""The checkpoints themselves, built by an engine's interpreter: what a comparison relies on."""

import itertools
import json
import subprocess
from pathlib import Path

import pytest

from matrixrun.models import build, catalogue, check_interface, checkpoint_identity

pytestmark = pytest.mark.engine
MEASURE = Path(__file__).parent / "measure_tiny_dense.py"


@pytest.fixture(scope="module")
def target(vllm_python: Path, cache: Path) -> Path:
    return build("builtin:tiny-dense", vllm_python, cache, print)


@pytest.fixture(scope="module")
def measured(vllm_python: Path, target: Path) -> dict[str, list[float]]:
    command = [vllm_python, MEASURE, catalogue.RECIPES, target.parent]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def test_all_of_the_family_is_there_and_fits(target: Path, vllm_python: Path, cache: Path) -> None:
    for name in ("draft", "w8a8", "fp8"):
        folder = build(f"builtin:tiny-dense/{name}", vllm_python, cache, print)
        assert checkpoint_identity(folder).size_bytes > 1_000_000
        assert check_interface(target, folder, "draft_model") == []


def test_the_target_is_decided_and_yet_not_always(measured: dict[str, list[float]]) -> None:
    low, _, median, _ = measured["top2_gap_quantiles_5_25_50_75"]
    assert median > 0.5
    assert low < median / 2


def test_continuations_do_not_fall_into_one_loop(measured: dict[str, list[float]]) -> None:
    shares = sorted(measured["distinct_4grams_share"])
    assert shares[len(shares) // 4] > 0.5


def test_drafts_are_accepted_and_rejected_at_every_position(
    measured: dict[str, list[float]],
) -> None:
    shares = measured["accepted_share_per_position"]
    assert 0.4 < shares[0] < 0.9
    assert all(0.15 < later < earlier for earlier, later in itertools.pairwise(shares))


@pytest.mark.long
def test_a_second_build_gives_the_same_bytes(
    target: Path, vllm_python: Path, tmp_path: Path
) -> None:
    """Two more minutes: `pytest tests/models -m long`."""
    again = build("builtin:tiny-dense", vllm_python, tmp_path, print)
    for name in ("target", "draft", "w8a8", "fp8"):
        first, second = target.with_name(name), again.with_name(name)
        assert checkpoint_identity(first) == checkpoint_identity(second)
