"""Which launches start, when, and on which nodes."""

import random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_matrices import GRID, plan

from matrixrun.evidence.launches import Gang, Launch, Role
from matrixrun.plan import Node, Placement, Queue, Running, holds, share, unfit
from matrixrun.plan.nodes import fits, less, more

H = "H100"


def wide(control: str = "between-launches"):
    """Return a plan with gangs of 1, 2 and 4 accelerators."""
    return plan(
        grid={**GRID, "tensor_parallel_size": [1, 2, 4]},
        engines={"vllm": {"kind": "vllm", "install": ["vllm==0.32.0"]}},
        resources={"accelerator": H, "memory_gib_per_rank": 1},
        control=control,
    )


PLANS = [wide("between-launches"), wide("within-launch")]
SOME = PLANS[0].launches[0]


def launch(name: str, accelerators: int, seconds: float, *, nodes: int = 1) -> Launch:
    """A launch that waits for nothing."""
    gang = Gang(accelerators=accelerators, accelerator=H, cpus=accelerators, nodes=nodes)
    return msgspec.structs.replace(
        SOME, id=name, role=Role.ON, gang=gang, cells=(name,), seconds=seconds
    )


def empty(*sizes: int) -> list[Node]:
    return [Node(f"n{i}", 64, size, H, 2**40) for i, size in enumerate(sizes)]


def ids(placements: list[Placement]) -> list[str]:
    return [placement.launch.id for placement in placements]


def run(launches, nodes: list[Node], seed: int):
    """Run launches that end in random order; return events `(start or end, placement)`."""
    queue, running, events = Queue(launches), [], []
    free = {node.id: node for node in nodes}
    chance = random.Random(seed)
    while True:
        held = [Running(one, chance.choice([0.0, 50.0, 1e4])) for one in running]
        for placement in queue.next(list(free.values()), held):
            part = share(placement.launch.gang)
            assert len(set(placement.nodes)) == placement.launch.gang.nodes
            for name in placement.nodes:
                assert fits(part, free[name])
                free[name] = less(free[name], part)
            running.append(placement)
            events.append(("start", placement.launch))
        if not running:
            return events, len(queue)
        ended = running.pop(chance.randrange(len(running)))
        for name in ended.nodes:
            free[name] = more(free[name], share(ended.launch.gang))
        queue.ended(ended.launch)
        events.append(("end", ended.launch))


@settings(max_examples=60, deadline=None)
@given(
    made=st.sampled_from(PLANS),
    sizes=st.lists(st.integers(1, 8), min_size=1, max_size=4),
    seed=st.integers(0, 10**6),
)
def test_what_fits_starts_once_and_a_scorer_after_all_that_it_scores(made, sizes, seed):
    nodes = empty(*sizes)
    events, _ = run(made.launches, nodes, seed)
    started = [one.id for kind, one in events if kind == "start"]
    assert len(started) == len(set(started))
    never = {one.id for one in unfit(made.launches, nodes)}
    # Gangs of one group are alike: what waits for one that never fits does not fit itself.
    assert set(started) | never == {one.id for one in made.launches}
    ended: set[str] = set()
    for kind, one in events:
        if kind == "end":
            ended.add(one.id)
        elif one.role is Role.A:
            (group,) = (g for g in made.groups if g.scorer == one.id)
            assert {*group.on, *filter(None, [group.null])} <= ended


def test_a_scorer_waits_for_a_launch_that_is_still_running():
    made = PLANS[1]
    group = made.groups[0]
    mine = [one for one in made.launches if one.id in (*group.on, group.scorer)]
    queue = Queue(mine)
    placed = queue.next(empty(16), [])
    assert group.scorer not in ids(placed)
    assert len(placed) == len(group.on)
    for placement in placed[:-1]:
        queue.ended(placement.launch)
    assert queue.next(empty(16), []) == []
    queue.ended(placed[-1].launch)
    assert ids(queue.next(empty(16), [])) == [group.scorer]


