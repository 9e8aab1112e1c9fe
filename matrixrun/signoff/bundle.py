"""A reproduction of one failing cell, ready to attach upstream: nothing but the engine itself.

README.md  off.sh  on.sh  requests.json  reproduce.py  engine.py  finding.json  on.log  off.log
overlay/

`reproduce.py` needs the standard library only; it also minimises, by replay. `engine.py` is a file
a kind of engine under `templates/reproduce/engines/`, since each speaks its own HTTP.
"""

from __future__ import annotations

import json
import shlex
import shutil
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from matrixrun.engines import find_overlay
from matrixrun.evidence.cells import Cell
from matrixrun.evidence.errors import UserError
from matrixrun.evidence.requests import Sampling
from matrixrun.evidence.verdicts import CellEvidence, CellResult, Severity, Verdict
from matrixrun.judge import CellObservations
from matrixrun.record import Store
from matrixrun.record.files import file_name, write_bytes, write_json
from matrixrun.record.replay import Reader
from matrixrun.signoff.detail import CellDetail, detail_of
from matrixrun.signoff.page import settings_of

PACKAGE = Path(str(files("matrixrun")))
PORTS = {"off": 8001, "on": 8002}
LOG_BYTES = 200_000
OVERLAY = "overlay"


class PlannedLaunch(msgspec.Struct, frozen=True):
    """What is read of a launch in plan.json."""

    id: str
    argv: tuple[str, ...]
    env: dict[str, str]
    recipe: dict[str, Any]
    target: dict[str, Any]
    draft: dict[str, Any] | None = None


class Implicated(msgspec.Struct, frozen=True):
    """The requests that show a fault: by a regret of more than `ceiling` nats."""

    requests: tuple[str, ...]
    ceiling: float


class PlannedLaunches(msgspec.Struct, frozen=True):
    """What is read of plan.json here."""

    launches: tuple[PlannedLaunch, ...] = ()
    cells: tuple[Cell, ...] = ()


def write_bundles(store: Store, out: Path) -> tuple[Path, ...]:
    """Write a bundle for every FAIL that shows in the tokens of some request; returns their
    folders.

    Raises:
        UserError: there is none.
        StoreError: the evidence cannot be read, or a file not be written.
    """
    reader, settings, results = Reader(store), settings_of(store), store.results()
    written = []
    for result in results:
        evidence = store.evidence(result.cell.id)
        if result.verdict is not Verdict.FAIL or evidence is None:
            continue
        observed = reader.cell(evidence)
        shown = implicated(result, detail_of(observed, result, settings, len(results)))
        if shown.requests:
            written.append(_write(store, observed, result, shown, out))
    if not written:
        raise UserError(
            f"sweep {store.info.id} has no FAIL that shows in tokens: nothing to reproduce",
            remedy="a launch that ended badly is reproduced by its command, which the report shows",
        )
    return tuple(written)


def implicated(result: CellResult, detail: CellDetail) -> Implicated:
    """Return the requests that show a cell's fault, and from which regret on they do.

    Those that findings name, by the ceiling. A fault of rates names none: then those that leave the
    off arm's tokens by more than the floor, as in no healthy pair so many do.
    """
    faults = [one for one in result.findings if one.severity is Severity.FAULT]
    names = [one.numbers.get("request") for one in faults]
    named = tuple(dict.fromkeys(name for name in names if isinstance(name, str)))
    if named:
        return Implicated(named, detail.ceiling or 0.0)
    floor = detail.floor or 0.0
    sites = [site for site in detail.divergences if site.gap is not None and site.gap > floor]
    return Implicated(tuple(site.request for site in sites), floor)


