"""A family is built once, whole, by one process; stand-in recipes need no torch."""

import os
import sys
import threading
from pathlib import Path

import pytest

from matrixrun.evidence.errors import BuildError, UserError
from matrixrun.models import build, catalogue

PYTHON = Path(sys.executable)
COUNTING = """
import sys, pathlib, time
out = pathlib.Path(sys.argv[1])
print("working")
time.sleep(0.2)
with (pathlib.Path(__file__).parent / "runs").open("a") as runs:
    runs.write("x")
for name in ("target", "draft", "eagle3"):
    (out / name).mkdir(parents=True)
    (out / name / "config.json").write_text("{}")
"""
FAILING = """
import sys, pathlib
(pathlib.Path(sys.argv[1]) / "target").mkdir(parents=True)
raise ModuleNotFoundError("no torch here")
"""


@pytest.fixture
def recipes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A recipes folder of stand-ins that count how often they ran."""
    folder = tmp_path / "recipes"
    folder.mkdir()
    for path in catalogue.RECIPES.glob("*.py"):
        (folder / path.name).write_text(COUNTING)
    monkeypatch.setattr(catalogue, "RECIPES", folder)
    catalogue.recipe_hash.cache_clear()
    yield folder
    catalogue.recipe_hash.cache_clear()


def test_a_second_call_builds_nothing(recipes: Path, tmp_path: Path) -> None:
    lines: list[str] = []
    first = build("builtin:tiny-dense", PYTHON, tmp_path / "cache", lines.append)
    second = build("builtin:tiny-dense/draft", PYTHON, tmp_path / "cache", lines.append)
    assert (first.name, second.name) == ("target", "draft")
    assert first.parent == second.parent
    assert lines == ["working"]
    assert (recipes / "runs").read_text() == "x"


def test_every_use_of_a_family_is_noted_also_of_one_that_another_needs(
    recipes: Path, tmp_path: Path
) -> None:
    def use() -> None:
        build("builtin:tiny-dense/eagle3", PYTHON, tmp_path / "cache", lambda _: None)

    use()
    markers = list((tmp_path / "cache" / "models").glob("*/.used"))
    assert len(markers) == 2
    for marker in markers:
        os.utime(marker, (0, 0))
    use()
    assert all(marker.stat().st_mtime > 0 for marker in markers)


def test_two_that_want_the_same_family_share_one_build(recipes: Path, tmp_path: Path) -> None:
    def want() -> None:
        build("builtin:tiny-dense", PYTHON, tmp_path / "cache", lambda _: None)

    threads = [threading.Thread(target=want) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (recipes / "runs").read_text() == "x"


def test_a_family_that_needs_another_gets_its_folder(recipes: Path, tmp_path: Path) -> None:
    with (recipes / "tiny_dense_eagle3.py").open("a") as file:
        file.write("assert (pathlib.Path(sys.argv[2]) / 'target' / 'config.json').exists()\n")
    folder = build("builtin:tiny-dense/eagle3", PYTHON, tmp_path / "cache", lambda _: None)
    assert folder.name == "eagle3"
    assert (recipes / "runs").read_text() == "xx"


def test_a_failed_build_quotes_its_last_lines_and_leaves_nothing(
    recipes: Path, tmp_path: Path
) -> None:
    (recipes / "tiny_dense.py").write_text(FAILING)
    with pytest.raises(BuildError, match="no torch here"):
        build("builtin:tiny-dense", PYTHON, tmp_path / "cache", lambda _: None)
    left = [path for path in (tmp_path / "cache" / "models").iterdir() if path.is_dir()]
    assert left == []


def test_an_interpreter_that_is_not_there_is_named(recipes: Path, tmp_path: Path) -> None:
    missing = tmp_path / "no" / "python"
    with pytest.raises(BuildError, match=str(missing)):
        build("builtin:tiny-dense", missing, tmp_path / "cache", lambda _: None)


def test_an_unknown_name_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError):
        build("builtin:tiny-dens", PYTHON, tmp_path, lambda _: None)
