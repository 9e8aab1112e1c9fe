"""A draft that cannot fit is named before an engine is started."""

import json
from pathlib import Path
from typing import Any

import pytest

from matrixrun.models import check_interface

TARGET = {"architectures": ["Qwen3ForCausalLM"], "vocab_size": 1024, "hidden_size": 128}
HEAD = {**TARGET, "architectures": ["LlamaForCausalLMEagle3"]}


def make(folder: Path, **config: Any) -> Path:
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_bytes(b"")
    return folder


@pytest.fixture
def target(tmp_path: Path) -> Path:
    return make(tmp_path / "target", **TARGET)


def test_a_fitting_draft_has_no_problems(target: Path, tmp_path: Path) -> None:
    draft = make(tmp_path / "draft", **{**TARGET, "hidden_size": 64})
    assert check_interface(target, draft, "draft_model") == []


def test_methods_without_a_draft_ask_for_none(target: Path) -> None:
    assert check_interface(target, None, "ngram") == []


def test_another_vocabulary_is_a_problem_of_file_key_and_remedy(
    target: Path, tmp_path: Path
) -> None:
    draft = make(tmp_path / "draft", **{**TARGET, "vocab_size": 2048})
    (problem,) = check_interface(target, draft, "draft_model")
    for part in (str(draft / "config.json"), "vocab_size", "2048", "1024", "same family"):
        assert part in problem


def test_a_head_for_another_hidden_size_is_a_problem(target: Path, tmp_path: Path) -> None:
    head = make(tmp_path / "head", **{**HEAD, "hidden_size": 256})
    (problem,) = check_interface(target, head, "eagle3")
    assert "hidden_size" in problem


def test_a_head_may_be_smaller_if_it_names_its_targets_size(target: Path, tmp_path: Path) -> None:
    head = make(tmp_path / "head", **{**HEAD, "hidden_size": 64, "target_hidden_size": 128})
    assert check_interface(target, head, "eagle3") == []


def test_an_eagle3_head_under_method_eagle_is_a_problem(target: Path, tmp_path: Path) -> None:
    head = make(tmp_path / "head", **HEAD)
    (problem,) = check_interface(target, head, "eagle")
    assert "set the method to eagle3" in problem


def test_mtp_needs_a_target_that_has_it(target: Path, tmp_path: Path) -> None:
    (problem,) = check_interface(target, None, "mtp")
    assert "num_nextn_predict_layers" in problem
    able = make(tmp_path / "able", **TARGET, num_nextn_predict_layers=1)
    assert check_interface(able, None, "mtp") == []


def test_keys_of_a_multimodal_target_are_read_from_its_text_part(tmp_path: Path) -> None:
    target = make(tmp_path / "target", text_config={**TARGET, "mtp_num_hidden_layers": 1})
    draft = make(tmp_path / "draft", **{**TARGET, "vocab_size": 7})
    assert check_interface(target, None, "mtp") == []
    assert len(check_interface(target, draft, "draft_model")) == 1


def test_what_is_missing_is_named(target: Path, tmp_path: Path) -> None:
    assert "is not a folder" in check_interface(target, tmp_path / "no", "draft_model")[0]
    assert "needs a draft" in check_interface(target, None, "draft_model")[0]
    (target / "model.safetensors").unlink()
    assert "holds no weights" in check_interface(target, None, "ngram")[0]
    (target / "config.json").write_text("{")
    assert "cannot be read" in check_interface(target, None, "ngram")[1]
