"""Before any launch: prompts are rendered and tokenized once per target, and stored.

Every arm, every resume and every engine version sends those ids.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from matrixrun import models, workloads
from matrixrun.engines import environments
from matrixrun.evidence.launches import ArmConfig
from matrixrun.matrix import Matrix
from matrixrun.plan import Plan
from matrixrun.record import Store
from matrixrun.workloads import Workload

OnLine = Callable[[str], None]


def stage(
    matrix: Matrix, plan: Plan, store: Store, cache: Path, on_line: OnLine
) -> dict[str, Workload]:
    """Return the workload of each model of the plan, stored on the way.

    A resumed sweep takes them from its results folder.

    Raises:
        UserError: a tokenizer or the user's own prompts cannot be read.
        BuildError: a `builtin:` checkpoint cannot be built.
    """
    staged: dict[str, Workload] = {}
    for launch in plan.launches:
        name = launch.config.model
        if name in staged:
            continue
        if store.has_workload(name):
            staged[name] = store.workload(name)
            continue
        folder = _tokenizer_folder(launch.config, matrix, cache, on_line)
        on_line(f"tokenizing {matrix.workload.prompts} prompts for {name}")
        tokenizer = workloads.load_tokenizer(folder, launch.config.target.revision)
        staged[name] = workloads.build(matrix.workload, tokenizer, seed=matrix.seed)
        store.write_workload(name, staged[name])
    return staged


def _tokenizer_folder(config: ArmConfig, matrix: Matrix, cache: Path, on_line: OnLine) -> str:
    """A `builtin:` target is built on this node too, with the engine's interpreter (torch)."""
    if not config.target.path.startswith("builtin:"):
        return config.target.path
    environment = environments.prepare(
        config.recipe, cache=cache, timeout=matrix.timeouts.build, on_line=on_line
    )
    return str(models.build(config.target.path, environment.python, cache, on_line))
