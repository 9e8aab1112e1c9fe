"""An attached pair in a plan: nothing to launch, one configuration, and what is not known said."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest
from plan_matrices import DRAFT, GRID, NGRAM, matrix, plan

from matrixrun.engines import get as get_engine
from matrixrun.evidence.errors import MatrixError
from matrixrun.evidence.launches import Role
from matrixrun.matrix import Matrix, expand
from matrixrun.plan import render_text
from matrixrun.plan.checks import check
from matrixrun.probes import get

PAIR = {"off": "http://a:8000", "on": "https://b/llm/"}
ENGINES = {"vllm": {"kind": "vllm"}, "staging": {"kind": "vllm", "attach": PAIR}}
ALONE: dict[str, Any] = {**GRID, "engine": "staging", "prefix_caching": True, "speculation": NGRAM}


def attached(**changes: Any) -> Matrix:
    sections = {"engines": ENGINES, "grid": ALONE, "control": "within-launch", **changes}
    return matrix(**sections)


def test_a_pair_of_endpoints_is_two_launches_that_hold_next_to_nothing() -> None:
    found = {one.role: one for one in plan(engines=ENGINES, grid=ALONE).launches}
    assert {
        role: one.config.endpoint.url for role, one in found.items() if one.config.endpoint
    } == {
        Role.A: "http://a:8000",
        Role.ON: "https://b/llm",
    }
    assert {(one.gang.accelerators, one.gang.cpus) for one in found.values()} == {(0, 0.1)}
    assert found[Role.ON].command.argv == ("attach", "https://b/llm")


def test_what_a_probe_of_state_cannot_tell_on_servers_of_somebody_elses_is_said_before() -> None:
    probes = ["equality", "conversation", "rollback", "pressure"]
    ours, theirs = (
        plan(engines=ENGINES, grid={**ALONE, "engine": engine}, probes=probes).notes
        for engine in ("vllm", "staging")
    )
    said = [note for note in theirs if note.startswith("probe ")]
    assert [note.partition(":")[0] for note in said] == [
        f"probe {probe} on engines.staging" for probe in ("conversation", "pressure", "rollback")
    ]
    assert not [note for note in ours if note.startswith("probe ")]
    few = plan(engines=ENGINES, grid=ALONE, probes=["equality", "pressure"]).notes
    assert len([note for note in few if note.startswith("probe ")]) == 1


def test_accelerators_of_other_engines_are_not_asked_of_it() -> None:
    made = plan(engines=ENGINES, grid=ALONE, resources={"accelerator": "H100"})
    assert not made.refused
    assert made.accelerators_at_once == 0


def test_what_it_was_started_with_is_declared_and_refused_by_nobody() -> None:
    grid = {**ALONE, "quantization": "fp8", "tensor_parallel_size": 8, "dtype": "bfloat16"}
    engines = {"staging": {"kind": "llamacpp", "attach": PAIR}}
    models = {"dense": {"targets": {"fp8": {"path": "org/target"}}}}
    made = plan(engines=engines, grid={**grid, "data_parallel_size": 2}, models=models)
    assert not made.refused
    assert made.pairs


@pytest.mark.parametrize("kind", ["llamacpp", "sglang", "vllm"])
@pytest.mark.parametrize("resources", [{}, {"accelerator": "H100"}])
def test_what_would_be_installed_is_no_reason_where_nothing_is(
    kind: str, resources: dict[str, str]
) -> None:
    engines = {"staging": {"kind": kind, "attach": PAIR}}
    made = plan(engines=engines, grid=ALONE, resources=resources)
    assert not made.refused
    config = made.launches[0].config
    assert get_engine(kind).refuse(msgspec.structs.replace(config, accelerator="H100")) is None


def test_what_is_lossy_by_design_is_refused_there_too() -> None:
    lossy = {**NGRAM, "rejection_sample_method": "synthetic"}
    assert plan(engines=ENGINES, grid={**ALONE, "speculation": lossy}).refused


def test_without_a_second_off_server_it_is_its_own_control_beside_engines_that_are_not() -> None:
    grid = {**ALONE, "engine": ["vllm", "staging"]}
    made = matrix(engines=ENGINES, grid=grid)
    made = Matrix.model_validate(made.model_dump(exclude={"control"}, exclude_unset=True))
    found = plan_of(made)
    nulls = {pair.cell.split(".")[0]: pair.null for pair in found.pairs}
    assert nulls == {"staging": None, "vllm": "B.vllm.dense.pc-on"}
    (scorer,) = [one for one in found.launches if one.id.startswith("A.staging")]
    cells = [cell for cell in found.cells if cell.id in scorer.cells]
    passes = get("equality").passes(scorer, cells, workload(), made)
    assert any(one.id.endswith(".null") for one in passes)
    assert "no second off server" in render_text(found)


def test_a_second_off_server_is_launch_b() -> None:
    engines = {"staging": {"kind": "vllm", "attach": {**PAIR, "second_off": "http://c"}}}
    made = plan(engines=engines, grid=ALONE, control="between-launches")
    urls = {one.role: one.config.endpoint.url for one in made.launches if one.config.endpoint}
    assert urls[Role.B] == "http://c"
    assert {pair.null for pair in made.pairs} == {"B.staging.dense.pc-on"}


def test_another_address_is_another_launch() -> None:
    other = {"staging": {"kind": "vllm", "attach": {**PAIR, "on": "http://d"}}}
    one, two = plan(engines=ENGINES, grid=ALONE), plan(engines=other, grid=ALONE)
    prints = [{x.role: x.fingerprint for x in made.launches} for made in (one, two)]
    assert prints[0][Role.A] == prints[1][Role.A]
    assert prints[0][Role.ON] != prints[1][Role.ON]
    assert one.cells[0].fingerprint != two.cells[0].fingerprint


@pytest.mark.parametrize(
    ("axis", "values"),
    [("prefix_caching", [True, False]), ("speculation", [NGRAM, DRAFT]),
     ("tensor_parallel_size", [1, 2])],
)  # fmt: skip
def test_an_axis_of_launches_has_one_value_there(axis: str, values: list[Any]) -> None:
    made = attached(grid={**ALONE, axis: values})
    with pytest.raises(MatrixError, match=rf"grid\.{axis}: engine 'staging' is attached"):
        check(made, expand(made, file="m.yaml"), file="m.yaml")


@pytest.mark.parametrize(
    ("engine", "control", "words"),
    [
        ({"install": ["vllm"]}, None, "install: has no effect beside `attach`"),
        ({"limits": {"block_size": 16}}, None, "limits: has no effect beside `attach`"),
        ({"attach": {**PAIR, "on": "http://a:8000"}}, None, "is the same server as `off`"),
        ({"attach": {**PAIR, "second_off": "http://a:8000/"}}, None, "one of the pair's own"),
        ({}, "between-launches", "needs a second server without speculation"),
        ({"attach": {**PAIR, "second_off": "http://c"}}, "within-launch", "has no effect beside"),
        ({"attach": {**PAIR, "headers_env": {"X Y": "A"}}}, None, "'X Y' cannot be the name"),
        ({"attach": {**PAIR, "headers_env": {"": "A"}}}, None, "'' cannot be the name"),
        (
            {"attach": {**PAIR, "key_env": "KEY", "headers_env": {"authorization": "A"}}},
            None,
            "headers_env.authorization: is sent already",
        ),
    ],
)
def test_what_contradicts_attaching_is_told(
    engine: dict[str, Any], control: str | None, words: str
) -> None:
    sections = matrix(engines=ENGINES, grid=ALONE).model_dump(exclude_unset=True)
    sections["engines"] = {"staging": {"kind": "vllm", "attach": PAIR, **engine}}
    sections.pop("control")
    made = Matrix.model_validate({**sections, **({"control": control} if control else {})})
    with pytest.raises(MatrixError, match=words):
        expand(made, file="m.yaml")


@pytest.mark.parametrize(
    ("part", "words"),
    [
        ('off: "a:8000"', "must be the address of a server with its scheme"),
        ('off: "http://user:hunter22@a"', "holds credentials"),
        ('off: "http://a/?key=1"', "nothing after `\\?`"),
        ('off: "http://a", key_env: "hunter22-"', "must be the name of an environment variable"),
    ],
)
def test_an_address_or_a_name_that_is_none_is_told_without_repeating_it(
    tmp_path: Path, part: str, words: str
) -> None:
    from matrixrun.matrix import load

    file = tmp_path / "m.yaml"
    file.write_text(
        "name: m\nengines:\n  staging: {kind: vllm, attach: {on: 'http://b', " + part + "}}\n"
        "models: {dense: {target: {path: org/target}}}\n"
        "grid: {engine: staging, model: dense, speculation: {method: ngram}}\n"
    )
    with pytest.raises(MatrixError, match=words) as caught:
        load(file)
    assert "hunter22" not in str(caught.value)


def test_a_header_of_ones_own_is_fine_with_a_key_and_authorization_without() -> None:
    for attach in ({"key_env": "KEY", "headers_env": {"X-Tenant": "A"}},
                   {"headers_env": {"Authorization": "A"}}):  # fmt: skip
        made = attached(engines={"staging": {"kind": "vllm", "attach": {**PAIR, **attach}}})
        assert expand(made, file="m.yaml").cells


def test_further_headers_are_fine_with_the_accuracy_probe(tmp_path: Path) -> None:
    from matrixrun.matrix import load

    (tmp_path / "d.jsonl").write_text("{}\n")
    (tmp_path / "t.yaml").write_text(
        "task: t\ndataset_path: json\ndataset_kwargs: {data_files: {test: d.jsonl}}\n"
        "test_split: test\noutput_type: generate_until\n"
        "metric_list: [{metric: exact_match}]\n"
    )
    file = tmp_path / "m.yaml"
    file.write_text(
        "name: m\nengines:\n  staging: {kind: vllm, attach: {off: 'http://a', on: 'http://b',"
        " headers_env: {X-Tenant: A}}}\n"
        "models: {dense: {target: {path: org/target}}}\n"
        "grid: {engine: staging, model: dense,"
        " speculation: {method: ngram, num_speculative_tokens: 2}}\n"
        "probes: [equality, accuracy]\naccuracy: {task: t.yaml}\n"
    )
    assert load(file).accuracy is not None


def plan_of(made: Matrix) -> Any:
    from matrixrun.plan import build

    return build(made, expand(made, file="m.yaml"))


def workload() -> Any:
    from matrixrun.workloads import Prompt
    from matrixrun.workloads.prompts import workload_of

    return workload_of((Prompt(id="p", category="decided", token_ids=(1, 2)),))
