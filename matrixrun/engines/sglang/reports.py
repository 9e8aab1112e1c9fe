"""What an SGLang server reports of itself: facts and counters. Pure."""

from __future__ import annotations

from typing import Any

from prometheus_client.parser import text_string_to_metric_families

PREFIX = "sglang:"
ENGINE_LABELS = frozenset(
    {"engine_type", "model_name", "tp_rank", "pp_rank", "dp_rank", "moe_ep_rank", "pid"}
)
SETTINGS = frozenset({"spec_num_steps", "spec_num_draft_tokens"})
"""Gauges that say what is set, and count nothing."""
VERIFY_CALLS = "spec_verify_calls"

_FACTS = (
    "version",
    "device",
    "dtype",
    "quantization",
    "kv_cache_dtype",
    "context_length",
    "page_size",
    "max_total_num_tokens",
    "max_running_requests",
    "chunked_prefill_size",
    "max_prefill_tokens",
    "tp_size",
    "pp_size",
    "dp_size",
    "attn_dp_size",
    "attention_backend",
    "sampling_backend",
    "disable_radix_cache",
    "disable_overlap_schedule",
    "enable_mixed_chunk",
    "enable_deterministic_inference",
    "mamba_radix_cache_strategy",
    "mamba_track_interval",
)
_TREES = frozenset({"EAGLE", "EAGLE3", "STANDALONE", "FROZEN_KV_MTP"})


def facts(info: Any) -> dict[str, Any]:
    """A flat account of a server, from /server_info (older: /get_server_info). Names are SGLang's
    own; those of speculation are there only where it speculates."""
    info = info if isinstance(info, dict) else {}
    found: dict[str, Any] = {"engine": "sglang"}
    found |= {name: info[name] for name in _FACTS if info.get(name) is not None}
    if info.get("speculative_algorithm"):
        found |= {
            name: value
            for name, value in info.items()
            if name.startswith("speculative_") and value not in (None, False)
        }
    return found


def offered(found: dict[str, Any]) -> int | None:
    """How many draft positions a verification step has, from a server's facts: the tokens that it
    verifies less one in a chain, the depth of a tree; None where it varies or is not said."""
    tokens, steps = (found.get(f"speculative_num_{of}") for of in ("draft_tokens", "steps"))
    if found.get("speculative_adaptive") or not isinstance(tokens, int):
        return None
    branching = int(found.get("speculative_eagle_topk") or 1) > 1
    if branching and found.get("speculative_algorithm") in _TREES:
        return int(steps) if isinstance(steps, int) else None
    return tokens - 1


def counters(text: str) -> dict[str, float]:
    """SGLang's own counters and gauges from /metrics, summed over engine processes.

    Names lose `sglang:` and `_total`; further labels follow. Of histograms only `_sum` and `_count`
    are kept. Verification steps are also there under the name that the judge knows; accepted
    tokens SGLang does not count here, only in each answer.
    """
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        if not family.name.startswith(PREFIX):
            continue
        for sample in family.samples:
            if sample.name.endswith(("_bucket", "_created", "_info")):
                continue
            name = sample.name.removeprefix(PREFIX).removesuffix("_total")
            if name in SETTINGS:
                continue
            labels = [v for k, v in sorted(sample.labels.items()) if k not in ENGINE_LABELS]
            key = ".".join([name, *labels])
            found[key] = found.get(key, 0.0) + sample.value
    if VERIFY_CALLS in found:
        found["spec_decode_num_drafts"] = found[VERIFY_CALLS]
    return found
