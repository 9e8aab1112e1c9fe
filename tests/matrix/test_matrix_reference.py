"""docs/matrix.md says what is so."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from matrix_files import Expand

from matrixrun.matrix import AXES, json_schema
from matrixrun.matrix.yaml12 import parse

REFERENCE = (Path(__file__).parents[2] / "docs" / "matrix.md").read_text(encoding="utf-8")
EXAMPLES = re.findall(r"```yaml\n(.*?)```", REFERENCE, re.DOTALL)


def keys() -> set[str]:
    """Every key of every section, and every axis."""
    schema = json_schema()
    sections = [schema, *schema["$defs"].values()]
    return {key for section in sections for key in section["properties"]} | {a.name for a in AXES}


@pytest.mark.parametrize("key", sorted(keys()))
def test_every_key_is_explained(key: str) -> None:
    assert re.search(rf"`[^`\n]*\b{key}\b[^`\n]*`", REFERENCE)


def test_the_whole_example_expands_as_the_text_says(cells: Expand) -> None:
    found = cells(EXAMPLES[0])
    assert (len(found.cells), len(found.excluded)) == (18, 6)


@pytest.mark.parametrize("number", range(1, len(EXAMPLES)))
def test_every_example_is_in_the_schemas_words(number: int) -> None:
    import jsonschema

    schema = json_schema()
    for line_start in re.split(r"\n(?=workload: \{path)", EXAMPLES[number]):
        data = parse(line_start, "docs/matrix.md").data
        jsonschema.validate(data, {**schema, "required": []})
