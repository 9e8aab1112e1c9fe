"""The transitions at which engines break, brought about on purpose."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from driving import drive, reply
from probe_sweeps import matrix, plan, workload

from matrixrun import probes
from matrixrun.evidence.launches import Role
from matrixrun.evidence.requests import CANCELLED

PROBE = probes.get("pressure")
BLOCK = 16
PLENTY = {"kv_cache_capacity_tokens": 1e9, "num_preemptions": 0.0}


def engines(**limits):
    return {"vllm": {"kind": "vllm", "limits": {"block_size": BLOCK, **limits}}}


def made(role: Role = Role.ON, *, answer=reply, counters=lambda _: (PLENTY, PLENTY), **changes):
    """Return the passes sent to a role's launch with what came of them, by id, and the plan."""
    sections = matrix(
        **{
            "probes": ["equality", "pressure"],
            "control": "within-launch",
            "workload": {"prompts": 5, "max_tokens": 24, "prompt_tokens": [4, 64]},
            "engines": engines(),
            **changes,
        }
    )
    planned = plan(sections)
    launch = next(one for one in planned.launches if one.role is role)
    cells = [cell for cell in planned.cells if cell.id in launch.cells]
    passes = PROBE.passes(launch, cells, workload(), sections)
    seen = drive(passes, workload(), answer=answer, counters=counters)
    return {one.id: (one, answered) for one, answered in seen}, launch, planned


def lengths(pass_) -> set[int]:
    return {len(request.token_ids) for request in pass_.requests}


def test_prompts_are_as_long_as_a_verification_step_and_one_more_and_less():
    seen, _, _ = made(Role.A)
    assert lengths(seen["pressure.b8.k2"][0]) == {2, 3, 4}
    assert lengths(seen["pressure.b8.k4"][0]) == {4, 5, 6}


def test_a_cell_is_compared_on_the_lengths_about_its_own_draft_length():
    _, _, planned = made(Role.A)
    for cell in planned.cells:
        pair = next(pair for pair in planned.pairs if pair.cell == cell.id)
        own = cell.axes["speculation"].num_speculative_tokens
        for arm in ("on", "off", "null"):
            ids = [source.pass_id for source in PROBE.sources(cell, pair)[arm]]
            assert next(one for one in ids if ".k" in one).endswith(f".k{own}")


def test_prompts_lie_around_the_borders_of_blocks_and_chunks_and_near_the_longest_context():
    seen, launch, _ = made(engines=engines(max_num_batched_tokens=40))
    borders = lengths(seen["pressure.b8.borders"][0])
    assert {15, 16, 17, 31, 32, 33, 39, 40, 41} <= borders
    longest = launch.config.limits.max_model_len
    totals = {len(r.token_ids) + r.max_tokens for r in seen["pressure.b8.borders"][0].requests}
    assert max(totals) == longest - 1  # a scoring request generates one token more


def test_without_a_pinned_block_size_the_usual_ones_are_tried():
    seen, _, _ = made(engines={"vllm": {"kind": "vllm"}})
    assert {15, 17, 31, 33, 63, 65} <= lengths(seen["pressure.b8.borders"][0])


def test_the_identical_request_is_sent_three_times_alone():
    one = made()[0]["pressure.b8.identical"][0]
    assert one.concurrency == 1
    prompts = [request.token_ids for request in one.requests]
    assert all(prompts.count(ids) == 3 for ids in prompts)
    assert len({request.id for request in one.requests}) == len(prompts)


def test_no_request_is_longer_than_the_context():
    seen, launch, _ = made(counters=lambda _: (PLENTY, {"kv_cache_capacity_tokens": 200.0}))
    longest = launch.config.limits.max_model_len
    for one, _ in seen.values():
        assert all(len(r.token_ids) + r.max_tokens <= longest - 1 for r in one.requests)


