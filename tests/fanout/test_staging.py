"""Before any launch: what cannot tokenize costs its own model, and another engine may stand in."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from doubles import matrix, new_store

from matrixrun.evidence.errors import BuildError
from matrixrun.fanout import staging
from matrixrun.matrix import Matrix, expand
from matrixrun.plan import build
from matrixrun.workloads import Prompt
from matrixrun.workloads.prompts import workload_of


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Stage a matrix of two engines in which `broken` ones cannot be built."""

    def run(*broken: str) -> staging.Staged:
        @contextmanager
        def tokenizer(config: Any, *_: object) -> Any:
            if config.engine in broken:
                raise BuildError(f"{config.engine} is nowhere to be had")
            yield config.engine

        prompts = workload_of((Prompt(id="p", category="c", token_ids=(1,)),))
        monkeypatch.setattr(staging, "_tokenizer", tokenizer)
        monkeypatch.setattr(staging.workloads, "build", lambda *_, **__: prompts)
        sections = matrix().model_dump(exclude_unset=True)
        sections["engines"] = {"old": {"kind": "vllm"}, "new": {"kind": "vllm", "args": ["--x"]}}
        sections["grid"]["engine"] = ["old", "new"]
        made = Matrix.model_validate(sections)
        plan = build(made, expand(made, file="m.yaml"))
        return staging.stage(made, plan, new_store(tmp_path / "out"), tmp_path, print)

    return run


def test_an_engine_that_cannot_be_built_leaves_the_tokenizing_to_another(stage) -> None:
    staged = stage("new")
    assert set(staged.workloads) == {"dense"}
    assert staged.missing == {}


def test_where_none_can_be_built_the_model_has_no_prompts_and_a_reason(stage) -> None:
    staged = stage("new", "old")
    assert staged.workloads == {}
    assert "is nowhere to be had" in staged.missing["dense"]
