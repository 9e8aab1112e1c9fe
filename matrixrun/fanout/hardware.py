"""What a launch ran on: both arms of a pair must match in it, or the pair proves nothing."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path
from typing import Any


def describe() -> dict[str, Any]:
    """Return this node's hardware: `cpu`, `cores`, `memory_gib`, and for each visible accelerator
    its name and the driver's version (`accelerators`, `driver`; empty without `nvidia-smi`)."""
    names, driver = _nvidia()
    return {
        "node": platform.node(),
        "cpu": _cpu_name(),
        "cores": os.cpu_count() or 0,
        "memory_gib": _memory_gib(),
        "accelerators": names,
        "driver": driver,
    }


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _memory_gib() -> int:
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**30


def _nvidia() -> tuple[list[str], str]:
    """Names of the accelerators visible to this process, and the driver's version."""
    if shutil.which("nvidia-smi") is None:
        return [], ""
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    command = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    if visible:
        command.append(f"--id={visible}")
    try:
        found = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return [], ""
    rows = [line.split(", ") for line in found.stdout.splitlines() if ", " in line]
    return [name for name, _ in rows], rows[0][1] if rows else ""
