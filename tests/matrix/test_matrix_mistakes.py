"""Every mistake in a matrix file is one message with file, line, key and remedy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from matrix_files import GOOD, changed

from matrixrun.evidence.errors import MatrixError
from matrixrun.matrix import expand, load
from matrixrun.matrix.problems import MatrixErrors

Mistake = Callable[[str], MatrixError]

# name: (old, new, line, key, words of the message, words of the remedy)
CHANGES: dict[str, tuple[str, str, int, str, str, str]] = {
    "tab": ("grid:\n", "grid:\n\tx: 1\n", 18, "", "'\\t'", "spaces"),
    "colon in text": ("name: good", "name: a: b", 1, "", "mapping values", "quotes"),
    "open bracket": ("engine: [vllm]", "engine: [vllm", 19, "", "not valid YAML", "brackets"),
    "undefined alias": ("engine: [vllm]", "engine: *e", 18, "", "undefined alias", "anchor"),
    "second document": ("grid:\n", "---\ngrid:\n", 17, "", "another document", "second"),
    "duplicate key": (
        "  model: [dense]",
        "  model: [dense]\n  model: [ladder]",
        20,
        "grid.model",
        "twice (first on line 19)",
        "keep one",
    ),
    "python tag": (
        "engine: [vllm]",
        "engine: !!python/object/apply:os.system [ls]",
        18,
        "grid.engine",
        "!!python/object/apply:os.system",
        "plain",
    ),
    "number as key": ("  dense:\n", "  8:\n", 9, "models.8", "not text", '"8"'),
    "leading zero": ("batch_size: [1, 8]", "batch_size: 017", 22, "grid.batch_size", "017", "17"),
    "huge number": (
        "revision: abc",
        "revision: 123456789012345678901234567890",
        10,
        "models.dense.target.revision",
        "too large",
        "quotes",
    ),
    "float that overflows": (
        "revision: abc",
        "revision: 12e45678",
        10,
        "models.dense.target.revision",
        "too large",
        '"12e45678"',
    ),
    "unknown section": ("engines:\n", "engine:\n", 1, "", "`engines` is missing", "engines"),
    "unknown key": (
        "{kind: vllm, args",
        "{kind: vllm, arg",
        3,
        "engines.vllm.arg",
        "`arg`",
        "`args`",
    ),
    "missing key": ("{kind: vllm, args", "{args", 3, "engines.vllm", "`kind` is missing", "kind: "),
    "number for text": ('env: {A: "1"}', "env: {A: 1}", 3, "engines.vllm.env.A", "number 1", '"1"'),
    "text for list": (
        'install: ["vllm==1"]',
        "install: vllm==1",
        6,
        "engines.other.install",
        "must be a list",
        '["vllm==1"]',
    ),
    "text for mapping": (
        "target: {path: org/dense, revision: abc}",
        "target: org/dense",
        10,
        "models.dense.target",
        "must be a mapping",
        "mapping",
    ),
    "empty section": (
        "limits: {max_num_seqs: 8}",
        "limits:",
        7,
        "engines.other.limits",
        "empty",
        "remove",
    ),
    "on is text": (
        "prefix_caching: [true, false]",
        "prefix_caching: [true, off]",
        21,
        "grid.prefix_caching[1]",
        "'off'",
        "write false",
    ),
    "true is not 1": (
        "batch_size: [1, 8]",
        "batch_size: [true, 8]",
        22,
        "grid.batch_size[0]",
        "but is true",
        "whole number",
    ),
    "float for int": (
        "[1, 2]",
        "[1, 2.0]",
        20,
        "grid.tensor_parallel_size[1]",
        "2.0",
        "whole number",
    ),
    "quoted int": ("[1, 2]", '[1, "2"]', 20, "grid.tensor_parallel_size[1]", "'2'", "quotes"),
    "zero": ("[1, 2]", "[0, 2]", 20, "grid.tensor_parallel_size[0]", "at least 1", "at least 1"),
    "negative": ("[1, 2]", "-1", 20, "grid.tensor_parallel_size", "at least 1", "at least 1"),
    "empty list": ("[1, 2]", "[]", 20, "grid.tensor_parallel_size", "empty", "remove"),
    "nested list": ("[1, 2]", "[[1], 2]", 20, "grid.tensor_parallel_size[0]", "a list", "number"),
    "unknown axis": (
        "tensor_parallel_size",
        "tensor_paralel_size",
        20,
        "grid.tensor_paralel_size",
        "unknown axis",
        "`tensor_parallel_size`",
    ),
    "required axis": ("  model: [dense]\n", "", 17, "grid", "`model` is missing", "model: [...]"),
    "unknown engine": ("engine: [vllm]", "engine: [vlm]", 18, "grid.engine[0]", "`vlm`", "`vllm`"),
    "unknown model": ("model: [dense]", "model: dence", 19, "grid.model", "`dence`", "`dense`"),
    "unknown draft": (
        "draft: small",
        "draft: smal",
        25,
        "grid.speculation[1].draft",
        "`smal`",
        "`small`",
    ),
    "speculation without method": (
        "{method: ngram, ",
        "{",
        24,
        "grid.speculation[0]",
        "`method` is missing",
        "method: ngram",
    ),
    "speculation without length": (
        "{method: ngram, num_speculative_tokens: 4}",
        "{method: ngram}",
        24,
        "grid.speculation[0]",
        "`num_speculative_tokens` is missing",
        "num_speculative_tokens: 4",
    ),
    "misspelt speculation field": (
        "ngram, num_speculative_tokens",
        "ngram, num_speculative_token",
        24,
        "grid.speculation[0].num_speculative_token",
        "unknown key",
        "`num_speculative_tokens`",
    ),
    "speculation length": (
        "num_speculative_tokens: 4",
        "num_speculative_tokens: 0",
        24,
        "grid.speculation[0].num_speculative_tokens",
        "at least 1",
        "at least 1",
    ),
    "no speculation": (
        "    - {method: ngram, num_speculative_tokens: 4}",
        "    - none",
        24,
        "grid.speculation[0]",
        "must be a mapping",
        "off arm",
    ),
    "infinite option": (
        "{method: ngram, ",
        "{method: ngram, x: .inf, ",
        24,
        "grid.speculation[0].x",
        "not finite",
        "finite",
    ),
    "two environments": (
        'install: ["vllm==1"]',
        'install: ["vllm==1"]\n    python: /usr/bin/python3',
        7,
        "engines.other.python",
        "`install` and `python`",
        "one environment",
    ),
    "nothing is installed": (
        'install: ["vllm==1"]',
        "image: some:tag\n    without: [torch]",
        7,
        "engines.other.without",
        "no effect",
        "remove",
    ),
    "target and targets": (
        "    targets:",
        "    target: {path: x}\n    targets:",
        15,
        "models.ladder.targets",
        "both",
        "keep one",
    ),
    "no target": (
        "    target: {path: org/dense, revision: abc}\n",
        "",
        9,
        "models.dense",
        "neither",
        "target: {path",
    ),
}

# name: (text to append, line, key, words of the message, words of the remedy)
ADDITIONS: dict[str, tuple[str, int, str, str, str]] = {
    "axis at top level": ("batch_size: 1", 26, "batch_size", "unknown key", "under `grid:`"),
    "float for seed": ("seed: 1.5", 26, "seed", "1.5", "whole number"),
    "negative seed": ("seed: -1", 26, "seed", "at least 0", "at least 0"),
    "large seed": ("seed: 4294967296", 26, "seed", "at most 4294967295", "at most 4294967295"),
    "no accelerator": (
        'resources: {accelerator: ""}',
        26,
        "resources.accelerator",
        "empty text",
        "remove the key",
    ),
    "sexagesimal": ("seed: 1:30", 26, "seed", "'1:30'", "whole number"),
    "bounds": ("detect: {confidence: 1.0}", 26, "detect.confidence", "less than 1", "less than 1"),
    "not a number": ("timeouts: {ready: .nan}", 26, "timeouts.ready", "finite", "finite"),
    "literal": ("control: within-lauch", 26, "control", "within-lauch", "`within-launch`"),
    "unknown probe": ("probes: [equalty]", 26, "probes[0]", "`equalty`", "`equality`"),
    "no probe": ("probes: []", 26, "probes", "empty", "equality"),
    "probe beside nothing": (
        "probes: [rollback]",
        26,
        "probes",
        "`equality` is missing",
        "add `equality`",
    ),
    "prompt range": (
        "workload: {prompt_tokens: [9, 3]}",
        26,
        "workload.prompt_tokens",
        "9",
        "shortest",
    ),
    "one number": (
        "workload: {prompt_tokens: [9]}",
        26,
        "workload.prompt_tokens",
        "few",
        "two numbers",
    ),
    "no such workload": (
        "workload: {path: none.jsonl}",
        26,
        "workload.path",
        "no file",
        "relative",
    ),
    "workload twice": (
        "workload: {path: x.jsonl, categories: [natural]}",
        26,
        "workload.categories",
        "beside `path`",
        "remove one",
    ),
    "exclude nothing": ("exclude: [{}]", 26, "exclude[0]", "no axis", "at least one"),
    "exclude many": (
        "exclude:\n  - {batch_size: [1, 8]}",
        27,
        "exclude[0].batch_size",
        "one value",
        "entry",
    ),
    "exclude unknown": ("exclude: [{model: dens}]", 26, "exclude[0].model", "`dens`", "`dense`"),
    "exclude type": (
        "exclude: [{prefix_caching: on}]",
        26,
        "exclude[0].prefix_caching",
        "'on'",
        "true",
    ),
    "expect axis": (
        "expect: [{when: {batchsize: 8}, verdict: FAIL, reason: x}]",
        26,
        "expect[0].when.batchsize",
        "unknown axis",
        "`batch_size`",
    ),
    "expect verdict": (
        "expect: [{when: {batch_size: 8}, verdict: Fail, reason: x}]",
        26,
        "expect[0].verdict",
        "'Fail'",
        "`FAIL`",
    ),
    "include leaves an axis open": (
        "include:\n  - {engine: vllm, prefix_caching: true, batch_size: 1,\n"
        "     speculation: {method: ngram, num_speculative_tokens: 4}}",
        27,
        "include[0]",
        "`tensor_parallel_size`, which has 2 values",
        "tensor_parallel_size: ...",
    ),
    "include without checkpoint": (
        "include:\n  - {model: ladder, quantization: fp9, tensor_parallel_size: 1, "
        "prefix_caching: true, batch_size: 1,\n"
        "     speculation: {method: ngram, num_speculative_tokens: 4}}",
        27,
        "include[0].quantization",
        "models.ladder.targets",
        "`fp8`",
    ),
    "include without draft": (
        "include:\n  - {model: ladder, tensor_parallel_size: 1, prefix_caching: true, "
        "batch_size: 1,\n     speculation: {method: eagle, draft: e, num_speculative_tokens: 4}}",
        28,
        "include[0].speculation",
        "no draft `e`",
        "add `e:",
    ),
    "constraint syntax": (
        'constraints: ["(1"]',
        26,
        "constraints[0]",
        "cannot be read",
        "comparisons",
    ),
    "constraint name": (
        "constraints:\n  - tensor_parallel_sise > 1",
        27,
        "constraints[0]",
        "unknown axis `tensor_parallel_sise` at character 1",
        "`tensor_parallel_size`",
    ),
    "constraint call": (
        "constraints: [\"__import__('os')\"]",
        26,
        "constraints[0]",
        "not allowed",
        "comparisons",
    ),
    "constraint value": (
        "constraints: [tensor_parallel_size * 2]",
        26,
        "constraints[0]",
        "neither true nor false",
        "compare",
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_mistake_names_file_line_key_and_remedy(name: str, mistake: Mistake) -> None:
    old, new, line, key, message, remedy = CHANGES[name]
    error = mistake(changed(old, new))
    assert (error.line, error.key) == (line, key)
    assert message in error.message
    assert error.remedy is not None
    assert remedy in error.remedy


@pytest.mark.parametrize("name", ADDITIONS)
def test_a_mistake_in_an_added_section(name: str, mistake: Mistake) -> None:
    addition, line, key, message, remedy = ADDITIONS[name]
    error = mistake(GOOD + addition + "\n")
    assert (error.line, error.key) == (line, key)
    assert message in error.message
    assert error.remedy is not None
    assert remedy in error.remedy


def test_a_batch_size_above_max_num_seqs_is_refused(mistake: Mistake) -> None:
    text = changed("batch_size: [1, 8]", "batch_size: [1, 16]")
    error = mistake(changed("engine: [vllm]", "engine: [vllm, other]", text))
    assert (error.line, error.key) == (22, "grid.batch_size[1]")
    assert "16 is more than engines.other.limits.max_num_seqs (8)" in error.message


def test_a_model_length_that_cannot_hold_the_workload_is_refused(mistake: Mistake) -> None:
    error = mistake(changed("{max_num_seqs: 8}", "{max_model_len: 100}"))
    assert error.key == "engines.other.limits.max_model_len"


def test_a_quantization_that_no_model_has_is_refused(mistake: Mistake) -> None:
    text = changed("model: [dense]", "model: [ladder]\n  quantization: [none, fp9]")
    error = mistake(changed("    - {method: draft_model, draft: small", "    - {method: x", text))
    assert (error.line, error.key) == (20, "grid.quantization[1]")
    assert "online: true" in (error.remedy or "")


def test_all_problems_of_a_file_come_in_one_message(mistake: Mistake) -> None:
    text = changed("kind: vllm, args", "kin: vllm, args")
    error = mistake(changed("revision: abc", "revision: 1", text) + "seed: x\n")
    assert isinstance(error, MatrixErrors)
    assert [problem.line for problem in error.problems] == [3, 3, 10, 26]
    assert all(str(problem) in str(error) for problem in error.problems)


def test_a_message_shows_ten_problems_and_counts_the_rest(mistake: Mistake) -> None:
    error = mistake(GOOD + "".join(f"unknown{i}: 1\n" for i in range(14)))
    assert str(error).count("unknown key") == 10
    assert str(error).endswith("... and 4 more")


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n"])
def test_an_empty_file(text: str, mistake: Mistake) -> None:
    assert "the file is empty" in str(mistake(text))


@pytest.mark.parametrize("text", ["- 1\n", "text\n", "3\n"])
def test_a_file_that_is_no_mapping(text: str, mistake: Mistake) -> None:
    assert "must be a mapping" in str(mistake(text))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(MatrixError, match=r"nowhere\.yaml: there is no such file"):
        load(tmp_path / "nowhere.yaml")


def test_a_folder(tmp_path: Path) -> None:
    with pytest.raises(MatrixError, match="is a folder"):
        load(tmp_path)


def test_a_file_in_another_encoding(tmp_path: Path) -> None:
    path = tmp_path / "matrix.yaml"
    path.write_bytes(b"name: x\ndescription: \xe9\n")
    with pytest.raises(MatrixError, match=r"matrix\.yaml:2: is not UTF-8"):
        load(path)


def test_an_alias_that_contains_itself(mistake: Mistake) -> None:
    assert "contains itself" in str(mistake("a: &a [*a]\n"))


def test_nested_aliases_cannot_blow_up(mistake: Mistake) -> None:
    levels = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    levels += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 10)]
    assert "once aliases are followed" in str(mistake("\n".join(levels)))


@pytest.mark.parametrize("text", ["[" * 10_000, "a: " + "[" * 100 + "]" * 100])
def test_deep_nesting_is_refused(text: str, mistake: Mistake) -> None:
    assert "nested too deeply" in str(mistake(text))


@pytest.mark.parametrize("line", [r'description: "x\ud800"', r'"x\udc00": 1', r'seed: ["\udfff"]'])
def test_half_of_a_character_is_refused_wherever_it_stands(tmp_path: Path, line: str) -> None:
    """YAML can spell it, and no file and no process takes it."""
    file = tmp_path / "m.yaml"
    file.write_text(f"name: m\n{line}\nengines: {{}}\nmodels: {{}}\ngrid: {{}}\n")
    with pytest.raises(MatrixError, match="half of a character"):
        load(file)


def test_a_control_character(mistake: Mistake) -> None:
    error = mistake("name: x\ndescription: \x07\n")
    assert error.line == 2


def test_too_many_combinations(mistake: Mistake) -> None:
    many = str(list(range(1, 600)))
    error = mistake(changed("[1, 2]", f"{many}\n  pipeline_parallel_size: {many}"))
    assert (error.line, error.key) == (17, "grid")
    assert "2,870,408 combinations" in error.message


def test_an_address_without_its_scheme_says_how_to_write_it(tmp_path: Path) -> None:
    text = '{kind: vllm, attach: {off: "localhost:8000", on: "http://localhost:8001"}}'
    file = tmp_path / "m.yaml"
    file.write_text(f"name: m\nengines:\n  one: {text}\nmodels: {{}}\ngrid: {{}}\n")
    with pytest.raises(MatrixError, match="a server with its scheme") as caught:
        load(file)
    assert caught.value.key == "engines.one.attach.off"
    assert caught.value.remedy == "write http://localhost:8000"


@pytest.mark.parametrize(
    ("grid", "models", "remedy"),
    [
        ("batch_size: 100000000", "target: {path: org/x}", "at most 65536"),
        ("tensor_parallel_size: 100000000", "target: {path: org/x}", "at most 65536"),
        ("quantization: q4", "targets: {q8_0: {path: org/x}}", "write one of q8_0, or add `q4:"),
        ("quantization: q8_1", "targets: {q8_0: {path: org/x}}", "write `q8_0`, or add `q8_1:"),
        ("batch_size: 1", "target: {path: org/x}\nconstraints: [batch_size / 0 == 1]", "never 0"),
        ("batch_size: 1", "target: {path: org/x}\nworkload: {max_tokens: 999999999}", "1048576"),
        ("speculation: {method: a, num_speculative_tokens: 1000000}", "target: {path: org/x}",
         "1024"),
    ],
)  # fmt: skip
def test_what_is_beyond_reason_or_not_there_has_a_plain_remedy(
    tmp_path: Path, grid: str, models: str, remedy: str
) -> None:
    model, _, rest = models.partition("\n")
    speculation = "  speculation: {method: a, num_speculative_tokens: 1}\n"
    speculation = "" if grid.startswith("speculation") else speculation
    file = tmp_path / "m.yaml"
    file.write_text(
        f"name: m\nengines: {{one: {{kind: vllm}}}}\nmodels: {{two: {{{model}}}}}\n"
        f"grid:\n  engine: one\n  model: two\n{speculation}  {grid}\n{rest}\n"
    )
    with pytest.raises(MatrixError) as caught:
        expand(load(file), file=str(file))
    assert remedy in str(caught.value.remedy)
    assert caught.value.line