def _write(
    store: Store, observed: CellObservations, result: CellResult, shown: Implicated, out: Path
) -> Path:
    evidence = observed.evidence
    folder = out / file_name(result.cell.id)
    planned = {launch.id: launch for launch in store.plan(PlannedLaunches).launches}
    for arm, role in (("off", "A"), ("on", "on")):
        launch = planned.get(evidence.outcomes[role].launch)
        if launch is not None:
            launch = _with_own_programs(launch, folder)
            write_bytes(folder / f"{arm}.sh", _script(launch, PORTS[arm]).encode())
            _copy_overlay(launch, folder)
        if store.info.store_text:
            log = store.launch_folder(evidence.outcomes[role].launch) / "engine.log"
            if log.exists():
                write_bytes(folder / f"{arm}.log", log.read_bytes()[-LOG_BYTES:])
    write_json(folder / "requests.json", _requests(observed, result, shown))
    write_json(folder / "finding.json", result)
    runs = _copy_program(_kind(evidence), folder)
    write_bytes(folder / "README.md", _readme(evidence, result, runs).encode())
    return folder


def _copy_program(kind: str, folder: Path) -> bool:
    """Write the program that shows the fault; False where none speaks the engine's HTTP."""
    programs = files("matrixrun.signoff").joinpath("templates", "reproduce")
    speaks = programs.joinpath("engines", f"{kind}.py")
    if speaks.is_file():
        write_bytes(folder / "reproduce.py", programs.joinpath("reproduce.py").read_bytes())
        write_bytes(folder / "engine.py", speaks.read_bytes())
    return speaks.is_file()


def _requests(observed: CellObservations, result: CellResult, shown: Implicated) -> dict[str, Any]:
    """All requests of the pass in their order: what else was in flight may matter."""
    prompts = observed.prompts or {}
    longest = max((one.token_ids.size for one in observed.off), default=1)
    sampling = msgspec.to_builtins(Sampling())
    for field in ("allowed_token_ids", "stop_token_ids", "grammar", "bad_words"):
        sampling.pop(field)
    return {
        "cell": result.cell.id,
        "named": list(shown.requests),
        "ceiling": shown.ceiling,
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


def _copy_overlay(launch: PlannedLaunch, folder: Path) -> None:
    """Copy what stands first on the engine's PYTHONPATH: without it the command does not start."""
    overlay = find_overlay(launch.recipe.get("overlay"))
    if overlay is not None:
        left_out = shutil.ignore_patterns("__pycache__")
        shutil.copytree(overlay, folder / OVERLAY, ignore=left_out, dirs_exist_ok=True)


def _with_own_programs(launch: PlannedLaunch, folder: Path) -> PlannedLaunch:
    """The launch with our own scripts on its command line copied into the folder: somebody who has
    no matrixrun is to start it."""
    argv = list(launch.argv)
    for place, word in enumerate(argv):
        script = _own_script(word)
        if script is not None:
            write_bytes(folder / script.name, script.read_bytes())
            argv[place] = f"$HERE/{script.name}"
    return msgspec.structs.replace(launch, argv=tuple(argv))


def _own_script(word: str) -> Path | None:
    """Our file that a word names, wherever matrixrun lay on the machine that planned the launch."""
    _, found, inside = word.rpartition(f"/{PACKAGE.name}/")
    script = PACKAGE / inside
    return script if found and script.suffix == ".py" and script.is_file() else None


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
        "BINARY": (launch.recipe.get("binary") or "").removeprefix("builtin:"),
    }
    words = " ".join([*launch.argv, *launch.env.values()])
    recipe = {key: value for key, value in launch.recipe.items() if value}
    lines = ["#!/bin/bash", f"# environment: {json.dumps(recipe)}"]
    lines += [
        f"{name}=${{{name}:-{shlex.quote(value)}}}"
        for name, value in values.items()
        if f"${name}" in words
    ]
    lines += [f"export {name}={_shell(value)}" for name, value in sorted(launch.env.items())]
    lines.append('HERE=$(cd "$(dirname "$0")" && pwd)')
    if launch.recipe.get("overlay"):
        lines.append(f'export PYTHONPATH="$HERE/{OVERLAY}${{PYTHONPATH:+:$PYTHONPATH}}"')
    return "\n".join([*lines, "exec " + " ".join(map(_shell, launch.argv)), ""])


def _shell(word: str) -> str:
    """Quote a word for a shell, its placeholders left open."""
    for name in ("PYTHON", "HOST", "PORT", "KEY", "TARGET", "DRAFT", "BINARY", "HERE"):
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
