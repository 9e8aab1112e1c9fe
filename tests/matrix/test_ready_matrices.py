"""The matrices that come along load, expand, and pass the schema that editors use."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from matrixrun.matrix import AXES, expand, json_schema, load
from matrixrun.matrix.schema import CheckpointSpec, Matrix
from matrixrun.matrix.yaml12 import parse

MATRICES = sorted((Path(__file__).parents[2] / "matrices").glob("*.yaml"))
READY = {"quickstart", "cpu", "gpu-dense-8b-eagle3", "gpu-70b-fp8", "gpu-hybrid-mtp"}
READY |= {"gpu-quantization-ladder"}
by_name = pytest.mark.parametrize("path", MATRICES, ids=lambda path: path.stem)


def validator() -> jsonschema.Draft202012Validator:
    schema = json_schema()
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def data(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = parse(path.read_text(), str(path)).data
    return found


def checkpoints(matrix: Matrix) -> list[CheckpointSpec]:
    models = matrix.models.values()
    found = [m.target for m in models if m.target is not None]
    return [*found, *(c for m in models for c in (*m.targets.values(), *m.drafts.values()))]


def test_they_are_all_there() -> None:
    assert {path.stem for path in MATRICES} >= READY


@by_name
def test_it_expands_into_cells(path: Path) -> None:
    matrix = load(path)
    assert matrix.name == path.stem
    assert expand(matrix, file=str(path)).cells


@by_name
def test_it_passes_the_editors_schema(path: Path) -> None:
    validator().validate(data(path))


@by_name
def test_its_requests_meet_its_own_detect(path: Path) -> None:
    matrix = load(path)
    unseen = (1 - matrix.detect.request_fault_rate) ** matrix.workload.prompts
    assert unseen <= 1 - matrix.detect.confidence


@by_name
def test_checkpoints_of_a_hub_have_a_revision_to_pin(path: Path) -> None:
    for checkpoint in checkpoints(load(path)):
        assert checkpoint.path.startswith("builtin:") or checkpoint.revision is not None
    if path.stem.startswith("gpu"):
        assert re.search(r"revision: \S+\}.*# pin", path.read_text())


@pytest.mark.parametrize(
    "change",
    [
        {"surprise": 1},
        {"grid": {"engine": "vllm", "unknown_axis": 1}},
        {"grid": {"batch_size": [0]}},
        {"grid": {"prefix_caching": "on"}},
        {"grid": {"speculation": [{"method": "ngram"}]}},
        {"exclude": [{}]},
        {"include": [{"batch_size": [1, 2]}]},
        {"probes": ["equalty"]},
        {"probes": ["acceptance"]},
        {"workload": {"prompts": 1.5}},
        {"engines": {"vllm": {}}},
    ],
)
def test_the_schema_refuses_what_load_refuses(change: dict[str, Any]) -> None:
    good = data(MATRICES[0])
    assert validator().is_valid(good)
    assert not validator().is_valid({**good, **change})


def test_the_schema_knows_every_axis() -> None:
    assert set(json_schema()["properties"]["grid"]["properties"]) == {axis.name for axis in AXES}
