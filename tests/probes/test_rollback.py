"""Planned drafts on an extra launch."""

from __future__ import annotations

import pytest
from driving import drive
from probe_sweeps import matrix, plan, workload

from matrixrun import probes
from matrixrun.evidence.launches import Role
from matrixrun.plan import EXTRA_ANSWERS, EXTRA_IN_FLIGHT, Node, Queue, render_text, select

PROBE = probes.get("rollback")
SECTIONS = {
    "probes": ["equality", "rollback"],
    "control": "within-launch",
    "workload": {"prompts": 5, "max_tokens": 24, "prompt_tokens": [4, 64]},
    "engines": {"vllm": {"kind": "vllm", "limits": {"block_size": 16}}},
}


def planned(**changes):
    sections = matrix(**{**SECTIONS, **changes})
    return sections, plan(sections)


def sent(role: Role, counters=lambda _: ({}, {}), **changes):
    sections, made = planned(**changes)
    launch = next(one for one in made.launches if one.role is role)
    cells = [cell for cell in made.cells if cell.id in launch.cells]
    passes = PROBE.passes(launch, cells, workload(), sections)
    return {one.id: one for one, _ in drive(passes, workload(), counters=counters)}


def test_an_extra_launch_is_planned_for_each_draft_length_and_shared_by_methods():
    grid = {
        **matrix().grid,
        "speculation": [
            {"method": "ngram", "num_speculative_tokens": 2},
            {"method": "suffix", "num_speculative_tokens": 2},
            {"method": "ngram", "num_speculative_tokens": 4},
        ],
    }
    _, made = planned(grid=grid)
    forced = [one for one in made.launches if one.role is Role.FORCED]
    assert sorted(one.id for one in forced) == ["forced.vllm.dense.k2", "forced.vllm.dense.k4"]
    for cell in made.cells:
        pair = next(pair for pair in made.pairs if pair.cell == cell.id)
        assert pair.forced.endswith(f".k{cell.axes['speculation'].num_speculative_tokens}")
    assert "custom_class" in " ".join(forced[0].command.argv)
    assert "forced.vllm.dense.k2 (extra: planned drafts)" in render_text(made)


def test_without_the_probe_there_is_none():
    _, made = planned(probes=["equality"])
    assert {one.role for one in made.launches} == {Role.ON, Role.A}
    assert all(pair.forced is None for pair in made.pairs)


def test_the_plan_counts_what_it_is_sent():
    passes = [one for name, one in sent(Role.FORCED).items() if name.startswith("rollback.b1.")]
    assert sum(len(one.requests) for one in passes) == EXTRA_ANSWERS[Role.FORCED]
    assert {one.concurrency for one in passes} == {EXTRA_IN_FLIGHT}


def test_the_off_launch_waits_for_it_and_a_part_of_a_plan_keeps_it():
    _, made = planned()
    part = select(made, [made.cells[0].id])
    assert {one.role for one in part.launches} == {Role.ON, Role.A, Role.FORCED}
    pending = [one for one in part.launches if one.role is not Role.ON]
    ready = Queue(pending).next([Node("n", 8.0, 0, None)], [])
    assert [one.launch.role for one in ready] == [Role.FORCED]


def test_the_continuation_is_learned_before_it_is_drafted():
    passes = sent(Role.FORCED)
    names = [name for name in passes if name.startswith("rollback.b8")]
    assert names == [
        "rollback.b8.learn.cold",
        *(f"rollback.b8.{part}" for part in ("cold", "warm", "ends")),
    ]
    assert passes["rollback.b8.cold"].salt != passes["rollback.b8.learn.cold"].salt


def test_the_warm_pass_finds_what_the_cold_one_cached():
    passes = sent(Role.FORCED)
    cold, warm = passes["rollback.b8.cold"], passes["rollback.b8.warm"]
    assert cold.salt == warm.salt
    assert [r.token_ids for r in cold.requests] == [r.token_ids for r in warm.requests]


