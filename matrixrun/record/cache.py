"""Where this machine keeps what can be made or brought again."""

from __future__ import annotations

import os
from pathlib import Path

import platformdirs


def cache_folder() -> Path:
    """Where environments, checkpoints, compiled code and copies of sweeps are kept:
    MATRIXRUN_CACHE, or the user's cache folder."""
    named = os.environ.get("MATRIXRUN_CACHE")
    return Path(named).absolute() if named else platformdirs.user_cache_path("matrixrun")
