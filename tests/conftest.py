"""What tests of several rooms share: the cache and the engine's environment in it."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs
import pytest
from hypothesis import settings

from matrixrun.engines import Environment, get, prepare

# The same examples every time, however busy the machine: luck must not decide.
# HYPOTHESIS_PROFILE=searching looks further.
settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("searching", derandomize=False, deadline=None)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


@pytest.fixture(scope="session")
def cache() -> Path:
    """The user's own cache, as the program finds it: an environment in it is built once."""
    given = os.environ.get("MATRIXRUN_CACHE")
    return Path(given) if given else platformdirs.user_cache_path("matrixrun")


@pytest.fixture(scope="session")
def vllm_environment(cache: Path) -> Environment:
    """vLLM's CPU build by the default recipe; the first use builds it, in some minutes."""
    recipe = get("vllm").default_recipe
    return prepare(recipe, cache=cache, timeout=3600, on_line=print)


@pytest.fixture(scope="session")
def vllm_python(vllm_environment: Environment) -> Path:
    """The interpreter of that environment; it has torch and transformers."""
    return vllm_environment.python


@pytest.fixture(scope="session")
def llamacpp_python(cache: Path) -> Path:
    """The interpreter of llama.cpp's in-process server package by the default recipe."""
    recipe = get("llamacpp").default_recipe
    return prepare(recipe, cache=cache, timeout=3600, on_line=print).python