def small(preempts_in: str):
    """Counters of an engine with a small cache, which preempts in the pass of that name only."""

    def counters(pass_):
        after = {
            "kv_cache_capacity_tokens": 300.0,
            "num_preemptions": float(pass_.id.endswith(preempts_in)),
        }
        return {**after, "num_preemptions": 0.0}, after

    return counters


@pytest.mark.parametrize(("when", "rounds"), [("preempt0", 1), ("preempt1", 2), ("never", 3)])
def test_more_is_asked_for_until_the_engine_preempts_and_then_no_more(when, rounds):
    seen, _, _ = made(counters=small(when))
    asked = [name for name in seen if "b8.preempt" in name]
    assert asked == [f"pressure.b8.preempt{number}" for number in range(rounds)]
    answers = [seen[name][0].requests[0].max_tokens for name in asked]
    assert answers == sorted(set(answers))


def test_nothing_is_asked_of_a_cache_that_holds_everything():
    seen, _, _ = made()
    assert not [name for name in seen if "preempt" in name or "evict" in name]


def test_one_request_alone_is_never_preempted():
    assert not [name for name in made(counters=small("never"))[0] if "b1.preempt" in name]


def test_prefixes_are_asked_for_again_until_some_were_evicted():
    def cached(rounds: int):
        def answer(request):
            again = request.id.rpartition(".again")[2]
            lost = again.isdigit() and int(again) == rounds
            return dataclasses.replace(reply(request), cached_tokens=0 if lost else 32)

        return answer

    for rounds in range(2):
        seen, _, _ = made(answer=cached(rounds), counters=small("preempt0"))
        evictions = [name for name in seen if name.startswith("pressure.b8.evict")]
        assert len(evictions) == rounds + 1
    shared, again = (seen[f"pressure.b8.{name}"][0] for name in ("shared", "again0"))
    assert shared.salt == again.salt
    assert [r.token_ids for r in shared.requests] == [r.token_ids for r in again.requests]


def test_every_other_request_is_dropped_in_flight_and_comes_once_more():
    seen, _, _ = made()
    requests = seen["pressure.b8.cancel0"][0].requests
    victims = [r for r in requests if r.cancel_after is not None]
    retries = [r for r in requests if r.id.endswith(".retry")]
    assert victims == list(requests[1 : 2 * len(victims) : 2])
    assert [r.token_ids for r in victims] == [r.token_ids for r in retries]
    bystanders = [r for r in requests if r not in victims and r not in retries]
    assert len(bystanders) == len(victims)
    shared = min(len(r.token_ids) for r in bystanders) - 9
    assert len({r.token_ids[:shared] for r in requests}) == 1


def test_requests_are_dropped_sooner_until_one_really_was():
    def dropping(request):
        if request.cancel_after is not None and request.id.startswith("pressure.cancel1"):
            nothing = np.zeros(0, np.int32)
            return dataclasses.replace(reply(request), token_ids=nothing, finish_reason=CANCELLED)
        return reply(request)

    seen, _, _ = made(answer=dropping)
    rounds = [one for name, (one, _) in seen.items() if "b8.cancel" in name]
    assert len(rounds) == 2
    delays = [
        {r.cancel_after for r in one.requests if r.cancel_after is not None} for one in rounds
    ]
    assert min(delays[0]) > min(delays[1])


def test_the_first_requests_come_once_more_at_the_end():
    seen, _, _ = made()
    assert list(seen)[-1] == "pressure.b8.end"
    first = seen["pressure.b8.borders"][0].requests
    end = seen["pressure.b8.end"][0].requests
    assert [r.token_ids for r in end] == [r.token_ids for r in first[: len(end)]]


def test_every_launch_gets_the_same_requests_and_a_its_null_too():
    on, _, _ = made()
    off, _, _ = made(Role.A)

    def sent(seen, name):
        return {(r.id, r.token_ids, r.max_tokens) for r in seen[name][0].requests}

    for name in on:
        if ".k" not in name:
            assert sent(on, name) == sent(off, name)
            null = name.replace(".b8.", ".b8.null.").replace(".b1.", ".b1.null.")
            assert sent(off, name) == sent(off, null)
