"""Images as command prefixes. No container runs in these tests: the command lines are compared."""

from __future__ import annotations

from pathlib import Path

import pytest

from matrixrun.engines import containers
from matrixrun.engines.containers import Container
from matrixrun.evidence.errors import UserError

ARGV = ["python3", "-m", "engine"]


def _container(**changes: object) -> Container:
    settings = {
        "runtime": "docker",
        "image": "vllm/vllm-openai:v0.33.0",
        "name": "matrixrun-1",
        "env": ("HF_TOKEN", "A"),
        "mounts": (Path("/cache/models"), Path("/cache"), Path("/data")),
    }
    return Container(**{**settings, **changes})


def test_docker_gets_network_folders_and_variables_by_name() -> None:
    assert " ".join(containers.wrap(_container(), ARGV)) == (
        "docker run --rm --init --name matrixrun-1 --network host --ipc host --label matrixrun "
        "--env A --env HF_TOKEN --volume /cache:/cache --volume /data:/data "
        "--entrypoint  vllm/vllm-openai:v0.33.0 python3 -m engine"
    )


def test_docker_hands_accelerators_on_only_when_the_launch_has_some() -> None:
    assert "--gpus" not in containers.wrap(_container(), ARGV)
    wrapped = containers.wrap(_container(accelerators=True), ARGV)
    assert wrapped[wrapped.index("--gpus") + 1] == "all"


def test_apptainer_runs_an_image_of_a_registry_or_a_file() -> None:
    wrapped = containers.wrap(_container(runtime="apptainer", accelerators=True), ARGV)
    assert " ".join(wrapped) == (
        "apptainer exec --bind /cache:/cache --bind /data:/data --nv "
        "docker://vllm/vllm-openai:v0.33.0 python3 -m engine"
    )
    own = containers.wrap(_container(runtime="apptainer", image="/images/vllm.sif"), ARGV)
    assert "/images/vllm.sif" in own


def test_no_secret_is_on_the_command_line() -> None:
    wrapped = containers.wrap(_container(env=("HF_TOKEN",)), ARGV)
    assert "HF_TOKEN" in wrapped
    assert not [part for part in wrapped if part.startswith("HF_TOKEN=")]


def test_a_node_without_a_container_runtime_is_told_what_to_do() -> None:
    assert containers.runtime(lambda name: "/bin/x" if name == "podman" else None) == "podman"
    with pytest.raises(UserError, match=r"apptainer(?s:.)*remedy"):
        containers.runtime(lambda name: None)
