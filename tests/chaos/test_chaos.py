"""Things die in the middle of a sweep, and its answer is the same. The short form of chaos.py."""

from __future__ import annotations

from pathlib import Path

from chaos import Chaos
from grounds import EXPECTED, Grounds

KINDS = ("driver", "worker", "raylet", "engine", "guard", "corrupt", "full disk")


def test_a_sweep_in_which_things_die_says_what_an_undisturbed_one_says(tmp_path: Path) -> None:
    with Grounds(tmp_path / "grounds") as grounds:
        chaos = Chaos(grounds, seed=7, kinds=KINDS)
        chaos.sweep("sweep", faults=6)
        assert chaos.check(EXPECTED) == []
        assert len(chaos.hit) >= 4, chaos.hit
