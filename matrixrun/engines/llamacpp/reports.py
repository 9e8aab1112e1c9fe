"""What a llama.cpp server reports of itself: facts and counters. Pure."""

from __future__ import annotations

import re
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

PREFIX = "llamacpp:"
_PACKAGE = re.compile(r"^in_process\.py: (\S+) (\d\S*)\s*$", re.MULTILINE)
# What the matrix products take in; sums and logits are float32 everywhere. Quantized files have
# no such name: their activations are rounded to 8 bits in blocks.
ARITHMETIC = {"BF16": "bfloat16", "F16": "float16", "all F32": "float32"}

WITHHELD = "withheld: those of accepted tokens are placeholders"


def facts(props: Any, slots: Any, models: Any) -> dict[str, Any]:
    """A flat account of a server, from /props, /slots and /v1/models. Names are llama.cpp's own.

    `speculative` says whether the server made a context for speculation: with a draft that does
    not fit it logs an error, serves on, and never drafts.
    """
    props = props if isinstance(props, dict) else {}
    kind = str(props.get("model_ftype", ""))
    found: dict[str, Any] = {
        "engine": "llamacpp",
        "version": _version(props.get("build_info")),
        "model_ftype": kind,
        "total_slots": props.get("total_slots"),
        "logprobs_when_speculating": WITHHELD,
        "n_ctx": (props.get("default_generation_settings") or {}).get("n_ctx"),
    }
    if kind in ARITHMETIC:
        found["dtype"] = ARITHMETIC[kind]
    if isinstance(slots, list) and slots:
        found["speculative"] = any(bool(slot.get("speculative")) for slot in slots)
    return found | _meta(models)


def _version(build_info: Any) -> str | None:
    """`b9876-0123abcd`; None where the build was not told which it is (`b0-unknown`)."""
    text = str(build_info or "")
    return None if not text or text.startswith("b0-") or text == "b0" else text


def logged(log: str) -> dict[str, Any]:
    """What `in_process.py` says of the package that the server is in: its server was built without
    a number of its own."""
    found = _PACKAGE.search(log)
    return {} if found is None else {"package": found[1], "version": found[2]}


def _meta(models: Any) -> dict[str, Any]:
    try:
        meta = models["data"][0]["meta"]
        return {name: meta[name] for name in ("n_vocab", "n_params", "n_ctx_train") if name in meta}
    except (KeyError, IndexError, TypeError):
        return {}


def counters(text: str) -> dict[str, float]:
    """llama.cpp's own counters and gauges from /metrics.

    Names lose `llamacpp:` and `_total`; a position follows as in
    `spec_decode_num_accepted_tokens_per_pos.0`.
    """
    found: dict[str, float] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name.startswith(PREFIX):
                name = sample.name.removeprefix(PREFIX).removesuffix("_total")
                labels = [value for _, value in sorted(sample.labels.items())]
                found[".".join([name, *labels])] = sample.value
    return found
