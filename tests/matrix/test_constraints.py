"""The small expression form of constraints: what it says, and what it refuses."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrixrun.evidence.cells import AxisValue, Speculation
from matrixrun.matrix.constraints import Constraint, ConstraintError

AXES: dict[str, AxisValue] = {
    "engine": "vllm",
    "model": "dense",
    "quantization": "fp8",
    "dtype": None,
    "kv_cache_dtype": None,
    "tensor_parallel_size": 4,
    "pipeline_parallel_size": 2,
    "data_parallel_size": 1,
    "prefix_caching": True,
    "speculation": Speculation(method="mtp", num_speculative_tokens=3),
    "batch_size": 8,
}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tensor_parallel_size * pipeline_parallel_size <= 8", True),
        ("tensor_parallel_size * pipeline_parallel_size < 8", False),
        ("tensor_parallel_size - 2 == -(-2)", True),
        ("batch_size % 3 == 2 and batch_size // 3 == 2 and batch_size / 16 == 0.5", True),
        ("1 < pipeline_parallel_size < tensor_parallel_size", True),
        ("engine == 'vllm' or batch_size == 1", True),
        ("not (engine == 'vllm')", False),
        ("prefix_caching", True),
        ("prefix_caching == true and prefix_caching != False", True),
        ("tensor_parallel_size in [1, 2]", False),
        ("tensor_parallel_size not in (1, 2)", True),
        ("dtype == null and dtype is None and quantization != null", True),
        ("speculation.method == 'mtp' and speculation.num_speculative_tokens <= 3", True),
        ("speculation.draft == null", True),
        ("  quantization != 'none'\n", True),
    ],
)
def test_what_a_constraint_says(text: str, expected: bool) -> None:
    assert Constraint(text).holds(AXES) is expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("9**9**9 > 1", "not allowed"),
        ("1 << 9999999", "not allowed"),
        ("open('x')", "not allowed"),
        ("engine.upper() == 'X'", "not allowed"),
        ("engine.__class__ == 'X'", "not allowed"),
        ("speculation.__class__ == 'X'", "unknown field"),
        ("speculation.metod == 'mtp'", "unknown field"),
        ("speculation == 'mtp'", "no single value"),
        ("[x for x in [1]] == 1", "not allowed"),
        ("(lambda: 1)() == 1", "not allowed"),
        ("f'{engine}' == 'x'", "not allowed"),
        ("engine[0] == 'x'", "not allowed"),
        ("1 if engine == 'x' else 2", "not allowed"),
        ("(engine := 'x') == 'x'", "not allowed"),
        ("b'x' == engine", "not allowed"),
        ("... == 1", "not allowed"),
        ("1j == 1", "not allowed"),
        ("1e400 > batch_size", "too large"),
        (f"batch_size < {10**16}", "too large"),
        ("engine == vllm", "unknown axis `vllm` at character 11"),
        ("a = 1", "cannot be read"),
        ("import os", "cannot be read"),
        ("", "cannot be read"),
        ("x\0", "cannot be read"),
        ("1 +", "cannot be read"),
        ("(" * 300, "cannot be read"),
        ("1" + "+1" * 300, "longer than"),
    ],
)
def test_what_is_refused_when_the_file_is_read(text: str, message: str) -> None:
    with pytest.raises(ConstraintError, match=message):
        Constraint(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tensor_parallel_size * 2", "gives 8, which is neither"),
        ("tensor_parallel_size == 1 or 2", "gives 2, which is neither"),
        ("not tensor_parallel_size", "gives 4, which is neither"),
        ("dtype and true", "gives null, which is neither"),
        ("tensor_parallel_size == '4'", "compares a number with text"),
        ("tensor_parallel_size in [1, '4']", "compares a number with text"),
        ("prefix_caching == 1", "compares true or false with a number"),
        ("engine < 'z'", "calculates with text"),
        ("'a' * 1000000 == 'a'", "calculates with text"),
        ("dtype < 3", "calculates with null"),
        ("[1] * 9 == 1", "calculates with a list"),
        ("engine in 'vllm'", "no list"),
        ("1 / (batch_size - 8) > 1", "by zero"),
    ],
)
def test_what_has_no_answer_is_refused_for_the_cell(text: str, message: str) -> None:
    with pytest.raises(ConstraintError, match=message):
        Constraint(text).holds(AXES)


def test_the_longest_constraint_is_quick() -> None:
    started = time.process_time()
    largest = "*".join(["999999999999999"] * 30)
    assert Constraint(f"{largest} > 1").holds(AXES)
    with pytest.raises(ConstraintError, match="too large"):
        Constraint(f"{largest} / 2 > 1.5").holds(AXES)
    assert time.process_time() - started < 0.5


@given(st.text(max_size=60))
def test_any_text_is_answered_or_refused(text: str) -> None:
    try:
        answer: object = Constraint(text).holds(AXES)
    except ConstraintError:
        answer = None
    assert answer in (True, False, None)
