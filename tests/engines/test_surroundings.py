"""What an engine inherits, and what of it is ever shown."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrixrun.engines import engine_environment, mask, mask_argv, mask_log, mask_text
from matrixrun.engines.surroundings import PACKAGE_PARENT, telling


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


@pytest.mark.parametrize(
    ("argv", "shown"),
    [
        (("--api-key", "first", "second", "--port", "1"), ("--api-key", *"**", "--port", "1")),
        (("-hft", "x"), ("-hft", "*")),
        (("--hf_token=x",), ("--hf_token=*",)),
        (("--transfer.token", "x"), ("--transfer.token", "*")),
        (("--api-key", "$KEY", "--tokenizer", "org/x"), None),
        (("--max-num-batched-tokens", "64", "org/model"), None),
        (("https://me:pw@host/x",), ("https://*@host/x",)),
    ],
)
def test_the_values_of_secret_flags_are_not_shown(
    argv: tuple[str, ...], shown: tuple[str, ...] | None
) -> None:
    expected = argv if shown is None else tuple(word.replace("*", "***") for word in shown)
    assert mask_argv(argv) == expected


def test_a_log_is_masked_by_variables_and_flags_and_else_kept_to_the_byte() -> None:
    env = {"HF_TOKEN": "hf_secret", "OTHER_TOKEN": "hf_secret_and_more", "X_API_KEY": "$KEY"}
    argv = ("serve", "--api-key", 'it\'s "quoted"', "--hf-token=from-a-flag", "--port", "800000")
    log = (
        b"\xff\xfe hf_secret hf_secret_and_more https://me:pw@host/x?k=it%27s%20%22quoted%22\r\n"
        + f"{ {'api_key': argv[2]} } from-a-flag $KEY port 800000\n".encode()
    )
    assert mask_log(log, env, argv) == (
        b"\xff\xfe *** *** https://***@host/x?k=***\r\n{'api_key': '***'} *** $KEY port 800000\n"
    )


def test_an_engine_does_not_find_the_packages_of_an_installed_matrixrun() -> None:
    python_path = os.pathsep.join(["/own", str(PACKAGE_PARENT), "/more", f"{PACKAGE_PARENT}/"])
    env = engine_environment({}, None, {"PYTHONPATH": python_path})
    assert env["PYTHONPATH"] == f"/own{os.pathsep}/more"
    env = engine_environment({}, Path("/overlay"), {"PYTHONPATH": python_path})
    assert env["PYTHONPATH"] == os.pathsep.join(["/overlay", "/own", "/more"])
    assert engine_environment({}, None, {"PYTHONPATH": str(PACKAGE_PARENT)}) == {}


def test_an_engine_started_by_a_worker_cannot_import_matrixrun(tmp_path: Path) -> None:
    inherited = {**os.environ, "PYTHONPATH": str(PACKAGE_PARENT)}
    look = "import importlib.util as u; print(u.find_spec('matrixrun'))"
    done = subprocess.run(
        [sys.executable, "-S", "-c", look],
        env=engine_environment({}, None, inherited),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.strip() == "None"
