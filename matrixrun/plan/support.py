"""What each engine can be asked for, and what of it ran here: made from the engines' pure halves.

An adapter answers for itself: a combination that it refuses, or whose command line is no other than
without it, cannot be expressed. What it cannot know stands in engines/support.yaml, with sources.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any

import msgspec

from matrixrun import engines
from matrixrun.engines import Engine
from matrixrun.evidence.cells import Speculation
from matrixrun.evidence.launches import Arm, ArmConfig, Checkpoint, Limits, Recipe
from matrixrun.matrix import AXES, CLIENT_AXES
from matrixrun.matrix.yaml12 import parse

LENGTH = 3  # draft tokens in every command that is asked for
RUNS, ASKABLE, NOT = "**runs**", "yes", "-"
OURS, REFUSES, DIES = "refused", "engine says no", "dies"
INEXPRESSIBLE = "not expressible"  # how adapters begin what they cannot say

LEGEND = f"""\
| word | meaning |
| --- | --- |
| {RUNS} | ran here for real, on CPU; the list below names the matrix or the test |
| {ASKABLE} | expressible: the adapter says it in flags that the engine documents. Not run here |
| {OURS} | refused by the adapter before any launch, with the reason below |
| {REFUSES} | the engine turned it down in a run here, in the words below |
| {DIES} | the engine started and did not survive it in a run here |
| {NOT} | not expressible with this engine |
"""


@dataclass(frozen=True)
class Column:
    """One setting beside a method: fields of ArmConfig, and the axes that a cell has for it."""

    name: str
    fields: dict[str, Any] = field(default_factory=dict)
    axes: dict[str, Any] = field(default_factory=dict)


def _columns(data: Mapping[str, Any]) -> tuple[Column, ...]:
    kv_cache_dtype = data.get("kv_cache_dtype", "fp8")
    one = [
        Column("alone"),
        Column("quantized checkpoint", {"quantization": "q", "quantized_checkpoint": True}),
        Column("quantized while loading", {"quantization": "fp8"}),
    ]
    values: dict[str, tuple[Any, ...]] = {
        "dtype": ("bfloat16",), "kv_cache_dtype": (kv_cache_dtype,), "tensor_parallel_size": (2,),
        "pipeline_parallel_size": (2,), "data_parallel_size": (2,), "prefix_caching": (True, False),
        "batch_size": (8,),
    }  # fmt: skip
    for axis in AXES:
        for value in values.get(axis.name, ()):
            fields = {} if axis.name in CLIENT_AXES else {axis.name: value}
            name = f"{axis.label} {axis.type.word(value)}"
            one.append(Column(name, fields, {axis.name: value}))
    both = {"tensor_parallel_size": 2, "pipeline_parallel_size": 2}
    return (*one, Column("TP 2 x PP 2", both, both))


@dataclass(frozen=True)
class Method:
    """A speculation of an engine's list, and whether it needs a draft checkpoint."""

    speculation: Speculation
    draft: bool

    @property
    def name(self) -> str:
        """As a matrix file would name it."""
        options = "".join(f", {k}: {v}" for k, v in self.speculation.options.items())
        return self.speculation.method + options


@dataclass(frozen=True)
class Entry:
    """One field of the table: a word of the legend, and what stands behind it: a note below the
    table, or a name and the source that ran it."""

    word: str
    note: str = ""
    source: tuple[str, str] | None = None


def render() -> str:
    """The support page, in Markdown: one table an engine of the registry."""
    return "\n".join([
        "# What runs, and what can be asked for",
        "",
        "Made by `matrixrun support` from the adapters themselves; do not edit.",
        "",
        LEGEND,
        *(part for kind in engines.kinds() for part in _engine(engines.get(kind))),
    ])  # fmt: skip


@functools.cache
def known(kind: str) -> Mapping[str, Any]:
    """What engines/support.yaml says of an engine: methods, ran, refused, dies."""
    text = files("matrixrun.engines").joinpath("support.yaml").read_text(encoding="utf-8")
    data: dict[str, Any] = parse(text, "support.yaml").data
    found: Mapping[str, Any] = data.get(kind, data["other"])
    return found


