"""What holds for every plan."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st
from plan_matrices import matrix

from matrixrun.evidence.launches import Role
from matrixrun.matrix import expand
from matrixrun.plan import build, to_json

SPECULATIONS = [
    {"method": "ngram", "num_speculative_tokens": 2},
    {"method": "ngram", "num_speculative_tokens": 4},
    {"method": "ngram", "num_speculative_tokens": 4, "prompt_lookup_min": 2},
    {"method": "draft_model", "draft": "small", "num_speculative_tokens": 3},
    {"method": "ngram", "num_speculative_tokens": 4, "rejection_sample_method": "synthetic"},
]


def some(values) -> st.SearchStrategy:
    return st.lists(st.sampled_from(range(len(values))), min_size=1, unique=True).map(
        lambda indices: [values[i] for i in indices]
    )


GRIDS = st.fixed_dictionaries(
    {
        "engine": some(["vllm", "other"]),
        "model": st.just(["dense"]),
        "tensor_parallel_size": some([1, 2, 4]),
        "prefix_caching": some([True, False]),
        "batch_size": some([1, 2, 8, 32]),
        "speculation": some(SPECULATIONS),
    },
    optional={"dtype": some(["float16", "bfloat16"])},
)
CONTROLS = st.sampled_from(["between-launches", "within-launch"])
ENGINES = {"vllm": {"kind": "vllm"}, "other": {"kind": "vllm", "args": ["--block-size", "32"]}}


def plan_of(grid, control):
    made = matrix(grid=grid, control=control, engines=ENGINES)
    return build(made, expand(made, file="m.yaml"))


@settings(max_examples=60, deadline=None)
@given(grid=GRIDS, control=CONTROLS)
def test_every_cell_has_one_pair_whose_launches_exist_or_a_reason(grid, control):
    made = plan_of(grid, control)
    launches = {launch.id: launch for launch in made.launches}
    paired = [pair.cell for pair in made.pairs]
    assert sorted([*paired, *made.refused]) == sorted(cell.id for cell in made.cells)
    for pair in made.pairs:
        assert launches[pair.on].role is Role.ON
        assert launches[pair.off].role is Role.A
        assert (pair.null is None) == (control == "within-launch")
        assert pair.null is None or launches[pair.null].role is Role.B
        for name in filter(None, (pair.on, pair.off, pair.null)):
            assert pair.cell in launches[name].cells


@settings(max_examples=60, deadline=None)
@given(grid=GRIDS, control=CONTROLS)
def test_launches_are_unique_and_each_serves_a_cell(grid, control):
    made = plan_of(grid, control)
    assert len({launch.fingerprint for launch in made.launches}) == len(made.launches)
    assert len({launch.id for launch in made.launches}) == len(made.launches)
    assert all(launch.cells for launch in made.launches)


@settings(max_examples=60, deadline=None)
@given(grid=GRIDS, control=CONTROLS)
def test_both_arms_of_a_pair_differ_in_speculation_alone(grid, control):
    made = plan_of(grid, control)
    configs = {launch.id: launch.config for launch in made.launches}
    for pair in made.pairs:
        on, off = configs[pair.on], configs[pair.off]
        assert on.speculation is not None
        assert off.speculation is None
        for name in ("limits", "target", "quantization", "tensor_parallel_size", "prefix_caching"):
            assert getattr(on, name) == getattr(off, name)


@settings(max_examples=40, deadline=None)
@given(grid=GRIDS, control=CONTROLS, more=some([1, 2, 8, 32]))
def test_batch_sizes_never_change_the_number_of_launches(grid, control, more):
    first, second = plan_of(grid, control), plan_of({**grid, "batch_size": more}, control)
    assert {launch.id for launch in first.launches} == {launch.id for launch in second.launches}


@settings(max_examples=40, deadline=None)
@given(grid=GRIDS, control=CONTROLS, seed=st.integers(0, 1000))
def test_the_order_of_the_grid_never_changes_the_plan(grid, control, seed):
    shuffled = {name: list(values) for name, values in grid.items()}
    for values in shuffled.values():
        random.Random(seed).shuffle(values)
    names = list(shuffled)
    random.Random(seed).shuffle(names)
    other = plan_of({name: shuffled[name] for name in names}, control)
    assert to_json(other) == to_json(plan_of(grid, control))


@settings(max_examples=40, deadline=None)
@given(grid=GRIDS, control=CONTROLS)
def test_no_more_is_planned_than_one_server_an_arm_and_the_null_launches(grid, control):
    made = plan_of(grid, control)
    null = sum(launch.role is Role.B for launch in made.launches)
    assert len(made.launches) - null <= made.naive_launches == 2 * len(made.pairs)
    assert null == (0 if control == "within-launch" else len(made.groups))


@settings(max_examples=40, deadline=None)
@given(grid=GRIDS, control=CONTROLS)
def test_groups_hold_every_pair_once(grid, control):
    made = plan_of(grid, control)
    assert sorted(c for group in made.groups for c in group.cells) == sorted(
        pair.cell for pair in made.pairs
    )
    assert made.confirmation_launches_at_most == len(made.groups)
