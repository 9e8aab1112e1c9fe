"""Turns that build on the answers before them."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable

import msgspec
import numpy as np
from driving import drive, reply
from probe_sweeps import matrix, plan, workload

from matrixrun import probes
from matrixrun.evidence.launches import Launch, Role
from matrixrun.evidence.requests import Observation, Request
from matrixrun.probes.conversation import CONVERSATIONS, MORE_ROUNDS, pass_ids
from matrixrun.workloads import Prompt, Workload

TURNS = 4
PROBE = probes.get("conversation")
SECTIONS = {
    "probes": ["equality", "conversation"],
    "control": "within-launch",
    "workload": {"prompts": 6, "max_tokens": 8, "prompt_tokens": [4, 16]},
}


def made(role: Role = Role.ON, *, prompts: Workload | None = None, **changes):
    """Return the passes sent to the launch of a role, with what came of them, and its cells."""
    sections = matrix(**{**SECTIONS, **changes})
    planned = plan(sections)
    launch = next(one for one in planned.launches if one.role is role)
    cells = [cell for cell in planned.cells if cell.id in launch.cells]
    prompts = prompts or workload()
    return drive(PROBE.passes(launch, cells, prompts, sections), prompts), launch, planned


def turns(seen, stem: str):
    return [pair for pair in seen if pair[0].id.startswith(stem)]


def test_every_turn_is_the_history_so_far_and_the_users_next_words():
    seen, _, _ = made()
    group = turns(seen, "conversation.b8.g1")
    assert [one.id for one, _ in group] == [f"conversation.b8.g1.t{t}" for t in range(1, TURNS + 1)]
    for (before, answered), (after, _) in itertools.pairwise(group):
        for request, answer, further in zip(
            before.requests, answered.observations, after.requests, strict=True
        ):
            history = request.token_ids + tuple(answer.token_ids.tolist())
            assert further.token_ids[: len(history)] == history
            assert len(further.token_ids) > len(history)


def test_turns_of_a_conversation_share_a_cache_namespace_and_groups_do_not():
    seen, _, _ = made()
    salts = {}
    for one, _ in seen:
        salts.setdefault(one.id.rpartition(".")[0], set()).add(one.salt)
    assert all(len(found) == 1 for found in salts.values())
    assert len({one.salt for one, _ in seen}) > len([key for key in salts if ".g" in key])


def test_no_more_conversations_are_held_side_by_side_than_can_be_in_flight():
    seen, _, _ = made()
    assert {len(one.requests) for one, _ in turns(seen, "conversation.b1.g")} == {1}
    assert all(one.concurrency == 1 for one, _ in turns(seen, "conversation.b1."))


def test_no_more_are_held_side_by_side_than_fit_into_the_cache():
    sections = matrix(**SECTIONS)
    planned = plan(sections)
    launch = next(one for one in planned.launches if one.role is Role.ON)
    capacity = 2.0 * launch.config.limits.max_model_len
    seen = drive(
        PROBE.passes(launch, planned.cells, workload(), sections),
        workload(),
        counters=lambda _: ({}, {"kv_cache_capacity_tokens": capacity}),
    )
    sizes = [len(one.requests) for one, _ in turns(seen, "conversation.b8.g") if "t1" in one.id]
    assert sizes == [1, 2, 2]


def test_turns_end_as_the_model_likes_at_stop_tokens_and_at_limits_that_differ():
    seen, _, _ = made()
    requests = [r for one, _ in turns(seen, "conversation.b8.g1") for r in one.requests]
    requests += [r for one, _ in turns(seen, "conversation.b8.g0") for r in one.requests]
    assert {r.category for r in requests} == {"natural", "stop", "length"}
    assert all(bool(r.sampling.stop_token_ids) == (r.category == "stop") for r in requests)
    limits = {r.max_tokens for r in requests if r.category == "length"}
    assert len(limits) == TURNS


def test_an_engine_that_stops_at_no_token_is_not_asked_to():
    engines = {"vllm": {"kind": "llamacpp"}}
    models = {"dense": {"target": {"path": "/tmp"}}}
    seen, _, _ = made(engines=engines, models=models)
    assert seen
    assert not [r for one, _ in seen for r in one.requests if r.sampling.stop_token_ids]


def test_later_turns_are_asked_again_over_histories_that_are_the_same_for_every_launch():
    def otherwise(request):
        answer = reply(request)
        return dataclasses.replace(answer, token_ids=answer.token_ids + 1)

    sections = matrix(**SECTIONS)
    planned = plan(sections)
    launch = next(one for one in planned.launches if one.role is Role.ON)
    written = []
    for answer in (reply, otherwise):
        passes = PROBE.passes(launch, planned.cells, workload(), sections)
        seen = drive(passes, workload(), answer=answer)
        written.append([one.requests for one, _ in seen if one.id.endswith(".written")])
    assert written[0] == written[1]
    assert {r.id[-3:] for one in written[0] for r in one} == {".w2", ".w3", ".w4"}


def test_a_conversation_that_does_not_fit_into_the_context_ends():
    engines = {"vllm": {"kind": "vllm", "limits": {"max_model_len": 26}}}
    seen, launch, _ = made(engines=engines)
    assert launch.config.limits.max_model_len == 26
    sizes = [len(r.token_ids) + r.max_tokens for one, _ in seen for r in one.requests]
    assert max(sizes) < 26
    assert not [one for one, _ in seen if one.id.endswith(f".t{TURNS}")]


def test_the_plan_leaves_room_for_whole_conversations():
    with_turns, without = (plan(matrix(**{**SECTIONS, "probes": p})) for p in
                           (["equality", "conversation"], ["equality"]))  # fmt: skip

    def longest(planned) -> int:
        return planned.launches[0].config.limits.max_model_len

    assert longest(with_turns) >= longest(without) + 3 * 8


def test_without_prefix_caching_nothing_is_sent():
    grid = {**matrix().grid, "prefix_caching": False}
    seen, _, _ = made(grid=grid)
    assert seen == []


def test_launch_a_holds_the_conversations_once_more_as_its_control():
    seen, launch, planned = made(Role.A)
    sent = {one.id for one, _ in seen}
    for pair in planned.pairs:
        cell = next(cell for cell in planned.cells if cell.id == pair.cell)
        sources = PROBE.sources(cell, pair)
        for arm in ("off", "null"):
            passes = [source.pass_id for source in sources[arm] if source.launch == launch.id]
            assert any(one.endswith(".t1") and one in sent for one in passes)
            assert any(one.endswith(".written") and one in sent for one in passes)
    assert sent == {
        source.pass_id
        for pair in planned.pairs
        for cell in planned.cells
        if cell.id == pair.cell
        for arm in ("off", "null")
        for source in PROBE.sources(cell, pair)[arm]
        if source.pass_id in sent
    }


def test_prompts_that_open_a_conversation_come_first_with_their_own_turns():
    opening = Prompt(
        id="chat-0", category="chat", token_ids=(1, 2, 3), follow_ups=((7, 8), (7, 9), (7, 10))
    )
    prompts = Workload(prompts=(*workload().prompts, opening), sha256="")
    seen, _, _ = made(prompts=prompts)
    group = turns(seen, "conversation.b1.g0")
    assert [r.prompt for one, _ in seen[:1] for r in one.requests] == ["conversation.chat-0"]
    assert group[1][0].requests[0].token_ids[-2:] == (7, 8)


def test_the_token_that_ended_an_answer_is_not_sent_twice():
    from matrixrun.probes.conversation import joined

    assert joined((1, 2, 0), (0, 5, 6)) == (1, 2, 0, 5, 6)
    assert joined((1, 2, 3), (0, 5, 6)) == (1, 2, 3, 0, 5, 6)


def test_a_conversation_whose_turn_failed_is_not_gone_on_with():
    def failing(request):
        answer = reply(request)
        if request.prompt == "conversation.p-1":
            return dataclasses.replace(answer, error="broke", token_ids=np.zeros(0, np.int32))
        return answer

    sections = matrix(**SECTIONS)
    planned = plan(sections)
    launch: Launch = msgspec.structs.replace(
        next(one for one in planned.launches if one.role is Role.ON)
    )
    seen = drive(
        PROBE.passes(launch, planned.cells, workload(), sections), workload(), answer=failing
    )
    later = [r for one, _ in turns(seen, "conversation.b8.g1")[1:] for r in one.requests]
    assert "conversation.p-1" not in {r.prompt for r in later}


def many(count: int = 40) -> Workload:
    """Prompts enough for further conversations."""
    prompts = tuple(
        Prompt(id=f"p-{number}", category="mixed", token_ids=tuple(range(number, number + 8)))
        for number in range(count)
    )
    return Workload(prompts=prompts, sha256="")


def ending(reached) -> Callable[[Request], Observation]:
    """Return a double whose answers end as asked where `reached` says so."""

    def answered(request: Request) -> Observation:
        ends = request.category == "length" or ".w" in request.id or not reached(request)
        return dataclasses.replace(reply(request), finish_reason="length" if ends else "stop")

    return answered


def further(reached) -> list[Request]:
    sections = matrix(**SECTIONS)
    planned = plan(sections)
    launch = next(one for one in planned.launches if one.role is Role.ON)
    passes = PROBE.passes(launch, planned.cells, many(), sections)
    seen = drive(passes, many(), answer=ending(reached))
    known = set(pass_ids("conversation.b8")) | set(pass_ids("conversation.b1"))
    assert {one.id for one, _ in seen} <= known
    groups = tuple(f"conversation.b8.g{CONVERSATIONS + place}." for place in range(MORE_ROUNDS))
    return [r for one, _ in seen if one.id.startswith(groups) for r in one.requests]


def test_where_every_end_came_no_further_conversation_is_held():
    assert further(lambda request: True) == []


def test_an_end_that_never_came_is_asked_for_by_further_prompts():
    asked = further(lambda request: request.category != "natural")
    assert {r.category for r in asked} == {"natural"}
    assert len({r.prompt for r in asked}) > 8
    assert {r.id[-3:] for r in asked} == {".t1", ".t2"}
    usual = matrix(**SECTIONS).workload.max_tokens
    assert {r.max_tokens for r in asked} == {2 * usual}


def test_they_stop_once_it_came():
    first = f"conversation.p-{CONVERSATIONS}"
    asked = further(lambda request: request.category != "natural" or request.prompt == first)
    whole = further(lambda request: request.category != "natural")
    assert 0 < len(asked) < len(whole)


def test_a_further_request_is_the_same_whatever_else_is_missing():
    natural = {r.id: r for r in further(lambda request: request.category != "natural")}
    both = {r.id: r for r in further(lambda request: False)}
    common = [name for name in natural.keys() & both.keys() if name.endswith(".t1")]
    assert common
    assert all(natural[name] == both[name] for name in common)