def _engine(engine: Engine) -> Iterable[str]:
    data = known(engine.kind)
    columns, notes = _columns(data), dict[str, None]()
    sources: dict[str, list[str]] = {}
    tested = ", ".join((*engine.default_recipe.install, *engine.default_recipe.no_deps))
    about = data.get("about", f"The environment that runs on CPU: `{tested}`.")
    yield from (f"## {engine.kind}", "", about, "")
    yield f"| method | {' | '.join(column.name for column in columns)} |"
    yield "|" + " --- |" * (len(columns) + 1)
    for method in map(_method, data["methods"]):
        entries = [_entry(engine, data, method, column) for column in columns]
        notes |= {entry.note: None for entry in entries if entry.note}
        for entry in entries:
            if entry.source:
                name, by = entry.source
                sources.setdefault(by, []).append(name)
        yield f"| `{method.name}` | {' | '.join(entry.word for entry in entries)} |"
    yield ""
    yield from (f"- {by} runs {'; '.join(names)}" for by, names in sources.items())
    yield from (f"- {note}" for note in notes)
    yield ""


def _method(written: Mapping[str, Any]) -> Method:
    options = {key: value for key, value in written.items() if key not in ("method", "draft")}
    draft = bool(written.get("draft"))
    speculation = Speculation(
        method=written["method"],
        num_speculative_tokens=LENGTH,
        draft="draft" if draft else None,
        options=options,
    )
    return Method(speculation, draft)


def _entry(engine: Engine, data: Mapping[str, Any], method: Method, column: Column) -> Entry:
    """What is known outranks what can be asked; what ran outranks what did not."""
    name = f"`{method.name}`" + (f", {column.name}" if column.name != "alone" else "")
    for key, word in (("ran", RUNS), ("refused", REFUSES), ("dies", DIES)):
        for line in data.get(key, ()):
            if not _is_about(line, method, column):
                continue
            if key == "ran":
                return Entry(word, source=(name, f"`{line['by']}`"))
            when = f" ({line['when']})" if "when" in line else ""
            return Entry(word, f"{name}, {line['version']}{when}: \u201c{line['words']}\u201d")
    config = _config(engine, method, column)
    reason = engine.refuse(config)
    if reason is None:
        unheard = bool(column.fields) and not _changes(engine, method, column)
        # A quantized checkpoint is told by the checkpoint itself, and a switch that is on anyway
        # by its opposite.
        told = config.quantized_checkpoint or _changes(engine, method, _opposite(column))
        return Entry(NOT if unheard and not told else ASKABLE)
    if INEXPRESSIBLE in reason:
        return Entry(NOT, f"{column.name}: {reason}")
    return Entry(OURS, f"`{method.name}`: {reason}")


def _is_about(line: Mapping[str, Any], method: Method, column: Column) -> bool:
    axes = {axis.name: line[axis.name] for axis in AXES if axis.name in line}
    if method.speculation.options or line["method"] != method.speculation.method:
        return False
    if axes.pop("quantization", None) is not None:
        return not axes and column.fields.get("quantized_checkpoint", False)
    return axes == column.axes and "quantization" not in column.fields


def _config(engine: Engine, method: Method, column: Column) -> ArmConfig:
    """An arm on accelerators, in an environment of the user's: what is asked is the engine's
    language, not what its CPU build holds."""
    return ArmConfig(
        engine=engine.kind,
        kind=engine.kind,
        arm=Arm.ON,
        recipe=Recipe(python="python3", binary=engine.default_recipe.binary),
        model="model",
        target=Checkpoint(path="org/target"),
        draft=Checkpoint(path="org/draft") if method.draft else None,
        speculation=method.speculation,
        limits=Limits(max_model_len=4096, max_num_seqs=8),
        accelerator="accelerator",
        **column.fields,
    )


def _changes(engine: Engine, method: Method, column: Column) -> bool:
    """Whether a column's settings change the command line at all."""
    alone, changed = (
        _asked(engine, _config(engine, method, one)) for one in (Column("alone"), column)
    )
    return alone != changed


def _opposite(column: Column) -> Column:
    """The column with its switches turned, and nothing else of it."""
    switches = {name: not on for name, on in column.fields.items() if isinstance(on, bool)}
    switches.pop("quantized_checkpoint", None)
    return Column(column.name, fields=switches)


def _asked(engine: Engine, config: ArmConfig) -> bytes:
    return msgspec.json.encode(engine.command(config), order="deterministic")
