"""What ended an engine, found in the logs of real ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from matrixrun.engines.tracebacks import root_cause

LOGS = Path(__file__).with_name("logs")


@pytest.mark.parametrize(
    ("log", "cause"),
    [
        ("pp2-ngram.log", "AttributeError: 'CPUModelRunner' object has no attribute 'drafter'"),
        ("unknown-method.log", "ValidationError: 1 validation error for SpeculativeConfig"),
        ("fp8-online-on-cpu.log", "RuntimeError: _C::static_scaled_fp8_quant() expected"),
    ],
)
def test_the_first_exception_is_the_cause_and_not_those_that_pass_it_on(log, cause):
    found = root_cause((LOGS / log).read_text())
    assert found is not None
    assert found.startswith(cause)


def test_an_exception_without_a_message_is_told_by_its_line():
    log = "\n".join(
        (
            "(Worker pid=7) ERROR 11-29 21:49:47 [a.py:5] Traceback (most recent call last):",
            '(Worker pid=7) ERROR 11-29 21:49:47 [a.py:5]   File "/x/vllm/a.py", line 3, in f',
            "(Worker pid=7) ERROR 11-29 21:49:47 [a.py:5]     assert group is not None",
            "(Worker pid=7) ERROR 11-29 21:49:47 [a.py:5] AssertionError",
        )
    )
    assert root_cause(log) == "AssertionError: assert group is not None"


def test_a_log_without_an_exception_has_no_cause():
    assert root_cause("INFO: started\nSegmentation fault") is None
