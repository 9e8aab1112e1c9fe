"""Environments: built once, whole or not at all, with the user's pip. Nothing is downloaded."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import filelock
import pytest

from matrixrun.engines import environments, orphans, prepare
from matrixrun.engines.environments import COMPLETE, USED
from matrixrun.engines.surroundings import engine_environment
from matrixrun.evidence.errors import BuildError, UserError
from matrixrun.evidence.launches import Recipe


def _wheel(folder: Path, name: str, *, requires: str | None = None) -> Path:
    """A wheel with one module of its name."""
    info = f"{name}-1.0.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
    if requires:
        metadata += f"Requires-Dist: {requires}\n"
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(f"{name}.py", f"WHERE = 'wheel {name}'\n")
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")
    return path


def _index(folder: Path, name: str) -> str:
    """The address of a package index with one package."""
    (folder / name.replace("_", "-")).mkdir(parents=True)
    wheel = _wheel(folder / name.replace("_", "-"), name)
    (wheel.parent / "index.html").write_text(f'<a href="{wheel.name}">{wheel.name}</a>')
    return folder.as_uri()


@pytest.fixture
def wheels(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The only packages that pip can see: a, b (wants absent), c."""
    folder = tmp_path / "wheels"
    folder.mkdir()
    _wheel(folder, "tiny_a")
    _wheel(folder, "tiny_b", requires="absent-package==9")
    _wheel(folder, "tiny_c")
    for name in [name for name in os.environ if name.startswith("PIP_")]:
        monkeypatch.delenv(name)
    empty = tmp_path / "empty-index"
    empty.mkdir()
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_INDEX_URL", empty.as_uri())
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def _python(environment: environments.Environment, code: str) -> str:
    env = engine_environment({}, environment.overlay)
    done = subprocess.run(
        [environment.python, "-c", code], capture_output=True, text=True, check=True, env=env
    )
    return done.stdout.strip()


def _prepare(recipe: Recipe, cache: Path, lines: list[str], timeout: float = 300.0):
    return prepare(recipe, cache=cache, timeout=timeout, on_line=lines.append)


def test_a_recipe_is_built_once_and_followed_to_the_letter(wheels: Path, tmp_path: Path) -> None:
    overlay = tmp_path / "overlay"
    overlay.mkdir()
    (overlay / "tiny_a.py").write_text("WHERE = 'overlay'\n")
    fallback = _index(tmp_path / "other-index", "tiny_d")
    recipe = Recipe(
        install=("tiny-a==1.0", "tiny-c", "tiny-d"),  # d: only where the fallback points
        no_deps=("tiny-b",),
        without=("tiny-c",),
        overlay=str(overlay),
        fallback_index=fallback,
    )
    lines: list[str] = []
    built = _prepare(recipe, tmp_path / "cache", lines)
    assert _python(built, "import tiny_a, tiny_b, tiny_d; print(tiny_a.WHERE, tiny_b.WHERE)") == (
        "overlay wheel tiny_b"
    )
    found = "import importlib.util as u; print(u.find_spec('tiny_c'))"
    assert _python(built, found) == "None"
    assert f"the configured package indexes do not do; trying {fallback} too" in lines
    assert any("Successfully installed" in line for line in lines)
    assert "tiny-a==1.0" in (built.path / COMPLETE).read_text().lower().replace("_", "-")
    again: list[str] = []
    assert _prepare(recipe, tmp_path / "cache", again) == built
    assert again == []


def test_every_use_of_an_environment_is_noted_under_its_lock(wheels: Path, tmp_path: Path) -> None:
    recipe = Recipe(install=("tiny-a",))
    path = tmp_path / "engines" / environments.key(recipe)
    path.mkdir(parents=True)
    (path / COMPLETE).touch()
    for _ in range(2):
        began = time.time() - 1  # file systems round
        assert _prepare(recipe, tmp_path, []).path == path
        assert (path / USED).stat().st_mtime >= began
        os.utime(path / USED, (0, 0))
    with filelock.FileLock(f"{path}.lock"), pytest.raises(BuildError, match="another process"):
        _prepare(recipe, tmp_path, [], timeout=0.1)
    assert (path / USED).stat().st_mtime == 0