def test_what_the_longest_work_hangs_on_comes_first_then_what_is_wide():
    queue = Queue([launch("short", 1, 10), launch("wide", 4, 50), launch("long", 1, 50)])
    assert ids(queue.next(empty(8), [])) == ["wide", "long", "short"]


def test_a_launch_takes_the_node_that_it_fills_best():
    queue = Queue([launch("four", 4, 10)])
    (placement,) = queue.next(empty(8, 4, 6), [])
    assert placement.nodes == ("n1",)


def test_accelerators_of_two_nodes_are_no_gang_of_one():
    queue = Queue([launch("eight", 8, 10)])
    assert queue.next(empty(4, 4), []) == []
    assert len(queue) == 1


def test_a_gang_over_nodes_takes_its_part_on_each():
    queue = Queue([launch("over", 16, 10, nodes=2)])
    assert queue.next(empty(16, 4, 8), []) != []
    assert holds(empty(8, 8), queue._launches["over"].gang)
    assert not holds(empty(16), queue._launches["over"].gang)


def test_a_node_with_other_accelerators_holds_none_of_it():
    queue = Queue([launch("one", 1, 10)])
    assert queue.next([Node("l", 8, 8, "L4", 2**40)], []) == []


def test_small_launches_do_not_keep_a_big_one_waiting_for_ever():
    """One node of 8 with a narrow launch on it: what is narrow and long may not go beside it."""
    busy = Running(Placement(launch("busy", 1, 100), ("n0",)), 100.0)
    free = [Node("n0", 63, 7, H, 2**40)]
    queue = Queue([launch("big", 8, 1000), *(launch(f"long-{i}", 1, 500) for i in range(7))])
    assert queue.next(free, [busy]) == []
    assert ids(queue.next(empty(8), [])) == ["big"]


def test_what_ends_before_the_big_one_could_start_goes_ahead():
    busy = Running(Placement(launch("busy", 1, 100), ("n0",)), 100.0)
    free = [Node("n0", 63, 7, H, 2**40)]
    queue = Queue([launch("big", 8, 1000), launch("brief", 1, 99), launch("long", 1, 101)])
    assert ids(queue.next(free, [busy])) == ["brief"]


def test_an_estimate_that_was_too_short_lets_nobody_pass():
    """What is overdue may end at any moment, so nothing may start on the nodes kept."""
    overdue = Running(Placement(launch("busy", 1, 100), ("n0",)), 0.0)
    free = [Node("n0", 63, 7, H, 2**40)]
    queue = Queue([launch("big", 8, 1000), launch("brief", 1, 1)])
    assert queue.next(free, [overdue]) == []


def test_nodes_that_are_not_kept_are_used():
    busy = Running(Placement(launch("busy", 1, 100), ("n0",)), 100.0)
    free = [Node("n0", 63, 7, H, 2**40), Node("n1", 4, 4, H, 2**40)]
    queue = Queue([launch("big", 8, 1000), *(launch(f"long-{i}", 1, 500) for i in range(7))])
    placed = queue.next(free, [busy])
    assert ids(placed) == [f"long-{i}" for i in range(4)]
    assert {placement.nodes for placement in placed} == {("n1",)}


def test_what_no_node_can_ever_hold_is_taken_out_and_holds_nobody_up():
    queue = Queue([launch("huge", 16, 1000), launch("one", 1, 10)])
    assert [one.id for one in queue.impossible(empty(8))] == ["huge"]
    assert ids(queue.next(empty(8), [])) == ["one"]
    assert len(queue) == 0


@pytest.mark.parametrize(
    ("free", "enough"),
    [
        (Node("n", 2, 2, H, 100), True),
        (Node("n", 2, 1, H, 100), False),
        (Node("n", 1, 2, H, 100), False),
        (Node("n", 2, 2, H, 99), False),
        (Node("n", 2, 2, "L4", 100), False),
    ],
)
def test_a_gang_needs_all_it_holds_at_once(free, enough):
    gang = Gang(accelerators=2, accelerator=H, cpus=2, memory_bytes=100)
    assert holds([free], gang) == enough
