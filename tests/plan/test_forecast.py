"""How good the order is: against what no order can beat, and against what one would do naively."""

import math
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_matrices import matrix, plan
from test_order import launch
from typer.testing import CliRunner

from matrixrun.cli import app
from matrixrun.evidence.errors import UserError
from matrixrun.matrix import expand
from matrixrun.plan import (
    Queue,
    build,
    forecast,
    forecast_text,
    lower_bound,
    parse_nodes,
    plan_file,
    simulate,
)


def made(**axes):
    """A matrix on accelerators with n-gram speculation of several lengths, and its plan."""
    lengths = axes.pop("lengths", range(1, 6))
    grid = {
        "engine": "vllm", "model": "dense", "batch_size": [1, 8], "prefix_caching": [True, False],
        "speculation": [{"method": "ngram", "num_speculative_tokens": k} for k in lengths], **axes,
    }  # fmt: skip
    found = matrix(
        grid=grid,
        models={"dense": {"target": {"path": "org/target"}}},
        engines={"vllm": {"kind": "vllm", "install": ["vllm==0.32.0"]}},
        resources={"accelerator": "H100"},
        control="between-launches",
    )
    return found, build(found, expand(found, file="forecast"))


QUANTIZATIONS = ["none", "fp8", "awq"]
LARGE = [
    ({"tensor_parallel_size": [1, 2, 4]}, "1x8"),
    ({"tensor_parallel_size": [1, 2, 4, 8]}, "2x8"),
    ({"tensor_parallel_size": [1, 2, 4, 8], "quantization": QUANTIZATIONS}, "4x8"),
    ({"quantization": QUANTIZATIONS, "lengths": range(1, 20)}, "2x8"),
    ({"tensor_parallel_size": [1, 3, 5], "quantization": QUANTIZATIONS}, "2x8"),
    ({"tensor_parallel_size": [2, 8], "pipeline_parallel_size": [1]}, "1x8"),
]


@pytest.mark.parametrize(("axes", "nodes"), LARGE)
def test_matrices_of_five_rounds_are_within_a_tenth_of_the_bound_with_half_the_launches(
    axes, nodes
):
    asked, planned = made(**axes)
    found = forecast(asked, planned, parse_nodes(nodes, "H100"), named=nodes)
    assert found.rounds >= 5
    assert found.makespan <= 1.1 * found.bound
    assert 2 * found.launches <= found.naive_launches
    assert found.makespan < found.naive
    assert found.makespan <= found.first_come


sizes = st.sampled_from([1, 2, 3, 4, 5, 8])
pieces = st.lists(st.tuples(sizes, st.just(0.0) | st.floats(1, 100)), min_size=1, max_size=12)


@settings(max_examples=150, deadline=None)
@given(pieces=pieces, nodes=st.integers(1, 3))
def test_no_order_is_shorter_than_the_bound(pieces, nodes):
    launches = [launch(f"l{i}", width, seconds) for i, (width, seconds) in enumerate(pieces)]
    there = parse_nodes(f"{nodes}x8", "H100")
    bound = lower_bound(launches, there)
    for priority in (None, lambda one, _: (one.seconds,), lambda one, _: (one.gang.accelerators,)):
        assert simulate(Queue(launches, priority=priority), there).makespan >= bound * (1 - 1e-9)


def test_the_bound_counts_whole_gangs():
    """Gangs of 5 on nodes of 8 stand alone: four of them on two nodes take two rounds."""
    fives = [launch(f"l{i}", 5, 100) for i in range(4)]
    assert lower_bound(fives, parse_nodes("2x8", "H100")) == 200
    thirds = [launch(f"l{i}", 3, 100) for i in range(6)]
    assert lower_bound(thirds, parse_nodes("1x8", "H100")) == pytest.approx(300)


def test_a_launch_that_takes_no_time_adds_none():
    """As `--costs` may say of one that was refused at once."""
    there, fives = parse_nodes("2x8", "H100"), [launch(f"l{i}", 5, 100) for i in range(4)]
    assert lower_bound([*fives, launch("none", 5, 0.0)], there) == 200
    assert lower_bound([launch("none", 1, 0.0)], there) == 0


def test_the_bound_counts_whole_rounds():
    """Nine launches of one length on eight accelerators take two rounds, not a round and an eighth;
    where some are a little longer, two of the shortest."""
    alike = [launch(f"l{i}", 1, 100) for i in range(9)]
    assert lower_bound(alike, parse_nodes("1x8", "H100")) == 200
    unlike = [launch(f"l{i}", 1, 100 + i) for i in range(9)]
    assert lower_bound(unlike, parse_nodes("1x8", "H100")) == pytest.approx(201, abs=0.01)
    halves = [launch(f"l{i}", 4, 100) for i in range(3)] + [launch("wide", 8, 120)]
    assert lower_bound(halves, parse_nodes("1x8", "H100")) == 300


