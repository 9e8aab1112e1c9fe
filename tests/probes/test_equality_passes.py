"""What equality sends to which launch."""

import itertools
from contextlib import nullcontext

import pytest
from probe_sweeps import PROMPTS, matrix, plan, workload

from matrixrun.evidence.errors import MatrixError, UserError
from matrixrun.evidence.launches import Role
from matrixrun.matrix import expand
from matrixrun.probes import Data, get, names, resolve

EQUALITY, ACCEPTANCE = get("equality"), get("acceptance")


def passes(role: Role, control: str, probe=EQUALITY, **workload_fields):
    made = matrix(control=control, workload={"prompts": PROMPTS, **workload_fields})
    planned = plan(made)
    launch = next(one for one in planned.launches if one.role is role)
    cells = [cell for cell in planned.cells if cell.id in launch.cells]
    return tuple(probe.passes(launch, cells, workload(), made))


@pytest.mark.parametrize("role", [Role.ON, Role.A, Role.B])
def test_every_launch_answers_the_same_requests_at_each_batch_size(role):
    sent = passes(role, "between-launches")
    assert [(one.id, one.concurrency) for one in sent] == [("equality.b1", 1), ("equality.b8", 8)]
    requests = [(r.id, r.token_ids) for r in sent[0].requests]
    assert requests == [(p.id, p.token_ids) for p in workload().prompts]
    assert sent[0].requests == sent[1].requests


def test_within_one_launch_the_control_is_the_same_requests_reversed():
    sent = passes(Role.A, "within-launch")
    assert [one.id for one in sent] == [
        "equality.b1",
        "equality.b1.null",
        "equality.b8",
        "equality.b8.null",
    ]
    assert sent[1].requests == sent[0].requests[::-1]
    assert sent[3].concurrency == 8
    on = passes(Role.ON, "within-launch")
    assert [one.id for one in on] == ["equality.b1", "equality.b8"]


def test_no_two_passes_share_a_cache_namespace():
    salts = []
    for role in (Role.ON, Role.A, Role.B):
        sent = passes(role, "between-launches")
        salts += [one.salt for one in sent]
    assert len(set(salts)) == len(salts) == 6
    assert all(salts)


def test_requests_are_greedy_and_as_long_as_the_workload_says():
    sent = passes(Role.ON, "within-launch", max_tokens=48, ignore_eos=True)
    for request in sent[0].requests:
        assert request.max_tokens == 48
        assert request.sampling.temperature == 0
        assert request.sampling.ignore_eos


def test_a_cells_observations_are_found_between_launches():
    made = matrix(control="between-launches")
    planned = plan(made)
    for cell, pair in zip(planned.cells, planned.pairs, strict=True):
        size = cell.axes["batch_size"]
        found = EQUALITY.sources(cell, pair)
        assert found["on"] == ((pair.on, f"equality.b{size}"),)
        assert found["off"] == ((pair.off, f"equality.b{size}"),)
        assert found["null"] == ((pair.null, f"equality.b{size}"),)


def test_a_cells_control_within_a_launch_is_the_off_launchs_null_pass():
    planned = plan(matrix(control="within-launch"))
    cell, pair = planned.cells[0], planned.pairs[0]
    found = EQUALITY.sources(cell, pair)
    assert found["null"] == ((pair.off, f"equality.b{cell.axes['batch_size']}.null"),)


@pytest.mark.parametrize("control", ["between-launches", "within-launch"])
def test_every_source_is_a_pass_that_is_sent(control):
    made = matrix(control=control)
    planned = plan(made)
    sent = {
        (launch.id, one.id)
        for launch in planned.launches
        for one in EQUALITY.passes(
            launch, [c for c in planned.cells if c.id in launch.cells], workload(), made
        )
    }
    wanted = {
        source
        for cell, pair in zip(planned.cells, planned.pairs, strict=True)
        for sources in EQUALITY.sources(cell, pair).values()
        for source in sources
    }
    assert wanted == sent


def test_acceptance_reads_steps_of_equalitys_on_pass_and_sends_nothing():
    sent = passes(Role.ON, "within-launch", probe=ACCEPTANCE)
    assert sent == ()
    assert Data.STEPS in ACCEPTANCE.needs
    planned = plan(matrix())
    cell, pair = planned.cells[0], planned.pairs[0]
    assert ACCEPTANCE.sources(cell, pair)["on"] == EQUALITY.sources(cell, pair)["on"]


def test_probes_are_resolved_once_each_in_a_fixed_order():
    assert [probe.kind for probe in resolve(["acceptance", "equality", "equality"])] == [
        "equality",
        "acceptance",
    ]
    assert names()[:2] == ("equality", "acceptance")


@pytest.mark.parametrize(
    ("kinds", "message"),
    [
        (["equalty"], r"'equalty'(?s:.*)did you mean 'equality'"),
        (["acceptance"], r"'acceptance' reads what 'equality' sends(?s:.*)add 'equality'"),
        ([], r"probes: the list is empty"),
    ],
)
def test_probes_that_cannot_run_are_the_users_mistake(kinds, message):
    with pytest.raises(UserError, match=message):
        resolve(kinds)


def test_where_prefixes_are_cached_every_third_prompt_comes_a_second_time_at_the_end():
    grid = {
        "engine": "vllm",
        "model": "dense",
        "prefix_caching": [True, False],
        "speculation": {"method": "ngram", "num_speculative_tokens": 2},
    }
    made = matrix(control="within-launch", grid=grid)
    planned = plan(made)
    for launch in planned.launches:
        cells = [cell for cell in planned.cells if cell.id in launch.cells]
        main, *null = EQUALITY.passes(launch, cells, workload(), made)
        expected = [f"p-{i}" for i in range(PROMPTS)]
        warm = ["p-0.again", "p-3.again"] if launch.config.prefix_caching else []
        assert [request.id for request in main.requests] == expected + warm
        assert [r.prompt for r in main.requests] == expected + [
            w.removesuffix(".again") for w in warm
        ]
        for again in null:  # reversed, yet still cold requests before warm ones
            assert [request.id for request in again.requests] == expected[::-1] + warm[::-1]


@pytest.mark.parametrize("size", [1, 2, 6])
def test_the_matrix_file_is_told_of_every_list_that_a_run_would_refuse(size):
    for kinds in itertools.combinations(names(), size):
        refused = "equality" not in kinds
        task = {"accuracy": {"task": "task.yaml"}} if "accuracy" in kinds else {}
        made = matrix(probes=kinds, **task)
        with pytest.raises(UserError) if refused else nullcontext():
            resolve(kinds)
        with pytest.raises(MatrixError, match="probes") if refused else nullcontext():
            expand(made, file="m.yaml")
