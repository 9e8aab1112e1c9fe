"""The files in cluster/: read as what they are, and held to KubeRay's published schemas, which lie
here cut down to their structure (`cut_kuberay_schemas.py`)."""

from __future__ import annotations

import copy
import json
import shlex
import subprocess
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from matrixrun.cli import app

CLUSTER = Path(__file__).parents[2] / "cluster"
SCHEMAS = json.loads(Path(__file__).with_name("kuberay_schemas.json").read_text())
MANIFESTS = sorted(CLUSTER.glob("kuberay-*.yaml"))


def read(file: Path) -> Any:
    return yaml.safe_load(file.read_text())


def strict(schema: Any) -> Any:
    """The schema with unknown keys refused, as the API server warns of them."""
    if isinstance(schema, list):
        return [strict(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    made = {key: strict(value) for key, value in schema.items()}
    if schema.get("x-kubernetes-int-or-string"):
        made.pop("type", None)
    free = schema.get("x-kubernetes-preserve-unknown-fields")
    if "properties" in schema and isinstance(schema["properties"], dict) and not free:
        made.setdefault("additionalProperties", False)
    return made


def check(manifest: Any) -> None:
    """Hold a manifest to the schema of its kind."""
    assert manifest["apiVersion"] == SCHEMAS["apiVersion"]
    schema = strict({**SCHEMAS["kinds"][manifest["kind"]], "$defs": SCHEMAS["$defs"]})
    schema["properties"]["metadata"] = {"type": "object"}
    jsonschema.Draft202012Validator(schema).validate(manifest)


@pytest.mark.parametrize("file", MANIFESTS, ids=lambda file: file.name)
def test_a_manifest_is_what_kuberays_schema_allows(file: Path) -> None:
    check(read(file))


@pytest.mark.parametrize("file", MANIFESTS, ids=lambda file: file.name)
@pytest.mark.parametrize("mistake", ["field", "type", "missing", "container", "quantity"])
def test_a_mistake_in_a_manifest_is_found_however_deep(file: Path, mistake: str) -> None:
    manifest = copy.deepcopy(read(file))
    spec = manifest["spec"].get("rayClusterSpec", manifest["spec"])
    group = spec["workerGroupSpecs"][0]
    (container,) = group["template"]["spec"]["containers"]
    if mistake == "field":
        group["maxReplica"] = 2
    elif mistake == "type":
        group["replicas"] = "two"
    elif mistake == "missing":
        del group["groupName"]
    elif mistake == "container":
        container["volumeMount"] = container.pop("volumeMounts")
    else:
        container["resources"]["limits"]["memory"] = ["512Gi"]
    with pytest.raises(jsonschema.ValidationError):
        check(manifest)


@pytest.mark.parametrize("file", MANIFESTS, ids=lambda file: file.name)
def test_every_container_has_what_it_mounts(file: Path) -> None:
    spec = read(file)["spec"]
    spec = spec.get("rayClusterSpec", spec)
    groups = [spec["headGroupSpec"], *spec["workerGroupSpecs"]]
    for pod in (group["template"]["spec"] for group in groups):
        volumes = {volume["name"] for volume in pod["volumes"]}
        (container,) = pod["containers"]
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes
        resources = container["resources"]
        assert resources["requests"] == resources["limits"]


def test_the_jobs_entry_point_is_a_command_line_of_ours() -> None:
    words = shlex.split(read(CLUSTER / "kuberay-job.yaml")["spec"]["entrypoint"])
    assert words[:4] == ["python", "-m", "matrixrun", "run"]
    run = next(c for c in app.registered_commands if c.callback.__name__ == "run")
    assert "results" in run.callback.__annotations__
    assert words[5] == "--results"


def test_the_slurm_script_is_a_shell_script() -> None:
    subprocess.run(["bash", "-n", str(CLUSTER / "slurm.sbatch")], check=True)


def test_no_secret_is_written_into_the_tracking_servers_files() -> None:
    services = read(CLUSTER / "mlflow" / "compose.yaml")["services"]
    secrets = [
        value
        for service in services.values()
        for name, value in service.get("environment", {}).items()
        if "PASSWORD" in name or "SECRET" in name
    ]
    assert secrets
    assert all(value.startswith("${") for value in secrets)
    lines = (CLUSTER / "mlflow" / "example.env").read_text().splitlines()
    assert all(line.endswith("=") for line in lines)


@pytest.mark.parametrize(
    "file",
    [f for f in sorted(CLUSTER.rglob("*")) if f.is_file() and f.suffix not in (".md", ".env")],
    ids=lambda file: file.name,
)
def test_each_file_says_when_to_use_it_and_whether_it_was_run(file: Path) -> None:
    text = file.read_text()
    assert "# When:" in text
    assert "Not run here" in text
