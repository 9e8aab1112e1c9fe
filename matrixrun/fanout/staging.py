"""Before any launch: prompts are rendered and tokenized once per target, and stored.

Every arm, every resume and every engine version sends those ids.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from matrixrun import engines, models, workloads
from matrixrun.engines import environments
from matrixrun.evidence.errors import BuildError, EngineDied, EngineError
from matrixrun.evidence.launches import ArmConfig, Endpoint
from matrixrun.matrix import Matrix
from matrixrun.plan import Plan
from matrixrun.probes import processors
from matrixrun.record import Store
from matrixrun.workloads import Tokenizer, Workload

OnLine = Callable[[str], None]


@dataclass
class Staged:
    """Workloads by model, and why a model has none: what is needed to read its tokenizer could not
    be had from any engine of the plan. It costs that model's cells, no others."""

    workloads: dict[str, Workload] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


def stage(matrix: Matrix, plan: Plan, store: Store, cache: Path, on_line: OnLine) -> Staged:
    """Return the workload of each model of the plan, stored on the way.

    A resumed sweep takes them from its results folder.

    Raises:
        UserError: a tokenizer or the user's own prompts cannot be read.
    """
    staged = Staged()
    tried: set[tuple[str, str, str]] = set()
    configs = [launch.config for launch in plan.launches]
    for config in configs:
        name, where = config.model, config.endpoint.url if config.endpoint else ""
        if name in staged.workloads or (name, config.engine, where) in tried:
            continue
        tried.add((name, config.engine, where))
        try:
            forbids = any(
                one.model == name and engines.get(one.kind).forbids_words for one in configs
            )
            staged.workloads[name] = _workload(
                config, matrix, store, cache, on_line, bad_words=forbids
            )
            staged.missing.pop(name, None)
        except (BuildError, EngineError) as error:
            on_line(f"{name}: {error.message}")
            staged.missing.setdefault(name, error.message)
    return staged


def _workload(
    config: ArmConfig, matrix: Matrix, store: Store, cache: Path, on_line: OnLine, *,
    bad_words: bool,
) -> Workload:  # fmt: skip
    """`bad_words`: whether an engine of the plan can take any for this model."""
    name = config.model
    if store.has_workload(name):
        return store.workload(name)
    with _tokenizer(config, matrix, cache, on_line) as tokenizer:
        on_line(f"tokenizing {matrix.workload.prompts} prompts for {name}")
        made = workloads.build(matrix.workload, tokenizer, seed=matrix.seed)
        if bad_words and processors.KIND in matrix.probes and matrix.store_text:
            made = workloads.with_bad_words(made, tokenizer, first=processors.MOST_PROMPTS_WITHIN)
    store.write_workload(name, made)
    return made


@contextmanager
def _tokenizer(
    config: ArmConfig, matrix: Matrix, cache: Path, on_line: OnLine
) -> Iterator[Tokenizer]:
    """The target's tokenizer. A `builtin:` target is built on this node too, with the engine's
    interpreter; where only the engine can read the tokenizer, it is started for that."""
    engine, path = engines.get(config.kind), config.target.path
    builtin = models.is_builtin(path)
    environment = None
    if config.endpoint is not None and engine.tokenizing is not None:
        with _attached_tokenizer(config.endpoint, engine.tokenizing, config.model) as tokenizer:
            yield tokenizer
        return
    if builtin or engine.tokenizing is not None:
        environment = environments.prepare(
            config.recipe, cache=cache, timeout=matrix.timeouts.build, on_line=on_line
        )
    if builtin:
        assert environment is not None
        path = str(models.build(path, environment.python, cache, on_line))
    if engine.tokenizing is None or environment is None:
        yield workloads.load_tokenizer(path, config.target.revision)
        return
    with tempfile.TemporaryDirectory(prefix="matrixrun-tokenizer-") as folder:
        server = engines.Server(
            engine.tokenizing.command(config),
            environment,
            engine=engine,
            target=path,
            log_path=Path(folder) / "engine.log",
            ready_timeout=matrix.timeouts.ready,
            mounts=(cache,),
        )
        with server:
            source = engine.tokenizing.connect(server.base_url, server.key, name=config.model)
            try:
                yield workloads.ServedTokenizer(source)
            finally:
                source.close()


@contextmanager
def _attached_tokenizer(
    endpoint: Endpoint, tokenizing: engines.Tokenizing, name: str
) -> Iterator[Tokenizer]:
    """The tokenizer of a server that runs already."""
    reach = engines.Reach(engines.headers_of(endpoint), endpoint.model)
    try:
        source = tokenizing.connect(endpoint.url, "", name=name, reach=reach)
    except EngineDied as error:
        raise EngineDied(f"{endpoint.url}: {error.message}") from error
    try:
        yield workloads.ServedTokenizer(source)
    finally:
        source.close()
