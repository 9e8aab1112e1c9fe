"""A reproduction of one failing cell, ready to attach upstream: nothing but the engine itself.

README.md  off.sh  on.sh  requests.json  reproduce.py  finding.json  on.log  off.log

`reproduce.py` needs the standard library only; it is a file a kind of engine under
`templates/reproduce/`, since each speaks its own HTTP. It also minimises, by replay.
"""

from __future__ import annotations

import json
import shlex
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from matrixrun.evidence.cells import Cell
from matrixrun.evidence.errors import UserError
from matrixrun.evidence.requests import Sampling
from matrixrun.evidence.verdicts import CellEvidence, CellResult, Severity, Verdict
from matrixrun.record import Store
from matrixrun.record.files import file_name, write_bytes, write_json
from matrixrun.record.replay import Reader
from matrixrun.signoff.page import settings_of

PORTS = {"off": 8001, "on": 8002}
LOG_BYTES = 200_000


class PlannedLaunch(msgspec.Struct, frozen=True):
    """What is read of a launch in plan.json."""

    id: str
    argv: tuple[str, ...]
    env: dict[str, str]
    recipe: dict[str, Any]
    target: dict[str, Any]
    draft: dict[str, Any] | None = None


class PlannedLaunches(msgspec.Struct, frozen=True):
    """What is read of plan.json here."""

    launches: tuple[PlannedLaunch, ...] = ()
    cells: tuple[Cell, ...] = ()


def write_bundles(store: Store, out: Path) -> tuple[Path, ...]:
    """Write a bundle for every FAIL whose findings name requests; returns their folders.

    Raises:
        UserError: there is none.
        StoreError: the evidence cannot be read, or a file not be written.
    """
    failing = [r for r in store.results() if r.verdict is Verdict.FAIL and named_requests(r)]
    if not failing:
        raise UserError(
            f"sweep {store.info.id} has no FAIL that names a request: nothing to reproduce",
            remedy="a launch that ended badly is reproduced by its command, which the report shows",
        )
    reader = Reader(store)
    return tuple(write_bundle(store, reader, result, out) for result in failing)


def write_bundle(store: Store, reader: Reader, result: CellResult, out: Path) -> Path:
    """Write the bundle of one cell into a folder below `out`, and return it."""
    evidence = store.evidence(result.cell.id)
    assert evidence is not None
    folder = out / file_name(result.cell.id)
    planned = {launch.id: launch for launch in store.plan(PlannedLaunches).launches}
    for arm, role in (("off", "A"), ("on", "on")):
        launch = planned.get(evidence.outcomes[role].launch)
        if launch is not None:
            write_bytes(folder / f"{arm}.sh", _script(launch, PORTS[arm]).encode())
        if store.info.store_text:
            log = store.launch_folder(evidence.outcomes[role].launch) / "engine.log"
            if log.exists():
                write_bytes(folder / f"{arm}.log", log.read_bytes()[-LOG_BYTES:])
    write_json(folder / "requests.json", _requests(store, reader, evidence, result))
    write_json(folder / "finding.json", result)
    program = files("matrixrun.signoff").joinpath("templates", "reproduce", f"{_kind(evidence)}.py")
    if program.is_file():
        write_bytes(folder / "reproduce.py", program.read_bytes())
    write_bytes(folder / "README.md", _readme(evidence, result, program.is_file()).encode())
    return folder


def named_requests(result: CellResult) -> tuple[str, ...]:
    """Return the requests that a cell's faults name."""
    faults = [one for one in result.findings if one.severity is Severity.FAULT]
    names = [one.numbers.get("request") for one in faults]
    return tuple(dict.fromkeys(name for name in names if isinstance(name, str)))


def _requests(
    store: Store, reader: Reader, evidence: CellEvidence, result: CellResult
) -> dict[str, Any]:
    """All requests of the pass in their order: what else was in flight may matter."""
    observed = reader.cell(evidence)
    prompts = observed.prompts or {}
    longest = max((one.token_ids.size for one in observed.off), default=1)
    sampling = msgspec.to_builtins(Sampling())
    for field in ("allowed_token_ids", "stop_token_ids"):
        sampling.pop(field)
    return {
        "cell": result.cell.id,
        "named": list(named_requests(result)),
        "ceiling": result.metrics.get("regret/ceiling", settings_of(store).largest_logit),
        "concurrency": result.cell.axes.get("batch_size", 1),
        "sampling": sampling,
        "requests": [
            {
                "id": one.request,
                "prompt": list(prompts[one.request]),
                "max_tokens": longest,
            }
            for one in observed.on
        ],
    }


def _script(launch: PlannedLaunch, port: int) -> str:
    """A launch as a shell script; what it cannot know is a variable at its top."""
    if launch.argv[:1] == ("attach",):
        return f"#!/bin/bash\n# attached, so there is nothing to start: {launch.argv[1]}\n"
    values = {
        "PYTHON": "python",
        "HOST": "127.0.0.1",
        "PORT": str(port),
        "KEY": "none",
        "TARGET": launch.target["path"],
        "DRAFT": launch.draft["path"] if launch.draft else "",
    }
    recipe = {key: value for key, value in launch.recipe.items() if value}
    lines = ["#!/bin/bash", f"# environment: {json.dumps(recipe)}"]
    for name, value in values.items():
        lines.append(f"{name}=${{{name}:-{shlex.quote(value)}}}")
    lines += [f"export {name}={_shell(value)}" for name, value in sorted(launch.env.items())]
    return "\n".join([*lines, "exec " + " ".join(map(_shell, launch.argv)), ""])


def _shell(word: str) -> str:
    """Quote a word for a shell, its placeholders left open."""
    for name in ("PYTHON", "HOST", "PORT", "KEY", "TARGET", "DRAFT"):
        if f"${name}" in word:
            escaped = word.replace("\\", "\\\\").replace('"', '\\"').replace("`", "\\`")
            return f'"{escaped}"'
    return shlex.quote(word)


def _kind(evidence: CellEvidence) -> str:
    return str(evidence.outcomes["A"].facts.get("engine", ""))


def _readme(evidence: CellEvidence, result: CellResult, runs: bool) -> str:
    facts = evidence.outcomes["on"].facts
    versions = [f"- {name}: {facts[name]}" for name in sorted(facts) if "version" in name]
    hashes = [f"- {k}: sha256 {v}" for k, v in evidence.outcomes["on"].checkpoints.items()]
    faults = [f"- {f.text}" for f in result.findings if f.severity is Severity.FAULT]
    steps = [
        "1. `bash off.sh` and `bash on.sh` start the servers (TARGET and DRAFT name other paths of",
        "   the checkpoints; a `builtin:` one is made by `matrixrun models build NAME`).",
        "2. `python reproduce.py --off http://127.0.0.1:8001 --on http://127.0.0.1:8002` shows the",
        "   difference; with `--minimise requests.min.json` it also writes the smallest set of",
        "   requests and the shortest prompts that still show it.",
    ]  # fmt: skip
    if not runs:
        steps[2:] = ["2. Send requests.json's prompts to both, in order, and compare the tokens."]
    parts = [
        f"# {result.cell.id}: other tokens with speculation on than with it off",
        result.reason,
        "## Found",
        "\n".join(faults),
        "## Versions",
        "\n".join([*versions, *hashes]),
        "## Again",
        "\n".join(steps),
    ]
    return "\n\n".join(parts) + "\n"
