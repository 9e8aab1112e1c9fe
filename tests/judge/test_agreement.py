"""The same target and draft on two engines, or two versions of one, are accepted alike."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from matrixrun.evidence.cells import Speculation
from matrixrun.evidence.verdicts import CellResult, Finding, Verdict
from matrixrun.judge import CellObservations, JudgeSettings, judge_sweep

from .simulator import Arm, Pair, simulate

SETTINGS = JudgeSettings(detect_rate=0.1, rejections_per_position=1)
DRAFT = Speculation(method="draft_model", draft="small", num_speculative_tokens=3)


def cell(
    engine: str, accept: float, *, seed: int = 0, facts: dict[str, Any] | None = None, **axes: Any
) -> CellObservations:
    """A cell of an engine whose drafter is accepted so often at each position."""
    pair = replace(Pair().seeded(seed), on=Arm(accept=accept, seed=seed + 1))
    given = {"engine": engine, "speculation": DRAFT, **axes}
    made = simulate(pair, cell_id=f"{engine}.{len(given)}", **given)
    outcomes = {
        role: msgspec.structs.replace(one, facts=facts or {})
        for role, one in made.evidence.outcomes.items()
    }
    return replace(made, evidence=msgspec.structs.replace(made.evidence, outcomes=outcomes))


def judged(*cells: CellObservations) -> dict[str, CellResult]:
    results = judge_sweep(cells, SETTINGS).results
    return {str(one.cell.axes["engine"]): one for one in results}


def findings(result: CellResult) -> list[Finding]:
    return [one for one in result.findings if one.kind == "acceptance-invariance"]


def test_a_draft_that_one_engine_hardly_accepts_is_told_on_both_sides() -> None:
    """The public report: 1.06 accepted tokens per window against 2.8, with equal output."""
    results = judged(cell("vllm", 0.75), cell("sglang", 0.15, seed=1))
    (here,), (there,) = findings(results["vllm"]), findings(results["sglang"])
    assert here.numbers["value"] > 2.2 > 1.3 > here.numbers["other_value"]
    assert here.numbers["value"] == there.numbers["other_value"]
    assert here.numbers["interval"][0] > here.numbers["other_interval"][1]
    assert here.numbers["other"].startswith("sglang")
    assert "on vllm and" in here.text
    assert "on sglang and" in there.text
    assert results["vllm"].verdict is Verdict.PASS  # a notice: which one is wrong is not known


@pytest.mark.parametrize("seed", range(8))
def test_engines_that_accept_alike_say_nothing(seed: int) -> None:
    results = judged(cell("old", 0.6, seed=seed), cell("new", 0.6, seed=seed + 100))
    assert not any(findings(one) for one in results.values())


def test_versions_and_settings_that_differ_are_named_and_equal_ones_are_not() -> None:
    old = {"engine": "vllm", "version": "0.31.0", "dtype": "bfloat16", "block_size": 16}
    results = judged(
        cell("old", 0.8, facts=old),
        cell("new", 0.2, seed=1, facts={**old, "version": "0.32.0", "block_size": 32}),
    )
    (finding,) = findings(results["new"])
    assert finding.numbers["differing"] == [
        "vllm 0.32.0 against vllm 0.31.0", "block_size 32 against 16",
    ]  # fmt: skip
    assert "What differs besides: vllm 0.32.0 against vllm 0.31.0; block_size 32" in finding.text


def test_options_of_the_speculation_are_among_them() -> None:
    wide = msgspec.structs.replace(DRAFT, method="STANDALONE", options={"topk": 4})
    (finding,) = findings(
        judged(cell("vllm", 0.8), cell("sglang", 0.2, seed=1, speculation=wide))["sglang"]
    )
    assert "method STANDALONE against draft_model" in finding.numbers["differing"]
    assert "topk 4 against unset" in finding.numbers["differing"]


@pytest.mark.parametrize(
    "other",
    [
        {"speculation": msgspec.structs.replace(DRAFT, draft="other")},
        {"speculation": msgspec.structs.replace(DRAFT, num_speculative_tokens=2)},
        {"quantization": "fp8"},
        {"model": "another"},
    ],
)
def test_what_is_not_the_same_pair_is_not_compared(other: dict[str, Any]) -> None:
    results = judged(cell("vllm", 0.8), cell("sglang", 0.2, seed=1, **other))
    assert not any(findings(one) for one in results.values())


def test_an_engine_without_steps_is_compared_by_its_own_count() -> None:
    bare = cell("sglang", 0.2, seed=1)
    none = np.zeros(0, np.int32)
    on = tuple(replace(one, accepted=none, drafted=none) for one in bare.on)
    counters = {"num_drafts": 900.0, "num_draft_tokens": 2700.0, "num_accepted_tokens": 90.0}
    outcomes = dict(bare.evidence.outcomes)
    outcomes["on"] = msgspec.structs.replace(
        outcomes["on"], counters_before=dict.fromkeys(counters, 0.0), counters_after=counters
    )
    evidence = msgspec.structs.replace(bare.evidence, outcomes=outcomes)
    results = judged(cell("vllm", 0.8), replace(bare, on=on, evidence=evidence))
    (finding,) = findings(results["vllm"])
    assert finding.numbers["other_value"] == pytest.approx(1.1)
