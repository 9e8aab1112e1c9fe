"""Servers built from source: built once, from what the index has, and never half a build."""

from __future__ import annotations

import io
import shutil
import subprocess
import tarfile
from pathlib import Path

import pytest

from matrixrun.engines import binaries
from matrixrun.engines.environments import COMPLETE, Builder
from matrixrun.evidence.errors import BuildError, UserError

FILES = {
    "thing-1.0/project/CMakeLists.txt": (
        "cmake_minimum_required(VERSION 3.18)\nproject(thing CXX)\n"
        "set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)\n"
        "add_executable(thing thing.cpp)\ntarget_compile_definitions(thing PRIVATE ${WORD})\n"
        "add_executable(other no-such-file.cpp)\n"
    ),
    "thing-1.0/project/thing.cpp": (
        '#include <cstdio>\nint main() {\n#ifdef OPTION\nputs("with the option");\n#endif\n}\n'
    ),
    "thing-1.0/project/no-such-file.cpp": "this does not compile\n",
}
THING = binaries.Source("thing==1.0", "project", ("thing",), ("-DWORD=OPTION",))


@pytest.fixture
def built(monkeypatch: pytest.MonkeyPatch):
    """Build `builtin:thing`; its source comes from a double of the index. Returns the steps."""
    if shutil.which("cmake") is None or shutil.which("c++") is None:
        pytest.skip("no cmake or compiler here")
    steps: list[str] = []
    run = Builder.run

    def stepping(self: Builder, argv: list[str], what: str) -> list[str]:
        steps.append(what)
        if "download" not in argv:
            return run(self, argv, what)
        with tarfile.open(Path(argv[argv.index("--dest") + 1]) / "thing-1.0.tar.gz", "w:gz") as tar:
            for name, text in FILES.items():
                entry = tarfile.TarInfo(name)
                entry.size = len(text)
                tar.addfile(entry, io.BytesIO(text.encode()))
        return []

    monkeypatch.setattr(Builder, "run", stepping)
    monkeypatch.setitem(binaries.SOURCES, "thing", THING)
    return steps


def build(cache: Path, timeout: float = 120) -> Path:
    return binaries.build("builtin:thing", cache=cache, timeout=timeout, on_line=print)


def test_one_target_is_built_with_its_options_and_kept(built: list[str], tmp_path: Path) -> None:
    executable = build(tmp_path)
    said = subprocess.run([executable], capture_output=True, text=True, check=True).stdout
    assert said == "with the option\n"
    assert not (executable.parents[1] / "build").exists()
    done = list(built)
    assert done == [
        "pip download thing==1.0", "cmake: configuring", "cmake: building thing",
    ]  # fmt: skip
    assert build(tmp_path) == executable
    assert built == done


def test_a_build_that_was_cut_short_is_begun_again(built: list[str], tmp_path: Path) -> None:
    executable = build(tmp_path)
    (executable.parents[1] / COMPLETE).unlink()
    executable.write_text("half")
    build(tmp_path)
    assert len(built) == 6
    assert executable.read_bytes()[:4] == b"\x7fELF"


def test_what_does_not_compile_is_told_in_the_compilers_words(
    built: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broken = binaries.Source("thing==1.0", "project", ("other",), THING.options)
    monkeypatch.setitem(binaries.SOURCES, "thing", broken)
    with pytest.raises(BuildError, match="expected unqualified-id") as told:
        build(tmp_path)
    assert "compiler" in str(told.value.remedy)


def test_a_name_that_there_is_none_of_is_told(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="builtin:llama-server"):
        binaries.build("builtin:lama", cache=tmp_path, timeout=1, on_line=print)


def test_without_a_compiler_it_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(binaries.shutil, "which", lambda _: None)
    with pytest.raises(UserError, match="has no cmake"):
        binaries.build("builtin:llama-server", cache=tmp_path, timeout=1, on_line=print)