def test_a_build_that_was_killed_is_never_used(wheels: Path, tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    recipe = Recipe(install=("tiny-a",))
    program = (
        "import sys; from pathlib import Path; from matrixrun.engines import prepare\n"
        "from matrixrun.evidence.launches import Recipe\n"
        "prepare(Recipe(install=('tiny-a',)), cache=Path(sys.argv[1]), timeout=300,"
        " on_line=print)"
    )
    builder = subprocess.Popen(
        [sys.executable, "-u", "-c", program, str(cache)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stdout=subprocess.DEVNULL,
    )
    path = cache / "engines" / environments.key(recipe)
    until = time.monotonic() + 60
    while not (path / "bin").exists():
        assert time.monotonic() < until
        time.sleep(0.01)
    builder.send_signal(signal.SIGKILL)
    builder.wait()
    assert not (path / COMPLETE).exists()
    lines: list[str] = []
    built = _prepare(recipe, cache, lines)
    assert lines[0] == f"removing an unfinished environment at {path}"
    assert _python(built, "import tiny_a; print(tiny_a.WHERE)") == "wheel tiny_a"
    assert orphans() == []


def test_a_package_that_exists_nowhere_is_named_with_the_python_version(
    wheels: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def only_pip(self: object, argv: list[str], what: str) -> list[str]:
        if "venv" in argv:  # pip of this very interpreter will do, and is there at once
            return []
        return run(self, [sys.executable, *argv[1:]], what)

    run = environments.Builder.run
    monkeypatch.setattr(environments.Builder, "run", only_pip)
    recipe = Recipe(install=("--dry-run", "absent-engine==3.0"), fallback_index=wheels.as_uri())
    lines: list[str] = []
    with pytest.raises(BuildError) as caught:
        _prepare(recipe, tmp_path / "cache", lines)
    message = str(caught.value)
    assert "No matching distribution found for absent-engine==3.0" in message
    assert "have no absent-engine==3.0 for Python " + sys.version.split()[0] in message
    assert [line for line in lines if "trying" in line]


def test_a_build_has_its_time_and_no_more(wheels: Path, tmp_path: Path) -> None:
    with pytest.raises(BuildError, match="not done within the time allowed"):
        _prepare(Recipe(install=("tiny-a",)), tmp_path / "cache", [], timeout=0.3)
    assert orphans() == []


def test_a_key_names_what_is_in_an_environment_and_nothing_else() -> None:
    recipe = Recipe(install=("a",), overlay="/x", fallback_index="https://i")
    same = Recipe(install=("a",))
    assert environments.key(recipe) == environments.key(same)
    for other in (
        Recipe(install=("b",)),
        Recipe(install=("a",), without=("c",)),
        Recipe(no_deps=("a",)),
    ):
        assert environments.key(other) != environments.key(same)


def test_the_users_own_interpreter_is_used_as_it_is(tmp_path: Path) -> None:
    own = _prepare(Recipe(python=sys.executable), tmp_path, [])
    assert own.python == Path(sys.executable)
    assert own.path is None
    assert list(tmp_path.iterdir()) == []


def test_an_interpreter_that_does_not_run_is_a_mistake_of_the_user(tmp_path: Path) -> None:
    broken = tmp_path / "python"
    broken.write_text("#!/bin/sh\necho out of order >&2; exit 3\n")
    broken.chmod(0o755)
    with pytest.raises(UserError, match="out of order"):
        _prepare(Recipe(python=str(broken)), tmp_path, [])
    with pytest.raises(UserError, match="not an executable"):
        _prepare(Recipe(python=str(tmp_path / "absent")), tmp_path, [])


def test_an_overlay_is_a_folder_or_one_that_comes_with_the_program(tmp_path: Path) -> None:
    assert environments.find_overlay(str(tmp_path)) == tmp_path
    shipped = environments.find_overlay("builtin:vllm_cpu")
    assert shipped is not None
    assert (shipped / "torchvision" / "__init__.py").exists()
    with pytest.raises(UserError, match="builtin:vllm_cpu"):
        environments.find_overlay("builtin:absent")


def test_a_recipe_that_installs_nothing_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="nothing to install"):
        _prepare(Recipe(), tmp_path, [])


def test_an_image_needs_nothing_built(tmp_path: Path) -> None:
    environment = _prepare(Recipe(image="vllm/vllm-openai:v0.33.0"), tmp_path, [])
    assert environment.image == "vllm/vllm-openai:v0.33.0"
    assert environment.path is None
