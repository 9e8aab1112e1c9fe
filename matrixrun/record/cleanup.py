"""`matrixrun gc`: old environments, checkpoints and results, and engines that nobody owns."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import platformdirs

from matrixrun import engines


def cache_folder() -> Path:
    """Where environments and checkpoints are kept: MATRIXRUN_CACHE, or the user's cache folder."""
    named = os.environ.get("MATRIXRUN_CACHE")
    return Path(named).absolute() if named else platformdirs.user_cache_path("matrixrun")


def clean(
    unused_seconds: float, *, results_root: Path, delete: bool, say: Callable[[str], None]
) -> None:
    """List what was not used for so many seconds, and delete it when `delete` is set.

    Engines that outlived their launcher are listed too, and ended when `delete` is set.
    """
    for orphan in engines.orphans():
        say(f"{'ending' if delete else 'would end'} orphaned engine process {orphan}")
    if delete:
        engines.end_orphans()
    total = 0
    for folder in _old(unused_seconds, results_root):
        size = sum(
            f.stat().st_size for f in folder.rglob("*") if f.is_file() and not f.is_symlink()
        )
        total += size
        say(f"{'deleting' if delete else 'would delete'} {folder} ({size / 2**20:.0f} MiB)")
        if delete:
            shutil.rmtree(folder)
    hint = "" if delete or not total else "; add --delete to do it"
    say(f"{total / 2**30:.2f} GiB{hint}")


def _old(unused_seconds: float, results_root: Path) -> Iterator[Path]:
    before = time.time() - unused_seconds
    cache = cache_folder()
    for parent in (cache / "engines", cache / "models", results_root):
        if parent.is_dir():
            yield from sorted(p for p in parent.iterdir() if p.is_dir() and _last_used(p) < before)


def _last_used(folder: Path) -> float:
    return max(p.stat().st_mtime for p in (folder, *folder.iterdir()))
