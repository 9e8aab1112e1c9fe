"""What is judged of servers that nobody here launched, and what is said not to be known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from matrixrun.evidence.launches import LaunchEnd
from matrixrun.evidence.verdicts import CellResult, Verdict
from matrixrun.judge import CellObservations, JudgeSettings, judge_sweep

from .simulator import Pair, changed, outcome, simulate

SETTINGS = JudgeSettings(detect_rate=0.1, rejections_per_position=0)


def attached(cell: CellObservations, **unknown: list[str]) -> CellObservations:
    """The cell as if its arms had been attached: no launch B, and these parts unknown."""
    outcomes = {
        role: msgspec.structs.replace(
            one, hardware={}, facts={"attached": f"http://{role}", "unknown": unknown[role]}
        )
        for role, one in cell.evidence.outcomes.items()
        if role != "B"
    }
    return replace(cell, evidence=msgspec.structs.replace(cell.evidence, outcomes=outcomes))


def result_of(cell: CellObservations) -> CellResult:
    return judge_sweep([cell], SETTINGS).results[0]


def test_what_is_not_known_is_a_notice_and_a_pass_says_that_there_was_one_off_server() -> None:
    result = result_of(
        attached(simulate(Pair()), on=["its hardware", "its own counters"], A=["its hardware"])
    )
    (notice,) = [one for one in result.findings if one.kind == "attached"]
    assert notice.text == (
        "attached, so not known: of both arms its hardware; of the on arm its own counters"
    )
    assert result.verdict is Verdict.PASS
    assert "against one off launch only" in result.reason


def test_a_pair_that_was_launched_has_no_such_notice() -> None:
    assert "attached" not in {one.kind for one in result_of(simulate(Pair())).findings}


def test_without_steps_and_counters_whether_it_speculated_is_not_known() -> None:
    none = np.zeros(0, np.int32)
    cell = simulate(Pair())
    bare = replace(cell, on=changed(cell.on, range(48), accepted=none, drafted=none))
    assert result_of(bare).verdict is Verdict.INACTIVE  # of a launch of ours it would be known
    result = result_of(attached(bare, on=["its own counters"], A=[]))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "whether the endpoint drafted is not known" in result.reason


def test_an_endpoint_that_is_away_is_an_error_in_its_words() -> None:
    cell = simulate(Pair())
    gone: dict[str, Any] = {
        **cell.evidence.outcomes,
        "on": outcome("on", LaunchEnd.AWAY, "http://b gave no healthy answer within 5 s"),
    }
    evidence = msgspec.structs.replace(cell.evidence, outcomes=gone)
    result = result_of(replace(cell, evidence=evidence))
    assert result.verdict is Verdict.ERROR
    assert result.reason == "the on arm is away: http://b gave no healthy answer within 5 s"