def test_the_bound_knows_that_no_two_long_ones_stand_in_a_row_where_short_ones_fill_the_rest():
    """Sixteen long and twenty-four short ones on sixteen accelerators: beside some long one stand
    two of the short ones, though the mean is one and a half."""
    long = [launch(f"l{i}", 1, 1700) for i in range(16)]
    short = [launch(f"s{i}", 1, 260) for i in range(24)]
    assert lower_bound(long + short, parse_nodes("2x8", "H100")) == pytest.approx(2220, rel=1e-3)


GPU_MATRICES = sorted(Path("matrices").glob("gpu-*.yaml"))


@pytest.mark.parametrize("nodes", ["1x8", "2x8", "4x8"])
@pytest.mark.parametrize("file", GPU_MATRICES, ids=lambda file: file.stem)
def test_the_ready_matrices_take_hardly_longer_than_any_order_must(file, nodes):
    """Even where there are few rounds, and with the short launches of probes among the long."""
    asked, planned = plan_file(file)
    found = forecast(asked, planned, parse_nodes(nodes, "H100"), named=nodes)
    assert found.makespan <= 1.03 * found.bound


def test_one_server_per_arm_has_the_launches_that_probes_need_but_no_control():
    """It answers the same questions: planned drafts and a ledger for each cell, shared by none."""
    file = Path("matrices/gpu-dense-8b-eagle3.yaml")
    asked, planned = plan_file(file)
    found = forecast(asked, planned, parse_nodes("1x8", "H100"), named="1x8")
    assert found.naive_launches == 4 * len(planned.pairs) == 144
    assert found.launches == len(planned.launches) == 44
    bare = asked.model_copy(update={"probes": ["equality"]})
    fewer = build(bare, expand(bare, file=str(file)))
    without = forecast(bare, fewer, parse_nodes("1x8", "H100"), named="1x8")
    assert without.naive_launches == 2 * len(fewer.pairs)
    assert without.naive < found.naive


def test_times_beside_one_another_have_one_unit():
    asked, planned = plan_file("matrices/gpu-dense-8b-eagle3.yaml")
    found = forecast(asked, planned, parse_nodes("1x8", "H100"), named="1x8")
    near = msgspec.structs.replace(found, makespan=5450.0, bound=5350.0)
    text = forecast_text(near)
    assert "1.5 h" in text
    assert " min" not in text


def test_the_bound_knows_that_a_scorer_comes_last():
    _, planned = made(lengths=[1])
    (one, *_) = [x for x in planned.launches if x.role == "A"]
    there = parse_nodes("100x8", "H100")
    others = [x.seconds for x in planned.launches if x.role != "A"]
    assert lower_bound(planned.launches, there) == pytest.approx(max(others) + one.seconds)


def test_a_simulation_starts_every_launch_once_and_leaves_out_what_fits_nowhere():
    asked, planned = made(tensor_parallel_size=[1, 8])
    there = parse_nodes("1x4", "H100")
    ran = simulate(Queue(planned.launches), there)
    wide = {x.id for x in planned.launches if x.gang.accelerators == 8}
    assert set(ran.impossible) == wide
    assert set(ran.starts) == {x.id for x in planned.launches} - wide
    assert "left out" in forecast_text(forecast(asked, planned, there, named="1x4"))


def test_nodes_are_read_as_accelerators_or_cores():
    assert [n.accelerators for n in parse_nodes("2x8,1x4", "H100")] == [8, 8, 4]
    assert [n.cpus for n in parse_nodes("1x16", None)] == [16]
    assert math.isinf(parse_nodes("1x8", "H100")[0].cpus)
    for wrong in ("8", "0x8", "2x", "axb"):
        with pytest.raises(UserError, match="--nodes"):
            parse_nodes(wrong, "H100")


def test_the_command_says_it_all(tmp_path):
    done = CliRunner().invoke(
        app, ["plan", "matrices/gpu-hybrid-mtp.yaml", "--simulate", "--nodes", "2x8"]
    )
    assert done.exit_code == 0, done.output
    for words in ("on 2x8 (H100)", "no order can beat", "one server per arm", "H100 hours"):
        assert words in done.output


def test_a_plan_on_cores_is_simulated_on_cores():
    planned = plan()
    asked = matrix()
    found = forecast(asked, planned, parse_nodes("1x2", None), named="1x2")
    assert found.accelerator is None
    assert found.makespan >= found.bound > 0


def test_a_cluster_beyond_reason_is_refused_at_once():
    for text in ("100000000x8", "9999x8,9999x4"):
        with pytest.raises(UserError, match="10000 nodes that can be simulated"):
            parse_nodes(text, "H100")


def test_launches_that_no_node_holds_are_told_and_no_success():
    done = CliRunner().invoke(
        app, ["plan", "matrices/gpu-hybrid-mtp.yaml", "--simulate", "--nodes", "2x1"]
    )
    assert "left out, since no node holds them" in done.output
    assert isinstance(done.exception, UserError)  # exit code 4
    assert "no node holds" in done.exception.message


def test_rounds_are_explained_where_they_stand():
    found = forecast(matrix(), plan(), parse_nodes("1x2", None), named="1x2")
    assert "rounds (launches of mean length that each core serves in turn):" in forecast_text(found)
