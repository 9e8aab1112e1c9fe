"""The off arm must be off: what it drafts, counts or says of itself tells."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from matrixrun.evidence.requests import PassRecord
from matrixrun.evidence.verdicts import Severity, Verdict
from matrixrun.judge import JudgeSettings, judge_sweep

from .simulator import Arm, Pair, answer, evidence, outcome, simulate

SETTINGS = JudgeSettings(detect_rate=0.1)
LEAKY = Arm(accept=0.7, seed=1, let_through=0.05)


def result_of(cell, pair):
    first = judge_sweep([cell], SETTINGS)
    cell = replace(cell, confirmations=answer(pair, first.wants))
    return judge_sweep([cell], SETTINGS).results[0]


@pytest.mark.parametrize("arm", ["off", "null"])
def test_an_off_arm_that_drafts_is_an_unsound_baseline(arm):
    pair = Pair(**{arm: Arm(accept=0.7, seed=2)})
    cell = simulate(pair)
    drafted = sum(int(one.drafted.sum()) for one in getattr(cell, arm))
    result = result_of(cell, pair)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert f"speculates: it drafted {drafted} tokens" in result.reason


def test_what_is_measured_against_an_off_arm_that_drafts_is_void():
    pair = Pair(on=LEAKY, off=Arm(accept=0.7, seed=2))
    result = result_of(simulate(pair), pair)
    assert result.verdict is Verdict.INCONCLUSIVE
    told = [one for one in result.findings if one.kind == "unexplained-token"]
    assert told
    assert all(one.severity is Severity.NOTICE for one in told)


@pytest.mark.parametrize("role", ["A", "B"])
@pytest.mark.parametrize(
    "facts", [{"speculative_method": "ngram", "speculative_num_speculative_tokens": 4},
              {"speculative": True}],
)  # fmt: skip
def test_an_off_engine_that_reports_speculation_is_an_unsound_baseline(role, facts):
    pair = Pair()
    said = evidence(ends={role: outcome(role, facts=facts)})
    result = result_of(replace(simulate(pair), evidence=said), pair)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "speculates: its engine reports speculative" in result.reason


def test_an_engine_that_reports_no_speculation_on_the_off_arms_is_believed():
    pair = Pair()
    facts = {"A": {"speculative": False}, "B": {"speculative": False}, "on": {"speculative": True}}
    said = evidence(ends={role: outcome(role, facts=given) for role, given in facts.items()})
    assert result_of(replace(simulate(pair), evidence=said), pair).verdict is Verdict.PASS


@pytest.mark.parametrize(("counted", "verdict"), [(90.0, Verdict.INCONCLUSIVE), (0, Verdict.PASS)])
def test_drafts_that_the_off_engine_counted_tell_where_it_gives_no_steps(counted, verdict):
    pair = Pair()
    cell = simulate(pair)
    assert not any(np.any(one.drafted) for one in cell.off)
    name = "spec_decode_num_draft_tokens"
    record = PassRecord(launch="A", pass_id="equality.b8", kind="observations", path="", sha256="",
                        requests=48, seconds=1.0, counters_before={name: 7.0},
                        counters_after={name: 7.0 + counted})  # fmt: skip
    said = msgspec.structs.replace(cell.evidence, records={"off": record})
    result = result_of(replace(cell, evidence=said), pair)
    assert result.verdict is verdict
    assert ("counted 90 drafted" in result.reason) is bool(counted)
