"""Cut KubeRay's published schemas down to what a manifest is checked against, for this repository.

    python tests/cluster/cut_kuberay_schemas.py KUBERAY/ray-operator/config/crd/bases v1.7.0

writes `kuberay_schemas.json` beside this file. Kept is the structure of `spec` whole: names, types,
enumerations, what is required. Left out are descriptions, defaults, patterns of merging and the
status; parts that occur several times (a pod's template occurs in every group) stand once, under
`$defs`. Source: https://github.com/ray-project/kuberay, Apache License 2.0.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import yaml

OUT = Path(__file__).with_name("kuberay_schemas.json")
KINDS = {"RayCluster": "ray.io_rayclusters.yaml", "RayJob": "ray.io_rayjobs.yaml"}
KEPT = {
    "type", "properties", "required", "items", "additionalProperties", "enum", "format",
    "minimum", "maximum", "minItems", "maxItems", "minLength", "maxLength", "pattern", "anyOf",
    "oneOf", "nullable", "x-kubernetes-int-or-string", "x-kubernetes-preserve-unknown-fields",
}  # fmt: skip
SHARED_BYTES = 200  # what is shorter is repeated


class Cutter:
    """Makes schemas small; `shared` are the parts that occur in more than one place."""

    def __init__(self) -> None:
        self._seen: dict[str, int] = {}
        self._parts: dict[str, Any] = {}

    def cut(self, schema: Any) -> Any:
        """The schema without what does not decide whether a manifest is allowed."""
        if not isinstance(schema, dict):
            return schema
        kept = {key: value for key, value in schema.items() if key in KEPT}
        for key in ("items", "additionalProperties"):
            if key in kept:
                kept[key] = self.cut(kept[key])
        if "properties" in kept:
            kept["properties"] = {n: self.cut(part) for n, part in kept["properties"].items()}
        for key in ("anyOf", "oneOf"):
            if key in kept:
                kept[key] = [self.cut(part) for part in kept[key]]
        self._note(kept)
        return kept

    def _note(self, part: Any) -> None:
        name = _name(part)
        self._seen[name] = self._seen.get(name, 0) + 1
        self._parts[name] = part

    def refer(self, schema: Any, *, top: bool = False) -> Any:
        """The schema with references to its repeated parts."""
        if isinstance(schema, list):
            return [self.refer(part) for part in schema]
        if not isinstance(schema, dict):
            return schema
        name = _name(schema)
        if not top and self._seen.get(name, 0) > 1 and _size(schema) > SHARED_BYTES:
            return {"$ref": f"#/$defs/{name}"}
        return {key: self.refer(value) for key, value in schema.items()}

    def shared(self) -> dict[str, Any]:
        """The repeated parts, by name."""
        return {
            name: self.refer(part, top=True)
            for name, part in sorted(self._parts.items())
            if self._seen[name] > 1 and _size(part) > SHARED_BYTES
        }


def _name(part: Any) -> str:
    return hashlib.sha256(json.dumps(part, sort_keys=True).encode()).hexdigest()[:8]


def _size(part: Any) -> int:
    return len(json.dumps(part))


def main(folder: Path, version: str) -> None:
    """Write the file."""
    cutter, kinds, group = Cutter(), {}, ""
    for kind, file in KINDS.items():
        crd = yaml.safe_load((folder / file).read_text())
        group = crd["spec"]["group"]
        (one,) = [v for v in crd["spec"]["versions"] if v["name"] == "v1"]
        schema = one["schema"]["openAPIV3Schema"]
        schema["properties"].pop("status", None)
        kinds[kind] = cutter.cut(schema)
    head = {
        "source": f"https://github.com/ray-project/kuberay {version}, Apache License 2.0,"
        " cut down by cut_kuberay_schemas.py",
        "apiVersion": f"{group}/v1",
    }
    parts = {
        "kinds": {kind: cutter.refer(schema, top=True) for kind, schema in kinds.items()},
        "$defs": cutter.shared(),
    }
    lines = [f"{json.dumps(key)}: {json.dumps(value)}," for key, value in head.items()]
    for key, schemas in parts.items():
        inner = ",\n".join(f"{json.dumps(n)}: {_short(one)}" for n, one in schemas.items())
        lines.append(f"{json.dumps(key)}: {{\n{inner}\n}}{',' if key == 'kinds' else ''}")
    OUT.write_text("{\n" + "\n".join(lines) + "\n}\n")


def _short(schema: Any) -> str:
    return json.dumps(schema, separators=(",", ":"), sort_keys=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
