"""Container images as command prefixes. Pure: nothing here starts a container."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from matrixrun.evidence.errors import UserError

RUNTIMES = ("docker", "podman", "apptainer", "singularity")
PYTHON = "python3"  # what $PYTHON means inside an image


@dataclass(frozen=True)
class Container:
    """An image and what it gets of the host: `env` by name only (values travel through the
    client's own environment), folders mounted at the path they have here, GPUs or none."""

    runtime: str
    image: str
    name: str
    env: tuple[str, ...] = ()
    mounts: tuple[Path, ...] = ()
    accelerators: bool = False


def runtime(which: Callable[[str], str | None] = shutil.which) -> str:
    """The first container runtime on PATH; UserError when there is none."""
    for name in RUNTIMES:
        if which(name) is not None:
            return name
    raise UserError(
        "an engine asks for a container image, and none of "
        f"{', '.join(RUNTIMES)} is installed on this node",
        remedy="install one, or give the engine `install:` or `python:` instead of `image:`",
    )


def wrap(container: Container, argv: Iterable[str]) -> list[str]:
    """`argv` as it runs inside the container, on the host's network."""
    if container.runtime in ("apptainer", "singularity"):
        return [*_apptainer(container), *argv]
    return [*_docker(container), *argv]


def _docker(container: Container) -> list[str]:
    command = [container.runtime, "run", "--rm", "--init", "--name", container.name]
    command += ["--network", "host", "--ipc", "host", "--label", "matrixrun"]
    for name in sorted(container.env):
        command += ["--env", name]
    for folder in _outermost(container.mounts):
        command += ["--volume", f"{folder}:{folder}"]
    if container.accelerators:
        command += ["--gpus", "all"]
    # An engine image's own entry point is a server: the command line says all of it.
    return [*command, "--entrypoint", "", container.image]


def _apptainer(container: Container) -> list[str]:
    # Apptainer shares network and environment with the host by default.
    command = [container.runtime, "exec"]
    for folder in _outermost(container.mounts):
        command += ["--bind", f"{folder}:{folder}"]
    if container.accelerators:
        command.append("--nv")
    image = container.image
    return [*command, image if "://" in image or image.endswith(".sif") else f"docker://{image}"]


def _outermost(folders: Iterable[Path]) -> list[Path]:
    """Sorted, without folders that lie inside another one of them."""
    kept: list[Path] = []
    for folder in sorted(set(folders)):
        if not any(folder.is_relative_to(outer) for outer in kept):
            kept.append(folder)
    return kept
