"""What a plan says of itself beforehand."""

import re

import pytest
from plan_matrices import plan

from matrixrun.judge import required_requests


def notes(sensitivity=1.0, **workload) -> str:
    detect = {"request_fault_rate": 0.1, "confidence": 0.95, "sensitivity": sensitivity}
    return "\n".join(plan(workload=workload, detect=detect).notes)


def test_too_few_requests_are_said_with_both_ways_out():
    text = notes(prompts=20, max_tokens=48)
    assert "needs 29 requests a cell at 95%; workload.prompts is 20" in text
    assert "INCONCLUSIVE" in text
    assert "`prompts: 29`" in text
    advised = float(re.search(r"request_fault_rate: ([\d.]+)`", text)[1])
    assert required_requests(advised, 0.95) <= 20


def test_enough_requests_are_not_complained_about():
    text = notes(prompts=29, max_tokens=48)
    assert "INCONCLUSIVE" not in text
    assert re.search(r"29 requests a cell show a fault that touches 9\.\d+% of requests", text)


def test_the_price_of_smaller_rates_is_told():
    text = notes(prompts=29, max_tokens=48)
    assert "1.0% takes 299 requests a cell, 10.3 times as many" in text
    assert "0.1% takes 2,995 requests" in text
    assert "takes 299 requests" not in notes(prompts=300, max_tokens=48)


def test_effects_that_are_seen_in_half_of_the_requests_take_twice_as_many():
    assert "needs 59 requests a cell" in notes(sensitivity=0.5, prompts=29, max_tokens=48)


def test_a_sensitivity_at_which_nothing_can_be_shown_is_told():
    text = notes(sensitivity=0.001, prompts=29, max_tokens=48)
    assert "show no fault" in text
    assert "request_fault_rate: 1`" not in text
    assert "100.00%" not in text


def test_step_faults_are_put_beside_request_faults():
    # One in 500 steps hits 6.2 % of requests of 32 steps: 47 requests show it.
    text = notes(prompts=47, max_tokens=64)
    steps = int(re.search(r"1 of (\d+) verification steps, at some 32 steps", text)[1])
    assert steps == pytest.approx(500, abs=5)


def test_the_whole_sweep_sees_less_than_one_cell():
    text = notes(prompts=100, max_tokens=48)
    cell = float(re.search(r"touches ([\d.]+)%", text)[1])
    sweep = float(re.search(r"all 8 cells at once.*to ([\d.]+)%", text)[1])
    assert cell < sweep


def test_a_control_within_the_launch_says_what_it_leaves_out():
    assert any("no second off launch" in note for note in plan().notes)
    assert not any("second off" in note for note in plan(control="between-launches").notes)


@pytest.mark.parametrize("change", [{"prompts": 600}, {"max_tokens": 1024}])
def test_more_to_send_takes_longer(change):
    assert plan(workload=change).seconds > plan().seconds


def test_every_launch_costs_its_start():
    made = plan(workload={"prompts": 1, "max_tokens": 1})
    assert all(launch.seconds >= 30 for launch in made.launches)
    assert made.seconds == pytest.approx(sum(x.seconds for x in made.launches), abs=1)


def test_a_launch_for_a_probe_costs_its_start_and_some_dozens_of_answers():
    made = plan(
        workload={"prompts": 300, "max_tokens": 64},
        probes=["equality", "rollback", "ledger"],
        engines={"vllm": {"kind": "vllm", "limits": {"block_size": 16}}},
    )
    bare = plan(
        workload={"prompts": 1, "max_tokens": 1},
        probes=["equality", "rollback", "ledger"],
        engines={"vllm": {"kind": "vllm", "limits": {"block_size": 16}}},
    )
    start = {one.id: one.seconds for one in bare.launches}
    sent = {one.id: one.seconds - start[one.id] for one in made.launches}
    whole = min(sent[one.id] for one in made.launches if one.role == "on")
    extra = {one.role: sent[one.id] for one in made.launches if one.role.extra}
    assert set(extra) == {"forced", "traced"}
    assert all(0 < seconds < whole / 4 for seconds in extra.values())


def test_gangs_side_by_side_take_less_than_one_after_the_other():
    grid = {
        "engine": "vllm",
        "model": "dense",
        "tensor_parallel_size": [1, 2],
        "speculation": {"method": "ngram", "num_speculative_tokens": 2},
    }
    made = plan(grid=grid)
    narrow, wide = (sum(x.seconds for x in made.launches if x.gang.cpus == cpus) for cpus in (1, 2))
    assert made.seconds == pytest.approx(wide + narrow / 2, abs=1)
