"""The commands: every mistake is one message and a documented exit code."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from matrixrun.cli import _main, app
from matrixrun.evidence.verdicts import EXIT_CODES

ROOT = Path(__file__).parents[1]
SMALL = """\
name: small
engines: {vllm: {kind: vllm}}
models: {tiny: {target: {path: "builtin:tiny-dense"}}}
grid:
  engine: vllm
  model: tiny
  speculation: {method: ngram, num_speculative_tokens: [SPECULATED]}
"""


def matrixrun(*arguments: str, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "matrixrun", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def write(folder: Path, text: str) -> str:
    (folder / "small.yaml").write_text(text)
    return "small.yaml"


@pytest.mark.parametrize("file", sorted((ROOT / "matrices").glob("*.yaml")), ids=lambda p: p.stem)
def test_every_ready_matrix_plans(file: Path) -> None:
    done = matrixrun("plan", str(file), "--json")
    assert done.returncode == 0, done.stderr
    plan = json.loads(done.stdout)
    assert plan["cells"]
    assert plan["pairs"]
    extra = [one for one in plan["launches"] if one["role"] in {"forced", "traced"}]
    assert len(plan["launches"]) - len(extra) <= plan["naive_launches"]
    assert all(launch["argv"] for launch in plan["launches"])


def test_the_quickstart_is_at_most_eight_launches() -> None:
    plan = json.loads(matrixrun("plan", "matrices/quickstart.yaml", "--json").stdout)
    assert len(plan["launches"]) <= 8


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["run", "absent.yaml"], "absent.yaml"),
        (["run", "matrices/quickstart.yaml", "--only", "vllm.tiny-dens"], "no cell is named"),
        (["plan", "matrices/quickstart.yaml", "--no-such-option"], "--no-such-option"),
        (["plan", "matrices/quickstart.yaml", "--nodes", "4x8"], "add --simulate"),
        (["judge", "no-such-sweep"], "no-such-sweep"),
        (["sync", "no-such-sweep"], "no-such-sweep"),
        (["report", "no-such-sweep"], "no-such-sweep"),
        (["models", "build", "builtin:tiny-dens"], "tiny-dense"),
        (["gone"], "gone"),
    ],
)
def test_a_mistake_is_one_message_and_exit_code_4(arguments: list[str], said: str) -> None:
    done = matrixrun(*arguments)
    assert done.returncode == 4, done.stdout + done.stderr
    assert said in done.stderr
    assert "Traceback" not in done.stderr


def test_a_mistake_in_the_file_names_file_line_key_and_remedy(tmp_path: Path) -> None:
    name = write(tmp_path, SMALL.replace("[SPECULATED]", "three"))
    done = matrixrun("run", name, cwd=tmp_path)
    assert done.returncode == 4
    for part in ("small.yaml:7", "num_speculative_tokens", "remedy"):
        assert part in done.stderr
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        ("builtin:tiny-dense", "builtin:tiny-dens", ["small.yaml:3", "did you mean"]),
        ("builtin:tiny-dense", "./no-such-folder", ["small.yaml:3", "no-such-folder"]),
        ("kind: vllm", "kind: vlm", ["small.yaml:2", "engines.vllm.kind"]),
        ("name: small", "name: small\nexpectations: none.yaml", ["small.yaml:2", "none.yaml"]),
    ],
)
def test_what_the_file_names_must_be_there_and_plan_says_so_already(
    tmp_path: Path, before: str, after: str, said: list[str]
) -> None:
    name = write(tmp_path, SMALL.replace("[SPECULATED]", "3").replace(before, after))
    for command in ("plan", "run"):
        done = matrixrun(command, name, cwd=tmp_path)
        assert done.returncode == 4, done.stdout + done.stderr
        assert all(part in done.stderr for part in (*said, "remedy")), done.stderr
    assert not (tmp_path / "results").exists()


def test_a_grid_of_which_nothing_is_left_is_nothing_to_run(tmp_path: Path) -> None:
    text = SMALL.replace("[SPECULATED]", "3") + 'constraints: ["batch_size > 1"]\n'
    name = write(tmp_path, text)
    assert matrixrun("plan", name, cwd=tmp_path).returncode == 5
    assert matrixrun("run", name, cwd=tmp_path).returncode == 5


def test_a_folder_that_holds_something_else_is_left_alone(tmp_path: Path) -> None:
    name = write(tmp_path, SMALL.replace("[SPECULATED]", "3"))
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("mine")
    done = matrixrun("run", name, "--results", "notes", cwd=tmp_path)
    assert done.returncode == 4
    assert "notes" in done.stderr
    assert [p.name for p in (tmp_path / "notes").iterdir()] == ["mine.txt"]


def test_help_and_readme_give_the_same_exit_codes() -> None:
    readme = (ROOT / "README.md").read_text()
    shown = " ".join(matrixrun("run", "--help").stdout.split())
    for code, text in EXIT_CODES.items():
        assert f"| {code} | {text} |" in readme
        assert f"{code} {text}" in shown


def test_help_imports_neither_ray_nor_mlflow() -> None:
    code = "import sys, matrixrun.cli; print([m for m in ('ray', 'mlflow') if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_plan_tells_of_a_misspelt_cell_in_the_expectations_file(tmp_path: Path) -> None:
    text = SMALL.replace("[SPECULATED]", "4") + "expectations: known.yaml\n"
    metric = "acceptance/mean_acceptance_length"
    (tmp_path / "known.yaml").write_text(f"vllm.tiny.ngarm-k4.b1: {{{metric}: [1, 2]}}\n")
    done = matrixrun("plan", write(tmp_path, text), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "did you mean vllm.tiny.ngram-k4.b1?" in " ".join(done.stdout.split())


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
@pytest.mark.parametrize("stderr_full", [False, True])
def test_a_full_disk_under_the_log_ends_as_incomplete_and_never_as_a_verdict(stderr_full: bool):
    full = os.open("/dev/full", os.O_WRONLY)
    ended = subprocess.run(
        [sys.executable, "-m", "matrixrun", "plan", "matrices/quickstart.yaml"],
        cwd=ROOT,
        stdout=full,
        stderr=full if stderr_full else subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(full)
    assert ended.returncode == 2
    if not stderr_full:
        assert "output cannot be written" in ended.stderr
        assert "Traceback" not in ended.stderr


@pytest.mark.parametrize(
    ("file", "results", "said"),
    [
        ("absent.yaml", "/results", "absent.yaml"),
        ("matrices/one-minute.yaml", "relative", "name an absolute path"),
    ],
)
def test_a_submission_is_checked_before_a_cluster_is_asked(file: str, results: str, said: str):
    nobody = "http://127.0.0.1:9"
    done = matrixrun("submit", file, "--results", results, "--address", nobody)
    assert done.returncode == 4
    assert said in done.stderr
    assert "connect" not in done.stderr


@pytest.mark.parametrize("number", ["-3", "nan", "inf", "a"])
@pytest.mark.parametrize(
    "arguments",
    [
        ["gc", "--delete", "--older-than"],
        ["run", "matrices/one-minute.yaml", "--deadline"],
        ["submit", "matrices/one-minute.yaml", "--results", "/results", "--deadline"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_a_number_of_days_or_minutes_is_a_number_from_0_on(
    arguments: list[str],
    number: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def nothing(*_: object, **__: object) -> None:
        raise AssertionError("was done all the same")

    for work in ("record.cleanup.clean", "fanout.run_matrix", "fanout.jobs.Jobs"):
        monkeypatch.setattr(f"matrixrun.{work}", nothing)
    monkeypatch.setattr(sys, "argv", ["matrixrun", *arguments, number])
    assert _main() == 4
    assert arguments[-1] in capsys.readouterr().err


def commands(group: typer.Typer = app, *path: str) -> Iterator[tuple[str, ...]]:
    for command in group.registered_commands:
        name = command.name or command.callback.__name__.replace("_", "-")
        yield (*path, name)
    for inner in group.registered_groups:
        yield from commands(inner.typer_instance, *path, inner.name)


@pytest.mark.parametrize("command", list(commands()), ids=" ".join)
def test_the_help_of_every_command_says_what_its_exit_codes_mean(command: tuple[str, ...]) -> None:
    shown = CliRunner().invoke(app, [*command, "--help"])
    assert shown.exit_code == 0
    assert "Exit codes: 0 " in shown.output


def test_a_mistake_in_the_expectations_file_has_its_place_in_the_matrix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "mine.yaml").write_text("name: 1\n")
    write(tmp_path, SMALL.replace("[SPECULATED]", "4") + "expectations: mine.yaml\n")
    monkeypatch.chdir(tmp_path)
    for command in (["plan"], ["run", "--no-tracking"]):
        monkeypatch.setattr(sys, "argv", ["matrixrun", *command, "small.yaml"])
        assert _main() == 4
        told = capsys.readouterr().err
        assert "small.yaml:8: expectations: " in told
        assert "name is not a mapping of metrics" in told
    assert not (tmp_path / "results").exists()
