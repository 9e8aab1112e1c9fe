"""Prompts and workloads are looked at before anything starts."""

from __future__ import annotations

from pathlib import Path

import pytest

from matrixrun.evidence.errors import MatrixError
from matrixrun.plan import plan_file

MATRIX = """\
name: own
engines: {vllm: {kind: vllm}}
models: {tiny: {target: {path: "builtin:tiny-dense"}}}
grid: {engine: vllm, model: tiny, speculation: {method: ngram, num_speculative_tokens: 2}}
workload:
  prompts: 2
  path: mine.jsonl
"""


def written(folder: Path, lines: bytes) -> Path:
    (folder / "mine.jsonl").write_bytes(lines)
    (folder / "own.yaml").write_text(MATRIX)
    return folder / "own.yaml"


@pytest.mark.parametrize(
    ("lines", "words"),
    [
        (b'{"prompt": "a"}\n{', r"mine\.jsonl:2: not JSON"),
        (b'{"prompt": "a"}\n{"text": "b"}', r"mine\.jsonl:2: needs exactly one of prompt"),
        (b'{"prompt": "a"}\n{"turns": []}', r"mine\.jsonl:2: turns must be a list of texts"),
        (b'{"prompt": "a"}\n{"token_ids": []}', r"mine\.jsonl:2: the prompt has no tokens"),
        (b'{"prompt": "a"}\n{"prompt": "a"}', r"mine\.jsonl: holds 1 different prompts"),
        (b"\xff", r"mine\.jsonl cannot be read"),
    ],
)
def test_a_mistake_in_the_prompts_is_told_by_the_plan(
    tmp_path: Path, lines: bytes, words: str
) -> None:
    with pytest.raises(MatrixError, match=words) as caught:
        plan_file(written(tmp_path, lines))
    assert (caught.value.line, caught.value.key) == (7, "workload.path")
    assert str(caught.value).count("workload.path") == 1


def test_lines_beyond_the_prompts_asked_for_are_not_looked_at(tmp_path: Path) -> None:
    lines = b'{"prompt": "a"}\n{"token_ids": [1]}\n{'
    assert plan_file(written(tmp_path, lines))[1].pairs


def test_a_workload_that_does_not_exist_is_told_with_its_place(tmp_path: Path) -> None:
    file = tmp_path / "own.yaml"
    file.write_text(MATRIX.replace("path: mine.jsonl", "categories: [natural, chatt]"))
    with pytest.raises(MatrixError, match="there is no workload 'chatt'") as caught:
        plan_file(file)
    assert (caught.value.line, caught.value.key) == (7, "workload.categories[1]")
    assert caught.value.remedy == "did you mean 'chat'?"


def test_a_server_that_cannot_be_built_is_told_before_anything_runs(tmp_path: Path) -> None:
    file = tmp_path / "misspelt.yaml"
    file.write_text(
        "name: misspelt\n"
        'engines: {llamacpp: {kind: llamacpp, binary: "builtin:llama-sever"}}\n'
        "models: {dense: {target: {path: org/dense}}}\n"
        "grid: {engine: llamacpp, model: dense, batch_size: 1, speculation: {method: ngram-simple,"
        " num_speculative_tokens: 2}}\n"
    )
    with pytest.raises(MatrixError, match=r"engines\.llamacpp\.binary: there is no builtin"):
        plan_file(file)
