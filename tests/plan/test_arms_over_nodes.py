"""Launches that span nodes: within one where they fit, over as few as share them equally."""

import pytest
from plan_matrices import GRID, plan

from matrixrun.evidence.launches import Gang


def gangs(engine: str = "vllm", **resources) -> dict[int, Gang]:
    """Gangs by number of ranks."""
    made = plan(
        grid={**GRID, "tensor_parallel_size": [1, 4, 6, 8], "pipeline_parallel_size": [1, 2]},
        engines={"vllm": {"kind": engine, "install": ["vllm==0.32.0"]}},
        resources=resources,
    )
    return {
        x.config.tensor_parallel_size * x.config.pipeline_parallel_size: x.gang
        for x in made.launches
    }


def test_a_launch_stays_on_one_node_unless_the_matrix_says_how_many_ranks_one_holds():
    assert {gang.nodes for gang in gangs(accelerator="H100").values()} == {1}


@pytest.mark.parametrize(
    ("ranks", "most", "nodes"),
    [(1, 8, 1), (8, 8, 1), (12, 8, 2), (16, 8, 2), (12, 5, 3), (8, 1, 8), (6, 4, 2)],
)
def test_a_launch_spans_as_few_nodes_as_share_its_ranks_equally(ranks, most, nodes):
    found = gangs(accelerator="H100", ranks_per_node=most)[ranks]
    assert found.nodes == nodes
    assert found.accelerators == ranks
    assert ranks % nodes == 0
    assert ranks // nodes <= most


def test_what_spans_nodes_has_a_command_for_the_others_and_what_does_not_has_none():
    made = plan(grid={**GRID, "tensor_parallel_size": [1, 2]}, resources={"ranks_per_node": 1})
    for launch in made.launches:
        assert (launch.follower is not None) == (launch.config.tensor_parallel_size == 2)


def test_an_engine_of_one_process_is_refused_over_nodes():
    made = plan(
        engines={"vllm": {"kind": "llamacpp"}},
        grid={**GRID, "tensor_parallel_size": 2},
        models={"dense": {"target": {"path": "/t.gguf"}, "drafts": {"small": {"path": "/d.gguf"}}}},
        resources={"ranks_per_node": 1},
    )
    assert not made.launches
    assert all("2 nodes" in reason for reason in made.refused.values())
