"""What a vLLM server reports of itself: facts and counters. Pure."""

from __future__ import annotations

from typing import Any

from prometheus_client.parser import text_string_to_metric_families

PREFIX = "vllm:"
CACHE_CONFIG = "vllm:cache_config_info"
CAPACITY = "kv_cache_capacity_tokens"
_PROCESS_LABELS = frozenset({"engine", "model_name"})

_FACTS = {
    "model_config": ("dtype", "max_model_len", "quantization", "enforce_eager", "logprobs_mode"),
    "cache_config": (
        "block_size",
        "num_gpu_blocks",
        "cache_dtype",
        "enable_prefix_caching",
        "mamba_cache_mode",
        "mamba_block_size",
        "kv_cache_size_tokens",
    ),
    "parallel_config": (
        "tensor_parallel_size",
        "pipeline_parallel_size",
        "data_parallel_size",
        "distributed_executor_backend",
        "worker_cls",
    ),
    "scheduler_config": (
        "max_num_batched_tokens",
        "max_num_scheduled_tokens",
        "max_num_seqs",
        "enable_chunked_prefill",
        "async_scheduling",
        "scheduler_cls",
    ),
    "device_config": ("device",),
    "compilation_config": ("mode", "cudagraph_mode", "cudagraph_capture_sizes"),
}
_SPECULATIVE = (
    "method",
    "num_speculative_tokens",
    "rejection_sample_method",
    "draft_sample_method",
    "prompt_lookup_min",
    "prompt_lookup_max",
    "disable_padded_drafter_batch",
    "parallel_drafting",
)
_SYSTEM = (
    "torch_version",
    "cuda_runtime_version",
    "nvidia_driver_version",
    "nvidia_gpu_models",
    "python_version",
)
_ENVIRONMENT = ("VLLM_USE_V2_MODEL_RUNNER", "VLLM_BATCH_INVARIANT", "VLLM_ATTENTION_BACKEND")


def facts(
    version: dict[str, Any], info: dict[str, Any] | None, metrics: str = ""
) -> dict[str, Any]:
    """A flat account of a server, from /version and /server_info; where that is closed (None), what
    the labels of /metrics say of its cache.

    Names are vLLM's own; those of the speculative configuration are prefixed `speculative_`.
    """
    found: dict[str, Any] = {"engine": "vllm", "version": version.get("version")}
    if info is None:
        return found | _cache_facts(metrics)
    config = info.get("vllm_config")
    if isinstance(config, dict):
        for section, names in _FACTS.items():
            found |= _pick(config.get(section), names)
        picked = _pick(config.get("speculative_config"), _SPECULATIVE)
        found |= {f"speculative_{name}": value for name, value in picked.items()}
    found |= _pick(info.get("system_env"), _SYSTEM)
    found |= _pick(info.get("vllm_env"), _ENVIRONMENT)
    return found


def _cache_facts(metrics: str) -> dict[str, Any]:
    """The cache's configuration from the labels of `cache_config_info`, which are all texts."""
    for family in text_string_to_metric_families(metrics):
        for sample in family.samples:
            if sample.name == CACHE_CONFIG:
                picked = _pick(sample.labels, _FACTS["cache_config"])
                return {name: _value(text) for name, text in picked.items() if text != "None"}
    return {}


def _value(label: str) -> int | bool | str:
    if label in ("True", "False"):
        return label == "True"
    return int(label) if label.isdecimal() else label


def _pick(section: Any, names: tuple[str, ...]) -> dict[str, Any]:
    if not isinstance(section, dict):
        return {}
    return {name: section[name] for name in names if name in section}


def counters(text: str) -> dict[str, float]:
    """vLLM's own counters and gauges from /metrics, summed over engine processes.

    Names lose `vllm:` and `_total`; further labels follow, as in
    `spec_decode_num_accepted_tokens_per_pos.0`. Of histograms only `_sum` and `_count` are kept.
    `kv_cache_capacity_tokens` is the product of two labels of `cache_config_info`.
    """
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        if not family.name.startswith(PREFIX):
            continue
        for sample in family.samples:
            if sample.name == CACHE_CONFIG:
                found[CAPACITY] = found.get(CAPACITY, 0.0) + _capacity(sample.labels)
            if sample.name.endswith(("_bucket", "_created", "_info")):
                continue
            name = sample.name.removeprefix(PREFIX).removesuffix("_total")
            labels = [v for k, v in sorted(sample.labels.items()) if k not in _PROCESS_LABELS]
            key = ".".join([name, *labels])
            found[key] = found.get(key, 0.0) + sample.value
    return found


def _capacity(labels: dict[str, str]) -> float:
    """Tokens that one engine process can cache, 0 where it does not say."""
    try:
        return float(labels["num_gpu_blocks"]) * float(labels["block_size"])
    except (KeyError, ValueError):
        return 0.0
