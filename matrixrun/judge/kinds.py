"""The names of all faults that a witness may find: what a policy's `finding:` may name."""

from __future__ import annotations

FAULT_KINDS = frozenset({
    "acceptance", "acceptance-after-whole-draft", "acceptance-by-position", "acceptance-by-step",
    "accuracy",
    "correlated-samples", "cut-short", "degeneration", "distribution", "drift", "empty-output",
    "equality", "fading-acceptance", "failed-request", "forbidden-text", "forbidden-token",
    "idle-drafter", "launch", "leak", "ledger", "length-limit", "misprocessed-token", "nan",
    "past-the-end", "predicted-acceptance", "processing", "regret", "repeated-acceptance",
    "reuse", "rollback", "sample-logprob", "sample-similarity", "seeds",
    "stopped-early",
    "surface-decoding", "surface-finish", "surface-stream", "surface-text", "surface-tool-call",
    "surface-usage", "target-path", "unexplained-token",
})  # fmt: skip
