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


def test_lines_beyond_the_prompts_asked_for_stop_nothing_and_are_told(tmp_path: Path) -> None:
    lines = b'{"prompt": "a"}\n{"token_ids": [1]}\n{'
    plan = plan_file(written(tmp_path, lines))[1]
    assert plan.pairs
    (note,) = [note for note in plan.notes if note.startswith("workload.path")]
    assert "behind the prompts that are used: " in note
    assert "mine.jsonl:3: not JSON" in note


def test_how_much_of_the_file_is_used_is_told(tmp_path: Path) -> None:
    lines = b"".join(b'{"prompt": "%d"}\n' % number for number in (1, 2, 3, 3, 4))
    notes = plan_file(written(tmp_path, lines))[1].notes
    assert "workload.path: the first 2 of 4 different prompts are used." in notes


@pytest.mark.parametrize(("held", "used"), [(1, 1), (12, 12), (301, 300)])
def test_without_a_number_all_of_the_file_is_used_up_to_the_default(
    tmp_path: Path, held: int, used: int
) -> None:
    file = written(tmp_path, b"".join(b'{"prompt": "%d"}\n' % number for number in range(held)))
    file.write_text(MATRIX.replace("  prompts: 2\n", ""))
    matrix, plan = plan_file(file)
    assert matrix.workload.prompts == used
    assert plan.pairs


def test_a_file_of_no_prompts_says_what_to_write(tmp_path: Path) -> None:
    for text in (MATRIX, MATRIX.replace("  prompts: 2\n", "")):
        file = written(tmp_path, b"\n")
        file.write_text(text)
        with pytest.raises(MatrixError, match="holds no prompt") as caught:
            plan_file(file)
        assert caught.value.remedy == 'write one a line: {"prompt": "..."}'


def test_a_byte_order_mark_is_taken(tmp_path: Path) -> None:
    assert plan_file(written(tmp_path, b'\xef\xbb\xbf{"prompt": "a"}\n{"prompt": "b"}'))[1].pairs


@pytest.mark.parametrize(
    "line",
    ['{"prompt": ""}', '{"token_ids": 1}', '{"token_ids": []}', '{"prompt": "a", "category": 1}',
     '{"conversations": []}', '{"conversations": [1]}', '{"conversations": [{"from": "user"}]}',
     '{"conversations": [{"from": "gpt", "value": "a"}]}'],
)  # fmt: skip
def test_every_mistake_in_a_line_has_a_remedy(tmp_path: Path, line: str) -> None:
    with pytest.raises(MatrixError) as caught:
        plan_file(written(tmp_path, line.encode()))
    assert caught.value.remedy
    assert "mine.jsonl:1" in str(caught.value)


def test_a_folder_is_not_said_to_be_absent(tmp_path: Path) -> None:
    file = written(tmp_path, b"")
    for key in ("workload", "expectations"):
        text = MATRIX.replace("mine.jsonl", ".")
        if key == "expectations":
            text = MATRIX.partition("workload:")[0] + "expectations: .\n"
        file.write_text(text)
        with pytest.raises(MatrixError, match="is a folder, not a file"):
            plan_file(file)


def test_what_an_engine_refuses_in_its_arguments_has_a_place_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "m.yaml"
    start = MATRIX.partition("workload:")[0]
    for arguments, key in (
        ("args: [--spec-type, x]", "engines.one.args"),
        ("on: {args: [--spec-type, x]}", "engines.one.on.args"),
    ):
        engines = f"engines:\n  one:\n    kind: llamacpp\n    {arguments}"
        text = start.replace("engines: {vllm: {kind: vllm}}", engines)
        file.write_text(text.replace("engine: vllm", "engine: one"))
        with pytest.raises(MatrixError, match="--spec-type cannot be set") as caught:
            plan_file(file)
        assert (caught.value.line, caught.value.key) == (5, key)
        assert str(caught.value).count("engines.one") == 1
        assert caught.value.remedy


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
