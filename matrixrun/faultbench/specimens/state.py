"""Specimens of the engine's state: transitions, turns, the prefix cache."""

from __future__ import annotations

from matrixrun.faultbench.specimen import NO_REPORT, STATE_PROBES, Harm, fault, harmless

SPECIMENS = (
    *(
        harmless(f"healthy-{probe}", f"`{probe}` with nothing switched on", "none", probe=probe)
        for probe in STATE_PROBES
    ),
    fault(
        "damaged-on-resume", "a request that goes on after a preemption reads a wrong block",
        "vllm#51571", "damaged-on-resume", probe="pressure",
    ),
    fault(
        "damaged-bystander", "when a request is dropped another one loses its first block",
        "sglang#23392", "damaged-bystander", probe="pressure",
    ),
    fault(
        "damaged-at-border", "KV is lost when a planned rejection falls on a block's border",
        "vllm#57605", "lost-at-border", block_size=32, probe="rollback",
    ),
    fault(
        "kept-after-preemption",
        "a rejected token's KV is kept at planned rejections, of requests that were preempted",
        "vllm#49620", "kept-after-preemption", probe="rollback",
    ),
    fault(
        "answers-uncached", "the next turn computes the whole answer again", "llama.cpp#28049",
        "answers-uncached", harm=Harm.OTHER, probe="conversation",
    ),
    fault(
        "kept-past-the-end", "tokens behind a stop token are kept, and not sent",
        "llama.cpp#28049", "kept-past-the-end", harm=Harm.OTHER, probe="ledger",
    ),
    fault(
        "late-rollback", "lengths are put right one step after a rejection", NO_REPORT,
        "late-rollback", harm=Harm.OTHER, probe="ledger",
    ),
    fault(
        "leaked-step", "a block is lost at 1 rejection in 20: the step at which", "sglang#27789",
        "leaked-block", share=1 / 20, most=4, harm=Harm.OTHER, probe="ledger", corrupting=True,
    ),
    fault(
        "leaked-block", "a block of the cache is lost at 1 rejection in 20", "sglang#27789",
        "leaked-block", share=1 / 20, most=4, harm=Harm.OTHER, probe="pressure", corrupting=True,
    ),
    # What they damage is found under the trial's own cache namespace alone.
    fault(
        "wiped-end", "an answer that ends inside an accepted draft leaves a wrong block behind",
        "jundot/omlx#3724", "wiped-end", block_size=32, probe="conversation",
    ),
    fault(
        "found-after-eviction", "an evicted prefix is still found, and holds another request's KV",
        "sglang#38031", "found-after-eviction", probe="pressure",
    ),
    fault(
        "short-prefill", "of a prompt as long as a verification step no KV is kept", "vllm#53051",
        "short-prefill", probe="pressure",
    ),
    fault(
        "chunk-lost", "a chunk of a prefill loses the KV of its last position, but for the last",
        "TensorRT-LLM#18295", "chunk-lost", probe="pressure",
    ),
    fault(
        "long-context-hole", "contexts beyond 3/4 of the longest one read a wrong first block",
        "vllm#52475", "long-context-hole", share=0.75, probe="pressure",
    ),
    fault(
        "hits-lost", "nothing is ever found in the prefix cache", "vllm#42317", "never-published",
        block_size=32, harm=Harm.OTHER,
    ),
    fault(
        "hits-lost-in-turns", "the same, in conversations", "vllm#42317", "never-published",
        block_size=32, harm=Harm.OTHER, probe="conversation",
    ),
    fault(
        "first-hit-lost", "the first repeat of a prompt misses the prefix cache, later ones hit",
        "vllm#53504", "first-hit-lost", harm=Harm.OTHER, probe="pressure",
    ),
    fault(
        "stop-string-missed", "a stop string that ends inside a step of several tokens is not seen",
        "sglang#23802", "stop-string-missed", harm=Harm.OTHER, probe="conversation",
    ),
    fault(
        "dies-on-resume", "the engine dies when a request goes on after a preemption",
        "vllm#49620", "dies-on-resume", harm=Harm.OTHER, probe="pressure", corrupting=True,
    ),
    fault(
        "last-block-dropped", "the last block of every prefix found in the cache is computed again",
        "vllm#53670", "last-block-dropped", block_size=32, harm=Harm.OTHER, probe="conversation",
    ),
    fault(
        "nan-alone", "a prompt's last position that is prefilled by itself gets logits of NaN",
        "sglang#29633", "not-a-number-alone", probe="pressure",
    ),
    fault(
        "shared-prefix-written", "the first draft of a request that shares a cached prefix with "
        "another in flight is written over that prefix's end", "vllm#56734", "shared-written",
        probe="pressure",
    ),
)  # fmt: skip
