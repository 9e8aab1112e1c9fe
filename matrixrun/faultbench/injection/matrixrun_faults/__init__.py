"""Faults put into a running vLLM, for measuring what matrixrun's judge sees.

It stands alone: it is found through PYTHONPATH, loaded by vLLM itself as a general plugin, and
imports nothing of matrixrun. It patches methods in memory and touches no installed file. What is
active is said by a control file (`control`), read at every step of the engine.

control   the control file and the counters that go back
step      what is known about the engine's current step
faults    one class a fault
hooks     where vLLM's methods are wrapped
"""

from __future__ import annotations

import os

VARIABLE = "FAULTBENCH_CONTROL"


def install() -> None:
    """Wrap vLLM's methods in this process, once; does nothing without the control file's name."""
    path = os.environ.get(VARIABLE)
    if path:
        from .hooks import wrap_all

        wrap_all(path)
