"""Before any launch: what cannot tokenize costs its own model, and another engine may stand in."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from doubles import matrix, new_store

from matrixrun import engines
from matrixrun.evidence.errors import BuildError
from matrixrun.evidence.requests import BadWord
from matrixrun.fanout import staging
from matrixrun.matrix import Matrix, expand
from matrixrun.plan import build
from matrixrun.workloads import Prompt, Workload
from matrixrun.workloads.prompts import workload_of


def with_a_bad_word(workload: Workload, _: Any, *, first: int) -> Workload:
    """Every prompt of the first so many with the same word."""
    word = BadWord(text="word", sequences=((1,),))
    assert len(workload.prompts) <= first
    return workload_of(
        tuple(msgspec.structs.replace(one, bad_words=(word,)) for one in workload.prompts)
    )


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Stage a matrix of two engines in which `broken` ones cannot be built."""

    def run(*broken: str, **settings: Any) -> staging.Staged:
        @contextmanager
        def tokenizer(config: Any, *_: object) -> Any:
            if config.engine in broken:
                raise BuildError(f"{config.engine} is nowhere to be had")
            yield config.engine

        prompts = workload_of((Prompt(id="p", category="c", token_ids=(1,)),))
        monkeypatch.setattr(staging, "_tokenizer", tokenizer)
        monkeypatch.setattr(staging.workloads, "build", lambda *_, **__: prompts)
        monkeypatch.setattr(staging.workloads, "with_bad_words", with_a_bad_word)
        sections = matrix().model_dump(exclude_unset=True)
        sections["engines"] = {"old": {"kind": "vllm"}, "new": {"kind": "vllm", "args": ["--x"]}}
        sections["grid"]["engine"] = ["old", "new"]
        made = Matrix.model_validate(sections | settings)
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


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"probes": ["equality", "processors"]}, True),
        ({"probes": ["equality", "acceptance"]}, False),
        ({"probes": ["equality", "processors"], "store_text": False}, False),
    ],
)
def test_prompts_get_bad_words_where_processors_are_probed_and_texts_are_kept(
    stage, settings: dict[str, Any], expected: bool
) -> None:
    (prompt,) = stage(**settings).workloads["dense"].prompts
    assert bool(prompt.bad_words) is expected


def test_no_bad_words_are_made_where_no_engine_of_the_plan_can_be_told_any(
    stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They take the tokenizer, which for some engines is a server."""
    kinds = ("vllm", "sglang", "llamacpp")
    assert [kind for kind in kinds if engines.get(kind).forbids_words] == ["vllm"]
    monkeypatch.setattr(type(engines.get("vllm")), "forbids_words", False)
    (prompt,) = stage(probes=["equality", "processors"]).workloads["dense"].prompts
    assert not prompt.bad_words
