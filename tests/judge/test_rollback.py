"""The token right after each planned rejection."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from matrixrun.evidence.launches import LaunchEnd
from matrixrun.evidence.requests import Observation
from matrixrun.evidence.verdicts import Severity, Verdict
from matrixrun.judge import JudgeSettings, ProbeObserved
from matrixrun.judge.case import build_case
from matrixrun.judge.examination import examine
from matrixrun.judge.witnesses import ProbeExamination
from matrixrun.judge.witnesses.rollback import Rejection, account, examine_rollback

from .simulator import Pair, simulate

PAIR = Pair(prompts=12, tokens=40)


def answer(accepted, drafted, tokens: int, **fields) -> Observation:
    return Observation(
        request="r",
        prompt="p",
        category="c",
        token_ids=np.zeros(tokens, np.int32),
        accepted=np.array(accepted, np.int32),
        drafted=np.array(drafted, np.int32),
        **fields,
    )


def test_the_place_of_the_next_token_follows_from_the_steps():
    found = account(answer([0, 3, 1], [3, 3, 3], tokens=8))
    # 1 from the prompt, then 1, 4 and 2.
    assert found.rejections == (Rejection(0, 2), Rejection(1, 8))
    assert not found.ended_inside


def test_an_answer_cut_inside_an_accepted_draft_is_known_by_its_length():
    assert account(answer([0, 3], [3, 3], tokens=4)).ended_inside


def test_steps_that_do_not_add_up_say_nothing():
    assert account(answer([0], [3], tokens=9)) is None


def told(*, outcome: LaunchEnd | None = LaunchEnd.SERVED, answers=True, shift: float = 0.0,
         noisy_control: bool = False, ceiling: float | None = None):  # fmt: skip
    cell = simulate(PAIR)
    on = [replace(one, cached_tokens=16) for one in cell.on]
    changed, null = [], list(cell.null)
    for place, one in enumerate(on):
        logprobs = one.logprobs.copy()
        for rejection in account(one).rejections:
            if rejection.emitted < logprobs.size:
                logprobs[rejection.emitted] -= shift
                if noisy_control:
                    noisy = null[place].logprobs.copy()
                    noisy[rejection.emitted] -= shift
                    null[place] = replace(null[place], logprobs=noisy)
        changed.append(replace(one, logprobs=logprobs))
    arms = {"on": tuple(changed), "off": cell.off, "null": tuple(null)} if answers else {}
    observed = ProbeObserved(
        kind="rollback", compared=True, observations=arms, scores={}, records={}
    )
    outcomes = dict(cell.evidence.outcomes)
    if outcome is not None:
        outcomes["forced"] = msgspec.structs.replace(
            outcomes["on"], end=outcome, message="died of it", facts={"block_size": 8}
        )
    evidence = msgspec.structs.replace(cell.evidence, outcomes=outcomes)
    view = replace(cell, evidence=evidence, on=arms.get("on", ()), null=arms.get("null", ()))
    case = build_case(view, JudgeSettings(), 1) if answers else None
    seen = ProbeExamination(evidence, JudgeSettings(), observed, case)
    if ceiling is not None:
        equality = examine(build_case(cell, JudgeSettings(), 1))
        main = replace(equality, ceiling=replace(equality.ceiling, value=ceiling))
        seen = replace(seen, main=main)
    return examine_rollback(seen)


def test_next_tokens_that_are_valued_alike_are_no_finding():
    found = told()
    assert found.findings == ()
    assert found.metrics["rollback/next_tokens"] > 20
    assert found.metrics["rollback/next_token_shift.on"] == pytest.approx(0.0, abs=1e-6)


def test_a_next_token_that_is_valued_otherwise_is_a_fault_though_no_token_differs():
    (finding,) = told(shift=1.5).findings
    assert (finding.kind, finding.severity) == ("rollback", Severity.FAULT)
    assert finding.numbers["on"] == pytest.approx(1.5, abs=0.01)


def test_what_equalitys_answers_explain_is_no_finding():
    assert told(shift=1.5, ceiling=2.0).findings == ()
    assert [one.severity for one in told(shift=1.5, ceiling=1.0).findings] == [Severity.FAULT]


def test_what_the_control_shows_too_is_a_notice():
    (finding,) = told(shift=1.5, noisy_control=True).findings
    assert finding.severity is Severity.NOTICE


def test_rejections_are_counted_by_position_border_and_cached_prefix():
    coverage = told().coverage
    assert all(coverage[f"rollback.rejections.position.{place}"] > 0 for place in range(3))
    assert coverage["rollback.rejections.at_border"] > 0
    total = sum(coverage[f"rollback.rejections.position.{place}"] for place in range(3))
    assert coverage["rollback.rejections.reused_prefix"] == total


def test_a_launch_that_did_not_serve_leaves_the_cell_inconclusive_in_its_words():
    (objection,) = told(outcome=LaunchEnd.DIED, answers=False).objections
    assert objection.verdict is Verdict.INCONCLUSIVE
    assert "died of it" in objection.reason


def test_without_a_launch_with_planned_drafts_every_cause_is_told():
    found = told(outcome=None, answers=False)
    assert found.objections == ()
    (notice,) = found.findings
    assert notice.severity is Severity.NOTICE
    for cause in ("has no place for them", "how many to draft is not said", "it is attached"):
        assert cause in notice.text
