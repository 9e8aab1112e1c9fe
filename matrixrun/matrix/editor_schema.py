"""JSON Schema of a matrix file, for completion and checks in editors."""

from __future__ import annotations

from typing import Any

from matrixrun.matrix.axes import AXES, Axis
from matrixrun.matrix.axis_types import SPECULATION
from matrixrun.matrix.checks import BASE_PROBE, PROBES
from matrixrun.matrix.schema import Matrix


def json_schema() -> dict[str, Any]:
    """Draft 2020-12: the sections as the schema types have them, with the axes spelled out.

    What spans several sections (names that must exist, batch limits) is left to `load`.
    """
    schema = Matrix.model_json_schema()
    properties = schema["properties"]
    properties["grid"] = _assignment(_one_or_many, "axes and their values; a scalar is one value")
    rules = _assignment(_partial, "taken out where every axis named here has this value")
    properties["exclude"].update(items={**rules, "minProperties": 1})
    cells = _assignment(_complete, "one more cell; names every axis that has several values")
    properties["include"].update(items=cells)
    when = _assignment(_partial, "the cells concerned: those where every axis has this value")
    schema["$defs"]["Expect"]["properties"]["when"] = {**when, "minProperties": 1}
    properties["probes"].update(
        items={"enum": sorted(PROBES)}, contains={"const": BASE_PROBE}, minItems=1
    )
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _assignment(value: Any, description: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {axis.name: value(axis) for axis in AXES},
        "additionalProperties": False,
        "description": description,
    }


def _complete(axis: Axis) -> dict[str, Any]:
    if axis.type is not SPECULATION:
        return axis.type.schema
    return {**axis.type.schema, "required": ["method", "num_speculative_tokens"]}


def _partial(axis: Axis) -> dict[str, Any]:
    return axis.type.schema


def _one_or_many(axis: Axis) -> dict[str, Any]:
    one = _complete(axis)
    return {"anyOf": [one, {"type": "array", "items": one, "minItems": 1}]}
