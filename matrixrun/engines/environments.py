"""Where an engine runs: an environment built once per node, an interpreter, or an image."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import filelock

from matrixrun.engines.processes import Held, end_orphans
from matrixrun.engines.surroundings import engine_environment, mask_text
from matrixrun.evidence.errors import BuildError, UserError
from matrixrun.evidence.launches import Recipe

COMPLETE = ".complete"
USED = ".used"  # touched at every use, so that `gc` knows what is not used any more
TAIL_LINES = 15
OVERLAYS = Path(__file__).with_name("overlays")
_MISSING = re.compile(r"(?:No matching distribution found for|satisfies the requirement) (\S+)")

OnLine = Callable[[str], None]


@dataclass(frozen=True)
class Environment:
    """An engine's surroundings on this node: its interpreter, the folder that was built for it
    (None for the user's own), the overlay for PYTHONPATH, and a key that names the whole.

    `image` is set for a container; `python` is then a name inside it. `binary` is the server's own
    executable, for an engine that has one.
    """

    python: Path
    path: Path | None
    overlay: Path | None
    key: str
    image: str | None = None
    binary: str | None = None


def prepare(recipe: Recipe, *, cache: Path, timeout: float, on_line: OnLine) -> Environment:
    """The environment of a recipe, built under `cache`/engines when it is not there yet.

    `timeout` bounds a build, in seconds; `on_line` receives each line of its progress. Raises
    BuildError with the end of pip's output, UserError for a recipe that names something absent.
    """
    environment = _prepared(recipe, cache, timeout, on_line)
    if recipe.binary is None:
        return environment
    if recipe.binary.startswith("builtin:"):
        from matrixrun.engines import binaries  # it builds with what is here

        built = binaries.build(recipe.binary, cache=cache, timeout=timeout, on_line=on_line)
        return replace(environment, binary=str(built))
    return replace(environment, binary=_binary(recipe.binary, environment))


def _binary(name: str, environment: Environment) -> str:
    """The executable's path; in a container it is a name that only the container knows."""
    if environment.image is not None:
        return name
    own = None if environment.path is None else str(environment.path / "bin")
    wanted = str(Path(name).expanduser())
    found = (shutil.which(wanted, path=own) if own else None) or shutil.which(wanted)
    if found is None:
        raise UserError(
            f"binary: {name!r} is not an executable on this node",
            remedy="give the path of the engine's server",
        )
    return str(Path(found).absolute())


def _prepared(recipe: Recipe, cache: Path, timeout: float, on_line: OnLine) -> Environment:
    overlay = find_overlay(recipe.overlay)
    if recipe.image is not None:
        key = digest_of({"image": recipe.image})
        return Environment(Path("python3"), None, overlay, key, image=recipe.image)
    if recipe.python is not None:
        return _existing(recipe.python, overlay)
    if not recipe.install and not recipe.no_deps:
        raise UserError(
            "an engine recipe names nothing to install",
            remedy="give `install: [requirement, ...]`, `python:` or `image:`",
        )
    return _built(recipe, overlay, cache, timeout, on_line)


def find_overlay(name: str | None) -> Path | None:
    """The folder of an overlay: an absolute path, or the name of one that comes with matrixrun
    (`builtin:NAME`)."""
    if name is None:
        return None
    path = Path(name).expanduser()
    if not path.is_absolute():
        path = OVERLAYS / name.removeprefix("builtin:")
    if not path.is_dir():
        shipped = sorted(p.name for p in OVERLAYS.iterdir() if p.is_dir())
        raise UserError(
            f"overlay {name!r}: there is no folder {path}",
            remedy=f"give an absolute path or one of {', '.join(f'builtin:{n}' for n in shipped)}",
        )
    return path


def key(recipe: Recipe) -> str:
    """16 hex digits that name what a built environment holds: recipe, interpreter, platform."""
    return digest_of(
        {
            "install": recipe.install,
            "no_deps": recipe.no_deps,
            "without": recipe.without,
            "python": [sys.implementation.name, platform.python_version(), sys.base_prefix],
            "platform": [sys.platform, platform.machine(), platform.libc_ver()],
        }
    )


def digest_of(value: object) -> str:
    """16 hex digits that name a value of plain types."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def _existing(name: str, overlay: Path | None) -> Environment:
    found = shutil.which(str(Path(name).expanduser()))
    if found is None:
        raise UserError(
            f"python: {name!r} is not an executable on this node",
            remedy="give the path of an interpreter that has the engine installed",
        )
    python = Path(found).absolute()  # never resolved: a venv's python is a link
    try:
        probe = subprocess.run(
            [str(python), "-c", "import sys; print(sys.version)"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
    except (OSError, subprocess.SubprocessError) as error:
        words = str(getattr(error, "stderr", "") or error).strip()
        raise UserError(
            f"python: {python} does not run: {words}",
            remedy="give the path of an interpreter that has the engine installed",
        ) from error
    digest = digest_of({"python": str(python), "version": probe.stdout.strip()})
    return Environment(python, None, overlay, digest)


def _built(
    recipe: Recipe, overlay: Path | None, cache: Path, timeout: float, on_line: OnLine
) -> Environment:
    digest = key(recipe)
    path = cache / "engines" / digest
    environment = Environment(path / "bin" / "python", path, overlay, digest)
    if (path / COMPLETE).exists() and not os.access(path.parent, os.W_OK):
        return environment  # a cache that is only read is nobody's to clean from here
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(f"{path}.lock")
    try:
        with lock.acquire(timeout=timeout):  # also where it is built: `gc` may be deleting it
            if not (path / COMPLETE).exists():
                _build(recipe, path, timeout, on_line)
            with contextlib.suppress(OSError):  # somebody else's, in a cache that is shared
                (path / USED).touch()
    except filelock.Timeout:
        raise BuildError(
            f"another process has been building {path} for more than {timeout:g} s",
            remedy="wait for it, or end it and run again",
        ) from None
    return environment


def _build(recipe: Recipe, path: Path, timeout: float, on_line: OnLine) -> None:
    """Build in place, since a virtual environment cannot be moved; the marker comes last, so a
    build that was cut short is never taken for whole."""
    if path.exists():
        end_orphans()  # a pip that outlived its owner and its guard may still be writing here
        on_line(f"removing an unfinished environment at {path}")
        shutil.rmtree(path)
    builder = Builder(path, time.monotonic() + timeout, on_line)
    builder.run([sys.executable, "-m", "venv", str(path)], "creating a virtual environment")
    if recipe.install:
        builder.install(recipe.install, recipe.fallback_index)
    if recipe.no_deps:
        builder.install(("--no-deps", *recipe.no_deps), recipe.fallback_index)
    if recipe.without:
        builder.pip(["uninstall", "--yes", *recipe.without])
    freeze = builder.pip(["freeze"])
    (path / COMPLETE).write_text("\n".join(freeze) + "\n", encoding="utf-8")


class Builder:
    """Runs the steps of one build under the guard, streaming what they print."""

    def __init__(self, path: Path, deadline: float, on_line: OnLine) -> None:
        """`path` is what is built; `deadline` is in the seconds of `time.monotonic`."""
        self._path, self._deadline, self._on_line = path, deadline, on_line
        self._env = engine_environment({"PYTHONUNBUFFERED": "1", "PIP_NO_INPUT": "1"}, None)
        self._env.pop("PYTHONPATH", None)  # pip would take its packages for installed

    def install(self, requirements: Sequence[str], fallback_index: str | None) -> None:
        """Install with pip; with the further index too where the user's own do not do."""
        command = ["install", "--progress-bar", "off"]
        try:
            self.pip([*command, *requirements])
        except BuildError:
            if fallback_index is None or time.monotonic() > self._deadline:
                raise
            self._on_line(f"the configured package indexes do not do; trying {fallback_index} too")
            self.pip([*command, "--extra-index-url", fallback_index, *requirements])

    def pip(self, arguments: Sequence[str]) -> list[str]:
        """Run the environment's own pip; its lines."""
        python = str(self._path / "bin" / "python")
        return self.run([python, "-m", "pip", *arguments], f"pip {' '.join(arguments)}")

    def run(self, argv: list[str], what: str) -> list[str]:
        """Run one step; its lines. BuildError when it fails or the time is up."""
        self._on_line(what)
        with tempfile.TemporaryDirectory(prefix="matrixrun-build-") as scratch:
            log = Path(scratch) / "log"
            with log.open("wb") as output:
                step = Held(
                    argv,
                    env=self._env,
                    output=output,
                    status_path=Path(scratch) / "status",
                    grace=2.0,
                )
            try:
                code = self._follow(step, log)
            finally:
                step.stop()
            lines = self._mask(log.read_text(errors="replace")).splitlines()
        if code is None:
            raise _failure(f"{what}: not done within the time allowed", lines, argv)
        if code != 0:
            raise _failure(f"{what}: failed (exit {code})", lines, argv)
        return lines

    def _follow(self, step: Held, log: Path) -> int | None:
        """Hand on lines as they come; the exit code, or None when the time is up."""
        with log.open(errors="replace") as stream:
            pending = ""
            while True:
                code = step.wait(0.2)
                pending += stream.read()
                *whole, pending = pending.split("\n")
                for line in whole:
                    self._on_line(self._mask(line))
                if code is not None or time.monotonic() > self._deadline:
                    return code

    def _mask(self, text: str) -> str:
        return mask_text(text, self._env)


def _failure(message: str, lines: list[str], argv: list[str]) -> BuildError:
    text = "\n".join(lines)
    missing = _MISSING.search(text)
    if missing is not None:
        remedy = (
            f"the package indexes that pip is configured for have no {missing.group(1)} for "
            f"Python {platform.python_version()} on {platform.system()} {platform.machine()}: "
            "run matrixrun with a Python it exists for, or change `install:`, or give `python:`"
        )
    elif "ensurepip" in text or "venv" in argv:
        remedy = "install this Python's venv module (on Debian: the package python3-venv)"
    elif argv[0] == "cmake":
        remedy = "the lines above are CMake's and the compiler's own; or give `binary:` a path"
    else:
        remedy = "the lines above are pip's own; correct the recipe or pip's configuration"
    return BuildError(message, log_tail="\n".join(lines[-TAIL_LINES:]), remedy=remedy)
