"""What is refused before a launch, and how vLLM's own refusals are told from its crashes."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from vllm_arms import NGRAM, OFF

from matrixrun.engines import get
from matrixrun.evidence.cells import Speculation
from matrixrun.evidence.launches import ArmConfig, Recipe

LOGS = Path(__file__).with_name("logs")


def _speculating(args: tuple[str, ...] = (), **options: object) -> ArmConfig:
    speculation = Speculation(method="ngram", num_speculative_tokens=4, options=dict(options))
    return msgspec.structs.replace(OFF, speculation=speculation, args=args)


@pytest.mark.parametrize(
    "options",
    [
        {"rejection_sample_method": "synthetic"},
        {"rejection_sample_method": "typical"},
        {"synthetic_acceptance_length": 2.5},
        {"synthetic_acceptance_rates": [0.9, 0.5]},
        {"posterior_threshold": 0.09},
        {"typical_acceptance_sampler_posterior_alpha": 0.3},
    ],
)
def test_settings_that_change_the_output_by_design_are_refused(options: dict) -> None:
    reason = get("vllm").refuse(_speculating(**options))
    assert reason is not None
    assert next(iter(options)) in reason


@pytest.mark.parametrize(
    "args",
    [
        ("--speculative-config", '{"rejection_sample_method": "synthetic"}'),
        ('-sc={"synthetic-acceptance-length": 2}',),
        ("--speculative-config.rejection_sample_method=synthetic",),
        ("--speculative_config.rejection-sample-method", "synthetic"),
    ],
)
def test_they_are_found_among_the_users_flags_too(args: tuple[str, ...]) -> None:
    assert "lossy" in str(get("vllm").refuse(_speculating(args)))


@pytest.mark.parametrize(
    "options", [{}, {"rejection_sample_method": "block"}, {"draft_sample_method": "greedy"}]
)
def test_lossless_settings_are_not_refused(options: dict) -> None:
    assert get("vllm").refuse(_speculating(**options)) is None


def test_a_method_that_the_adapter_does_not_know_is_the_engines_to_judge() -> None:
    unknown = msgspec.structs.replace(NGRAM, method="teleport")
    assert get("vllm").refuse(msgspec.structs.replace(OFF, speculation=unknown)) is None


def test_the_cpu_build_does_not_run_on_an_accelerator() -> None:
    on_gpu = msgspec.structs.replace(OFF, accelerator="H100")
    assert "CPU build" in str(get("vllm").refuse(on_gpu))
    own = msgspec.structs.replace(on_gpu, recipe=Recipe(install=("vllm==0.33.0",)))
    assert get("vllm").refuse(own) is None


# Logs of vLLM 0.32 on CPU, cut to the tracebacks.
REFUSED = {
    "bad-flag": "unrecognized arguments: --no-such-flag 3",
    "bad-dtype": "argument --dtype: invalid choice: 'float13'",
    "suffix-without-arctic": "Arctic Inference is required for suffix decoding",
    "draft-tp-mismatch": "'draft_tensor_parallel_size' and 'tensor_parallel_size' must be the same",
    "unknown-method": "1 validation error for SpeculativeConfig; Input should be 'ngram', 'medusa'",
    "adaptive-verification": "Model Runner V1 does not support: adaptive draft verification",
    "parallel-drafting": "For parallel drafting, the draft model config must have",
    "too-long-max-model-len": "User-specified max_model_len (999999) is greater than",
    "unknown-quantization": "Unknown quantization method: bitsandbytes",
}
CRASHED = ["ngram-gpu-on-cpu", "pp2-ngram", "fp8-online-on-cpu", "no-such-checkpoint"]


@pytest.mark.parametrize(("name", "words"), REFUSED.items())
def test_a_refusal_is_recognised_in_the_engines_own_words(name: str, words: str) -> None:
    recognised = get("vllm").recognise_refusal((LOGS / f"{name}.log").read_text())
    assert recognised is not None
    assert words in recognised


@pytest.mark.parametrize("name", CRASHED)
def test_a_crash_is_no_refusal(name: str) -> None:
    assert get("vllm").recognise_refusal((LOGS / f"{name}.log").read_text()) is None


def test_a_flag_of_ours_that_an_older_engine_lacks_is_no_refusal() -> None:
    log = "main.py: error: unrecognized arguments: --enable-per-request-metrics"
    assert get("vllm").recognise_refusal(log) is None
    both = f"{log} --users-own 3"
    assert "--users-own" in str(get("vllm").recognise_refusal(both))


def _traceback(source: str, last: str, path: str = "/env/site-packages/vllm/config/x.py") -> str:
    return (
        "Traceback (most recent call last):\n"
        f'  File "{path}", line 1, in check\n    {source}\n    ^^^^^\n{last}\n'
    )


@pytest.mark.parametrize(
    "last",
    [
        "AttributeError: 'NoneType' object has no attribute 'drafter'",
        "TypeError: 'function' object is not subscriptable",
        "AssertionError",
        "KeyError: 'cmpl-1'",
        "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2 GiB",
        "ValueError: No available memory for the cache blocks.",
        "ValueError: Invalid repository ID or local directory specified: '/nowhere'",
    ],
)
def test_crashes_and_shortages_are_no_refusals(last: str) -> None:
    assert get("vllm").recognise_refusal(_traceback("raise it", last)) is None


def test_an_error_that_happened_rather_than_was_raised_is_no_refusal() -> None:
    words = "ValueError: not enough values to unpack (expected 2, got 1)"
    assert get("vllm").recognise_refusal(_traceback("a, b = pair", words)) is None
    assert get("vllm").recognise_refusal(_traceback("raise ValueError(x)", words)) is not None
    elsewhere = _traceback("raise ValueError(x)", words, "/env/site-packages/numpy/core.py")
    assert get("vllm").recognise_refusal(elsewhere) is None


def test_the_last_of_a_chain_is_what_was_said() -> None:
    chain = (
        _traceback("x['k']", "KeyError: 'k'")
        + "\nDuring handling of the above exception, another exception occurred:\n\n"
        + _traceback("raise NotImplementedError(x)", "NotImplementedError: k is not supported")
    )
    assert get("vllm").recognise_refusal(chain) == "k is not supported"


def test_processes_that_write_at_once_are_told_apart() -> None:
    refusal = _traceback("raise ValueError(x)", "ValueError: tp must divide 7").splitlines()
    tag = "(Worker pid={}) ERROR 11-29 19:01:15 [multiproc.py:953] "
    lines = [tag.format(pid) + line for line in refusal for pid in (1, 2)]
    assert get("vllm").recognise_refusal("\n".join(lines)) == "tp must divide 7"


def test_a_server_that_died_without_a_word_refused_nothing() -> None:
    assert get("vllm").recognise_refusal("INFO: started\nKilled\n") is None
