"""The launch whose scheduler keeps a ledger, and what it is sent."""

from __future__ import annotations

from driving import drive
from probe_sweeps import matrix, plan, workload

from matrixrun import probes
from matrixrun.evidence.launches import Role
from matrixrun.plan import EXTRA_ANSWERS, Node, Queue, render_text
from matrixrun.workloads import Prompt, Workload

PROBE = probes.get("ledger")
SMALL_CACHE = {"kv_cache_capacity_tokens": 64.0}
SECTIONS = {
    "probes": ["equality", "ledger"],
    "control": "within-launch",
    "workload": {"prompts": 5, "max_tokens": 24, "prompt_tokens": [4, 64]},
    "engines": {"vllm": {"kind": "vllm", "limits": {"block_size": 16}}},
}


def texts() -> Workload:
    """Return prompts with their texts, from which stop strings are taken."""
    prompts = tuple(
        Prompt(id=one.id, category=one.category, token_ids=one.token_ids, text="the sea the door")
        for one in workload().prompts
    )
    return Workload(prompts=prompts, sha256="")


def sent(
    role: Role = Role.TRACED, *, prompts: Workload | None = None, capacity=SMALL_CACHE, **changes
):
    sections = matrix(**{**SECTIONS, **changes})
    made = plan(sections)
    launch = next(one for one in made.launches if one.role is role)
    cells = [cell for cell in made.cells if cell.id in launch.cells]
    prompts = texts() if prompts is None else prompts
    passes = PROBE.passes(launch, cells, prompts, sections)
    seen = drive(passes, prompts, counters=lambda _: (capacity, {**capacity, "num_preemptions": 0}))
    return {one.id: one for one, _ in seen}


def test_every_on_arm_has_a_traced_launch_and_the_off_launch_waits_for_it():
    made = plan(matrix(**SECTIONS))
    traced = [one for one in made.launches if one.role is Role.TRACED]
    assert len(traced) == len([one for one in made.launches if one.role is Role.ON]) == 2
    for one in traced:
        assert one.command.argv[-2:] == ("--scheduler-cls", "matrixrun_ledger.scheduler")
        assert one.command.env["MATRIXRUN_LEDGER"] == "$LEDGER"
        assert f"{one.id} (extra: keeps a ledger)" in render_text(made)
    pending = [one for one in made.launches if one.role is not Role.ON]
    ready = Queue(pending).next([Node("n", 8.0, 0, None)], [])
    assert {one.launch.role for one in ready} == {Role.TRACED}


def test_the_plan_counts_what_it_is_sent_where_the_cache_is_large_and_the_first_drop_succeeds():
    passes = sent(capacity={}).items()
    counted = [f"ledger.b1.{part}" for part in ("turns", "again", "cancel0")]
    found = [len(one.requests) for name, one in passes if name in counted]
    assert sum(found) == EXTRA_ANSWERS[Role.TRACED]
    assert not any("preempt" in name for name, _ in passes)


def test_without_the_probe_there_is_none():
    made = plan(matrix(**{**SECTIONS, "probes": ["equality"]}))
    assert {one.role for one in made.launches} == {Role.ON, Role.A}


def test_an_engine_without_a_place_for_it_and_a_server_that_runs_already_have_none():
    llamacpp = {
        "engines": {"vllm": {"kind": "llamacpp"}},
        "models": {"dense": {"target": {"path": "/tmp"}}},
    }
    attached = {
        "engines": {
            "vllm": {"kind": "vllm", "attach": {"off": "http://a", "on": "http://b"}},
        },
        "grid": {
            **matrix().grid,
            "batch_size": 8,
            "speculation": {"method": "ngram", "num_speculative_tokens": 2},
        },
    }
    for changes in (llamacpp, attached):
        made = plan(matrix(**{**SECTIONS, **changes}))
        assert all(pair.traced is None for pair in made.pairs)
        assert PROBE.sources(made.cells[0], made.pairs[0]) == {"on": ()}


def test_no_other_launch_is_sent_anything():
    assert sent(Role.ON) == {}
    assert sent(Role.A) == {}


def test_answers_end_in_every_way_the_engine_knows():
    turns = sent()["ledger.b8.turns"].requests
    assert {one.category for one in turns} == {"natural", "stop", "string", "length"}
    for one in turns:
        assert bool(one.sampling.stop_token_ids) == (one.category == "stop")
        assert bool(one.sampling.stop) == (one.category == "string")
        assert one.sampling.ignore_eos == (one.category in ("string", "length"))
    assert {one.sampling.stop for one in turns if one.category == "string"} == {("do", "ea", "he")}


def test_without_texts_no_answer_is_to_end_at_a_string():
    assert not [
        r for one in sent(prompts=workload()).values() for r in one.requests if r.sampling.stop
    ]
    stored = sent(store_text=False)
    assert not [r for one in stored.values() for r in one.requests if r.sampling.stop]


def test_the_same_requests_come_again_on_the_cached_prefixes():
    passes = sent()
    turns, again = passes["ledger.b8.turns"], passes["ledger.b8.again"]
    assert turns.salt == again.salt
    assert [r.token_ids for r in turns.requests] == [r.token_ids for r in again.requests]


def test_a_small_cache_is_outgrown_and_requests_are_dropped():
    passes = sent()
    assert {"ledger.b8.preempt0", "ledger.b8.preempt2", "ledger.b8.cancel0"} <= set(passes)
    assert any(r.cancel_after for r in passes["ledger.b8.cancel0"].requests)
    assert "ledger.b8.preempt0" not in sent(capacity={"kv_cache_capacity_tokens": 1e6})
