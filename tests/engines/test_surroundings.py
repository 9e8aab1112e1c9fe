"""What an engine inherits, and what of it is ever shown."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrixrun.engines import mask
from matrixrun.engines.surroundings import engine_environment, mask_text, telling


@pytest.mark.parametrize(
    "name",
    ["HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "VLLM_API_KEY", "AWS_SECRET_ACCESS_KEY", "DB_PASSWORD"],
)
def test_secrets_are_passed_on_and_never_shown(name: str) -> None:
    env = engine_environment({}, None, {name: "hunter2hunter2"})
    assert env[name] == "hunter2hunter2"
    assert mask(env)[name] == "***"
    assert mask_text("log: hunter2hunter2!", env) == "log: ***!"


@given(st.text("abcdefghij0123456789", min_size=6), st.text(max_size=40), st.text(max_size=40))
def test_no_secret_is_left_in_a_log(secret: str, before: str, after: str) -> None:
    assert secret not in mask_text(before + secret + after, {"HF_TOKEN": secret})


@pytest.mark.parametrize(
    "name", ["OMP_NUM_THREADS", "TOKENIZERS_PARALLELISM", "VLLM_NO_USAGE_STATS"]
)
def test_ordinary_variables_are_shown(name: str) -> None:
    assert mask({name: "1"}) == {name: "1"}


def test_credentials_inside_addresses_are_masked() -> None:
    assert mask({"PIP_INDEX_URL": "https://me:secret@host/simple"}) == {
        "PIP_INDEX_URL": "https://***@host/simple"
    }


def test_what_belongs_to_matrixrun_or_its_interpreter_stays_here() -> None:
    inherited = {
        "MATRIXRUN_CACHE": "x",
        "PYTHONDONTWRITEBYTECODE": "1",
        "VIRTUAL_ENV": "/venv",
        "HOME": "/home/me",
    }
    assert engine_environment({"A": "b"}, None, inherited) == {"HOME": "/home/me", "A": "b"}


def test_the_overlay_comes_first_on_the_path() -> None:
    overlay = Path("/overlay")
    assert engine_environment({}, overlay, {})["PYTHONPATH"] == "/overlay"
    env = engine_environment({"PYTHONPATH": "/own"}, overlay, {"PYTHONPATH": "/inherited"})
    assert env["PYTHONPATH"] == "/overlay:/own"


def test_only_variables_that_engines_read_are_told() -> None:
    assert telling({"CUDA_VISIBLE_DEVICES": "0", "HF_TOKEN": "t", "MY_MAIL": "x"}) == {
        "CUDA_VISIBLE_DEVICES": "0",
        "HF_TOKEN": "t",
    }
