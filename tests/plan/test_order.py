"""Which launches start, and when."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_matrices import GRID, plan

from matrixrun.evidence.launches import Gang, Role
from matrixrun.plan import Capacity, fits, next_launches, unfit


def wide(control: str = "between-launches"):
    """Return a plan with gangs of 1, 2 and 4 accelerators."""
    return plan(
        grid={**GRID, "tensor_parallel_size": [1, 2, 4]},
        engines={"vllm": {"kind": "vllm", "install": ["vllm==0.32.0"]}},
        resources={"accelerator": "H100", "memory_gib_per_rank": 1},
        control=control,
    )


PLANS = [wide("between-launches"), wide("within-launch")]


def simulate(made, total: Capacity, seed: int):
    """Run `made` with launches ending in random order; return events `(start or end, launch)`."""
    pending, running, events = list(made.launches), [], []
    chance = random.Random(seed)
    while pending or running:
        free = Capacity(
            accelerators=total.accelerators - sum(x.gang.accelerators for x in running),
            cpus=total.cpus - sum(x.gang.cpus for x in running),
            memory_bytes=total.memory_bytes - sum(x.gang.memory_bytes for x in running),
        )
        assert min(free.accelerators, free.cpus, free.memory_bytes) >= 0
        for launch in next_launches(pending, running, free):
            pending.remove(launch)
            running.append(launch)
            events.append(("start", launch))
        if not running:
            break
        running.remove(ended := chance.choice(running))
        events.append(("end", ended))
    return events


@settings(max_examples=60, deadline=None)
@given(
    made=st.sampled_from(PLANS),
    accelerators=st.integers(1, 12),
    cpus=st.integers(1, 12),
    gib=st.integers(1, 12),
    seed=st.integers(0, 10**6),
)
def test_what_fits_starts_once_and_a_scorer_after_all_that_it_scores(
    made, accelerators, cpus, gib, seed
):
    total = Capacity(accelerators=accelerators, cpus=cpus, memory_bytes=gib * 2**30)
    events = simulate(made, total, seed)
    started = [launch.id for kind, launch in events if kind == "start"]
    assert len(started) == len(set(started))
    never = {launch.id for launch in unfit(made.launches, total)}
    # What waits for a launch that never fits does not start either; fanout reports both.
    assert set(started) | never == {launch.id for launch in made.launches}
    ended: set[str] = set()
    for kind, launch in events:
        if kind == "end":
            ended.add(launch.id)
        elif launch.role is Role.A:
            (group,) = (g for g in made.groups if g.scorer == launch.id)
            assert {*group.on, *filter(None, [group.null])} <= ended


def test_alone_launches_run_group_by_group_the_scorer_last():
    made = PLANS[0]
    largest = Capacity(accelerators=4, cpus=4, memory_bytes=4 * 2**30)
    serial, pending = [], list(made.launches)
    while pending:
        first = next_launches(pending, [], largest)[0]
        pending.remove(first)
        serial.append(first.id)
    assert serial == [launch.id for launch in made.launches]
    assert made.launches[3].role is Role.A
    assert {launch.role for launch in made.launches[:3]} == {Role.ON, Role.B}


def test_wide_groups_come_before_narrow_ones_and_long_launches_before_short_ones():
    made = PLANS[0]
    widths = [launch.gang.accelerators for launch in made.launches]
    assert widths == sorted(widths, reverse=True)
    for group in made.groups:
        others = [x.seconds for x in made.launches if x.id in (*group.on, group.null)]
        assert others == sorted(others, reverse=True)


def test_a_narrow_launch_passes_a_wide_one_that_does_not_fit():
    made = PLANS[0]
    chosen = next_launches(made.launches, [], Capacity(accelerators=2, cpus=9))
    assert chosen
    assert all(launch.gang.accelerators <= 2 for launch in chosen)


def test_a_scorer_waits_for_a_launch_that_is_still_running():
    made = PLANS[1]
    group = made.groups[0]
    by_id = {launch.id: launch for launch in made.launches}
    scorer, last = by_id[group.scorer], by_id[group.on[0]]
    free = Capacity(accelerators=8, cpus=8)
    assert next_launches([scorer], [last], free) == []
    assert next_launches([scorer], [], free) == [scorer]


@pytest.mark.parametrize(
    ("free", "enough"),
    [
        (Capacity(accelerators=2, cpus=2, memory_bytes=100), True),
        (Capacity(accelerators=1, cpus=2, memory_bytes=100), False),
        (Capacity(accelerators=2, cpus=1, memory_bytes=100), False),
        (Capacity(accelerators=2, cpus=2, memory_bytes=99), False),
        (Capacity(accelerators=2, cpus=2), True),
    ],
)
def test_a_gang_needs_all_it_holds_at_once(free, enough):
    assert fits(Gang(accelerators=2, cpus=2, memory_bytes=100), free) == enough