def test_answers_cross_the_border_of_a_block_at_different_places():
    cold = sent(Role.FORCED)["rollback.b8.cold"]
    assert len({len(r.token_ids) % 16 for r in cold.requests}) > 8
    assert all(len(r.token_ids) // 16 < (len(r.token_ids) + 24) // 16 for r in cold.requests)


def test_more_than_two_requests_are_in_flight():
    passes = sent(Role.FORCED)
    assert {one.concurrency for one in passes.values()} == {4, 8}


def test_the_plain_on_arm_is_sent_nothing_and_the_off_launch_the_same_requests():
    assert sent(Role.ON) == {}
    forced, off = sent(Role.FORCED), sent(Role.A)
    for part in ("cold", "warm", "ends"):
        wanted = {r.id: r for r in forced[f"rollback.b8.{part}"].requests}
        for name in (f"rollback.b8.{part}", f"rollback.b8.null.{part}"):
            assert {r.id: r for r in off[name].requests} == wanted


def test_an_engine_without_a_place_for_planned_drafts_is_asked_for_nothing():
    changes = {
        "engines": {"vllm": {"kind": "llamacpp"}},
        "models": {"dense": {"target": {"path": "/tmp"}}},
    }
    _, made = planned(**changes)
    assert not [one for one in made.launches if one.role is Role.FORCED]
    assert sent(Role.A, **changes) == {}
    assert PROBE.sources(made.cells[0], made.pairs[0])["on"] == ()


def test_a_server_that_runs_already_is_asked_for_nothing():
    attached = {"kind": "vllm", "attach": {"off": "http://a:1", "on": "http://b:1"}}
    grid = {
        **matrix().grid,
        "speculation": {"method": "ngram", "num_speculative_tokens": 2},
        "batch_size": 8,
    }
    assert sent(Role.A, engines={"vllm": attached}, grid=grid) == {}


# -- preemptions -----------------------------------------------------------------------------------

CAPACITY = {"kv_cache_capacity_tokens": 300.0}


def outgrown(role: Role, preempts_in: str | None):
    """Return what is sent to outgrow a small cache of an engine that preempts in passes so named
    only; None for one that does not count it."""

    def counters(pass_):
        if preempts_in is None:
            return CAPACITY, CAPACITY
        grown = float(pass_.id.endswith(preempts_in))
        return {**CAPACITY, "num_preemptions": 0.0}, {**CAPACITY, "num_preemptions": grown}

    seen = sent(role, counters, grid={**matrix().grid, "batch_size": 8})
    return {name: one for name, one in seen.items() if "preempt" in name}


@pytest.mark.parametrize(
    ("when", "rounds"), [("b8.preempt0", 1), ("b8.preempt1", 2), ("never", 3), (None, 1)]
)
def test_planned_drafts_outgrow_the_cache_again_until_a_request_is_preempted(when, rounds):
    """What the learning pass preempts does not count: there are no drafts in it."""
    passes = outgrown(Role.FORCED, when)
    learned, *again = passes.values()
    assert list(passes) == [
        "rollback.b8.learn.preempt0",
        *(f"rollback.b8.preempt{number}" for number in range(rounds)),
    ]
    assert all(one.requests == learned.requests for one in again)
    assert len({one.salt for one in passes.values()}) == 1 + rounds


def test_the_off_launch_answers_them_once():
    assert list(outgrown(Role.A, "never")) == [
        "rollback.b8.preempt0",
        "rollback.b8.null.preempt0",
    ]


def test_requests_outgrow_a_cache_though_they_are_not_sent_together():
    """In the middle of their answers, as requests are that follow one another, they need more than
    there is."""
    requests = outgrown(Role.FORCED, "b8.preempt0")["rollback.b8.preempt0"].requests
    middle = sum(len(one.token_ids) + one.max_tokens / 2 for one in requests)
    assert middle > CAPACITY["kv_cache_capacity_tokens"]


def test_every_pass_that_may_be_sent_is_read():
    _, made = planned(grid={**matrix().grid, "batch_size": 8})
    pair = made.pairs[0]
    read = {one.pass_id for one in PROBE.sources(made.cells[0], pair)["on"]}
    everything = {**sent(Role.FORCED), **outgrown(Role.FORCED, "never")}
    assert read == {name for name in everything if ".b8." in name and ".learn." not in name}
