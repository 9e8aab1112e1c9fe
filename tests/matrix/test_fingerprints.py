"""A fingerprint changes with what determines a result, and with nothing else."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matrix_files import GOOD, Expand, Write, changed

from matrixrun.evidence.cells import Speculation
from matrixrun.matrix import expand, fingerprint, load

CELL = "vllm.dense.tp2.pc-on.draft_model-small-k3.b8"
OTHER_MODEL = "vllm.dense.tp2.pc-on.ngram-k4.b8"

json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


def of(cells: Expand, text: str, cell: str = CELL) -> str:
    return next(c.fingerprint for c in cells(text).cells if c.id == cell)


def test_known_values_stay_as_they_are() -> None:
    assert fingerprint({"b": [1, 2.5, None], "a": "ü"}) == "703dceec79c30480"
    assert fingerprint(Speculation(method="ngram")) == fingerprint(
        {"method": "ngram", "num_speculative_tokens": None, "draft": None, "options": {}}
    )


def test_another_process_computes_the_same() -> None:
    code = "from matrixrun.matrix import fingerprint; print(fingerprint({'a': {'x', }.pop()}))"
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.strip()
    assert found == fingerprint({"a": "x"})


@given(st.dictionaries(st.text(max_size=5), json_values, max_size=5))
def test_the_order_of_keys_does_not_count(value: dict[str, object]) -> None:
    assert fingerprint(value) == fingerprint(dict(reversed(list(value.items()))))


@given(json_values, json_values)
def test_different_values_differ(one: object, other: object) -> None:
    import json

    assert (fingerprint(one) == fingerprint(other)) == (
        json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("vllm: {kind: vllm,", "vllm: {kind: sglang,"),
        ('["--flag", "1"]', '["--flag", "2"]'),
        ('env: {A: "1"}', 'env: {A: "2"}'),
        ('env: {A: "1"}', 'env: {A: "1"}, on: {args: ["--x"]}'),
        ('env: {A: "1"}', 'env: {A: "1"}, off: {args: ["--x"]}'),
        ('env: {A: "1"}', 'env: {A: "1"}, limits: {block_size: 32}'),
        ("path: org/dense", "path: org/dense2"),
        ("revision: abc", "revision: abd"),
        ("path: org/small", "path: org/small2"),
    ],
)
def test_what_the_cell_uses_counts(old: str, new: str, cells: Expand) -> None:
    assert of(cells, GOOD) != of(cells, changed(old, new))


@pytest.mark.parametrize(
    "section",
    [
        "workload: {prompts: 301}",
        "workload: {max_tokens: 255}",
        "probes: [equality]",
        "control: within-launch",
        "equality: strict",
        "seed: 1",
        "resources: {accelerator: H100}",
        "resources: {cpus_per_rank: 2.0}",
    ],
)
def test_what_is_sent_and_on_which_hardware_counts(section: str, cells: Expand) -> None:
    assert of(cells, GOOD) != of(cells, GOOD + section + "\n")


@pytest.mark.parametrize(
    "section",
    [
        "description: other words",
        "detect: {request_fault_rate: 0.1}",
        "expect: [{when: {batch_size: 8}, verdict: FAIL, reason: known}]",
        "expectations: kept.yaml",
        "timeouts: {ready: 1.0}",
        "coverage: {rejections_per_position: 9}",
        "store_text: false",
        "probes: [acceptance, equality]",
        "exclude: [{batch_size: 1}]",
        "constraints: ['batch_size > 1']",
        "workload: {prompts: 300}",
    ],
)
def test_what_leaves_the_result_alone_does_not_count(section: str, cells: Expand) -> None:
    assert of(cells, GOOD) == of(cells, GOOD + section + "\n")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("name: good", "name: other"),
        ('["vllm==1"]', '["vllm==2"]'),
        ("path: org/small", "path: org/small2"),
        ("path: org/ladder-fp8", "path: org/x"),
        ("batch_size: [1, 8]", "batch_size: [8, 16]"),
    ],
)
def test_what_only_other_cells_use_does_not_count(old: str, new: str, cells: Expand) -> None:
    assert of(cells, GOOD, OTHER_MODEL) == of(cells, changed(old, new), OTHER_MODEL)


def test_the_content_of_own_prompts_and_overlays_counts_and_their_place_does_not(
    tmp_path: Path,
) -> None:
    text = changed('env: {A: "1"}', "overlay: over") + "workload: {path: own.jsonl}\n"

    def written(folder: str, prompt: str = "a", overlay: str = "b") -> str:
        home = tmp_path / folder
        (home / "over").mkdir(parents=True)
        (home / "over" / "stub.py").write_text(overlay)
        (home / "own.jsonl").write_text(prompt)
        (home / "m.yaml").write_text(text)
        found = expand(load(home / "m.yaml"), file="m.yaml")
        return next(c.fingerprint for c in found.cells if c.id == CELL)

    assert written("here") == written("there")
    assert written("here2", prompt="x") != written("there2")
    assert written("here3", overlay="x") != written("there3")


def test_online_quantization_is_not_a_quantized_checkpoint(write: Write, cells: Expand) -> None:
    text = changed("model: [dense]", "model: [ladder]\n  quantization: fp8")
    text = changed("    - {method: draft_model, draft: small", "    - {method: x", text)
    cell = "vllm.ladder.fp8.tp2.pc-on.ngram-k4.b8"
    online = changed("{path: org/ladder-fp8}", "{path: org/ladder-fp8, online: true}", text)
    assert of(cells, text, cell) != of(cells, online, cell)
