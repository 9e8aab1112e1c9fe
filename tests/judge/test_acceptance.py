"""Acceptance as we compute it from verification steps."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest

from matrixrun.evidence.requests import PassRecord
from matrixrun.evidence.verdicts import Severity, Verdict
from matrixrun.judge import Expectation, JudgeSettings, judge_sweep

from .simulator import Arm, Pair, changed, simulate

SETTINGS = JudgeSettings(detect_rate=0.1)
PAIR = Pair()
CELL = simulate(PAIR)
LENGTH = "acceptance/mean_acceptance_length"


def result_of(cell, settings=SETTINGS):
    return judge_sweep([cell], settings).results[0]


def with_counters(cell, **counters: float):
    names = {f"vllm:spec_decode_num_{name}_total": value for name, value in counters.items()}
    record = PassRecord(launch="on", pass_id="equality.b8", kind="observations", path="", sha256="",
                        requests=48, seconds=1.0, counters_before=dict.fromkeys(names, 0.0),
                        counters_after=names)  # fmt: skip
    return replace(cell, evidence=msgspec.structs.replace(cell.evidence, records={"on": record}))


def test_the_figures_follow_the_definitions():
    accepted = np.concatenate([one.accepted[:-1] for one in CELL.on])
    metrics = result_of(CELL).metrics
    assert metrics[LENGTH] == pytest.approx(1 + accepted.mean())
    assert metrics["acceptance/draft_acceptance_rate"] == pytest.approx(accepted.mean() / 3)
    for position in range(3):
        rate = metrics[f"acceptance/rate.position.{position}"]
        assert rate == pytest.approx((accepted > position).mean())
    assert metrics[f"{LENGTH}.low"] < metrics[LENGTH] < metrics[f"{LENGTH}.high"]


def test_each_category_of_prompts_has_a_figure_of_its_own():
    half = range(24)

    def labelled(observations):
        return changed(observations, half, category="code")

    cell = replace(CELL, on=labelled(CELL.on), off=labelled(CELL.off), null=labelled(CELL.null))
    metrics = result_of(cell).metrics
    for name, some in (("code", CELL.on[:24]), ("natural", CELL.on[24:])):
        accepted = np.concatenate([one.accepted[:-1] for one in some])
        value = metrics[f"acceptance/mean_length.category.{name}"]
        assert value == pytest.approx(1 + accepted.mean())
    assert not [name for name in result_of(CELL).metrics if "category" in name]


def test_the_last_step_of_a_request_counts_for_nothing():
    cut = tuple(
        replace(one, accepted=np.append(one.accepted[:-1], 0).astype(np.int32)) for one in CELL.on
    )
    changed_last = result_of(replace(CELL, on=cut))
    assert changed_last.metrics[LENGTH] == result_of(CELL).metrics[LENGTH]
    assert changed_last.coverage == result_of(CELL).coverage


def test_steps_without_an_order_count_all_of_them_whatever_order_they_come_in():
    def unordered(turned: bool):
        return tuple(
            replace(one, accepted=one.accepted[::-1] if turned else one.accepted,
                    steps_ordered=False)
            for one in CELL.on
        )  # fmt: skip

    accepted = np.concatenate([one.accepted for one in CELL.on])
    for turned in (False, True):
        result = result_of(replace(CELL, on=unordered(turned)))
        assert result.metrics[LENGTH] == pytest.approx(1 + accepted.mean())
        assert result.coverage["steps.verified"] == accepted.size
        assert "counters" not in {finding.kind for finding in result.findings}


def test_steps_with_a_shorter_draft_do_not_lower_the_rate():
    accepted, drafted = (
        lambda one: np.insert(one.accepted, 0, 0),
        lambda one: np.insert(one.drafted, 0, 1),
    )
    shorter = changed(CELL.on, range(48), accepted=accepted, drafted=drafted)
    assert result_of(replace(CELL, on=shorter)).metrics[LENGTH] == result_of(CELL).metrics[LENGTH]


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.8), (3.2, 4.0)])
def test_acceptance_outside_its_expectation_is_a_fault_on_either_side(low, high):
    expectation = Expectation(cell=CELL.cell.id, metric=LENGTH, low=low, high=high)
    result = result_of(CELL, msgspec.structs.replace(SETTINGS, expectations=(expectation,)))
    assert result.verdict is Verdict.FAIL
    assert {finding.kind for finding in result.findings} == {"acceptance"}


def test_acceptance_just_outside_its_expectation_is_a_notice():
    value = result_of(CELL).metrics[LENGTH]
    expectation = Expectation(cell=CELL.cell.id, metric=LENGTH, low=value + 0.01, high=4.0)
    result = result_of(CELL, msgspec.structs.replace(SETTINGS, expectations=(expectation,)))
    assert result.verdict is Verdict.PASS
    assert [finding.kind for finding in result.findings] == ["acceptance"]


def test_acceptance_of_a_cell_whose_outputs_fail_is_void():
    expectation = Expectation(cell=CELL.cell.id, metric=LENGTH, low=1.0, high=1.2)
    settings = msgspec.structs.replace(SETTINGS, expectations=(expectation,))
    broken = changed(CELL.on, [3], error="HTTP 500")
    result = result_of(replace(CELL, on=broken), settings)
    (finding,) = [one for one in result.findings if one.kind == "acceptance"]
    assert finding.severity is Severity.NOTICE
    assert finding.text.startswith("void")


def test_counters_that_disagree_with_the_steps_are_noticed():
    total = sum(int(one.accepted.sum()) for one in CELL.on)
    steps = sum(one.accepted.size for one in CELL.on)
    agreeing = with_counters(CELL, drafts=steps, draft_tokens=3 * steps, accepted_tokens=total + 40)
    assert result_of(agreeing).findings == ()
    doubled = with_counters(CELL, drafts=steps, draft_tokens=3 * steps, accepted_tokens=2 * total)
    assert [finding.kind for finding in result_of(doubled).findings] == ["counters"]


def test_without_per_step_data_the_counters_speak_and_coverage_is_unknown():
    none = np.zeros(0, np.int32)
    bare = replace(CELL, on=changed(CELL.on, range(48), accepted=none, drafted=none))
    result = result_of(with_counters(bare, drafts=900, draft_tokens=2700, accepted_tokens=1350))
    assert result.metrics[LENGTH] == pytest.approx(2.5)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "per-step" in result.reason
    silent = result_of(with_counters(bare, drafts=0, draft_tokens=0, accepted_tokens=0))
    assert silent.verdict is Verdict.INACTIVE


def without_steps(**counters: float):
    none = np.zeros(0, np.int32)
    bare = changed(CELL.on, range(48), accepted=none, drafted=none)
    return with_counters(replace(CELL, on=bare), **counters)


def expecting(low: float, high: float, metric: str = LENGTH) -> JudgeSettings:
    expectation = Expectation(cell=CELL.cell.id, metric=metric, low=low, high=high)
    return JudgeSettings(detect_rate=0.1, rejections_per_position=0, expectations=(expectation,))


@pytest.mark.parametrize(
    ("metric", "low", "high", "verdict"),
    [
        (LENGTH, 1.0, 1.8, Verdict.FAIL),
        (LENGTH, 3.2, 4.0, Verdict.FAIL),
        (LENGTH, 2.6, 3.0, Verdict.PASS),  # within what 48 requests leave open
        (LENGTH, 2.4, 2.6, Verdict.PASS),
        ("acceptance/draft_acceptance_rate", 0.8, 0.9, Verdict.FAIL),
    ],
)
def test_without_per_step_data_the_counters_are_held_against_the_expectation(
    metric, low, high, verdict
):
    cell = without_steps(drafts=900, draft_tokens=2700, accepted_tokens=1350)
    result = result_of(cell, expecting(low, high, metric))
    assert result.verdict is verdict
    departures = [one for one in result.findings if "expected" in one.numbers]
    inside = metric == LENGTH and low <= 2.5 <= high
    assert len(departures) == (0 if inside else 1)


def test_the_interval_of_counters_is_the_widest_that_so_many_requests_can_have():
    metrics = result_of(
        without_steps(drafts=900, draft_tokens=2700, accepted_tokens=1350), expecting(1, 4)
    ).metrics
    # All or nothing in each of 48 equal requests: a variance of 1.5 * (3 - 1.5), t with 47 degrees.
    reach = 2.0117 * (1.5 * 1.5 / 48) ** 0.5
    assert metrics[f"{LENGTH}.low"] == pytest.approx(2.5 - reach, abs=1e-3)
    assert metrics[f"{LENGTH}.high"] == pytest.approx(2.5 + reach, abs=1e-3)


@pytest.mark.parametrize(
    ("accepted", "verdict"), [(54, Verdict.INACTIVE), (135, Verdict.PASS), (0, Verdict.INACTIVE)]
)
def test_counters_that_show_hardly_a_draft_accepted_are_no_speculation(accepted, verdict):
    cell = without_steps(drafts=900, draft_tokens=2700, accepted_tokens=accepted)
    result = result_of(cell, JudgeSettings(detect_rate=0.1, rejections_per_position=0))
    assert result.verdict is verdict
    assert (verdict is Verdict.PASS) or f"{1 + accepted / 900:.3g}" in result.reason


@pytest.mark.parametrize(
    ("metric", "words"),
    [
        ("acceptance/mean_aceptance_length", "no figure has that name"),
        ("same/exact_match", "no figure has that name"),
        ("acceptance/rate.position.7", "this cell has no such figure"),
    ],
)
def test_an_expectation_without_a_figure_is_inconclusive_and_says_so(metric, words):
    result = result_of(CELL, expecting(0.0, 9.0, metric))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert f"{metric} is expected at 0 to 9, but {words}" in result.reason


def test_an_expectation_that_only_steps_could_meet_is_inconclusive_without_them():
    cell = without_steps(drafts=900, draft_tokens=2700, accepted_tokens=1350)
    result = result_of(cell, expecting(0.0, 1.0, "acceptance/rate.position.0"))
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "this cell has no such figure" in result.reason


def test_expectations_of_other_cells_are_not_this_ones():
    other = Expectation(cell="another", metric="acceptance/rate.position.7", low=0.0, high=1.0)
    settings = msgspec.structs.replace(SETTINGS, expectations=(other,))
    assert result_of(CELL, settings).verdict is Verdict.PASS


def test_acceptance_that_depends_on_the_batch_size_is_noticed():
    cells = [
        simulate(PAIR, cell_id="b1", batch_size=1),
        simulate(PAIR.seeded(1), cell_id="b8", batch_size=8),
        simulate(replace(PAIR.seeded(2), on=Arm(accept=0.4, seed=9)), cell_id="b32", batch_size=32),
    ]
    results = judge_sweep(cells, SETTINGS).results
    assert "acceptance-invariance" in {finding.kind for finding in results[2].findings}
    assert results[2].verdict is Verdict.PASS
    alike = judge_sweep(cells[:2], SETTINGS).results
    assert [result.findings for result in alike] == [(), ()]
