"""Before any launch: prompts are rendered and tokenized once per target, and stored.

Every arm, every resume and every engine version sends those ids.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from matrixrun import engines, models, workloads
from matrixrun.engines import environments
from matrixrun.evidence.launches import ArmConfig, Endpoint
from matrixrun.matrix import Matrix
from matrixrun.plan import Plan
from matrixrun.record import Store
from matrixrun.workloads import Tokenizer, Workload

OnLine = Callable[[str], None]


def stage(
    matrix: Matrix, plan: Plan, store: Store, cache: Path, on_line: OnLine
) -> dict[str, Workload]:
    """Return the workload of each model of the plan, stored on the way.

    A resumed sweep takes them from its results folder.

    Raises:
        UserError: a tokenizer or the user's own prompts cannot be read.
        BuildError: a `builtin:` checkpoint cannot be built.
        EngineError: an engine that is to tokenize does not start.
    """
    staged: dict[str, Workload] = {}
    for launch in plan.launches:
        name = launch.config.model
        if name in staged:
            continue
        if store.has_workload(name):
            staged[name] = store.workload(name)
            continue
        with _tokenizer(launch.config, matrix, cache, on_line) as tokenizer:
            on_line(f"tokenizing {matrix.workload.prompts} prompts for {name}")
            staged[name] = workloads.build(matrix.workload, tokenizer, seed=matrix.seed)
        store.write_workload(name, staged[name])
    return staged


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
    source = tokenizing.connect(endpoint.url, "", name=name, reach=reach)
    try:
        yield workloads.ServedTokenizer(source)
    finally:
        source.close()
