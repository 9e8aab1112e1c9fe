"""A matrix file that is right, and variants of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from matrixrun.matrix import Expansion

GOOD = """\
name: good
engines:
  vllm: {kind: vllm, args: ["--flag", "1"], env: {A: "1"}}
  other:
    kind: vllm
    install: ["vllm==1"]
    limits: {max_num_seqs: 8}
models:
  dense:
    target: {path: org/dense, revision: abc}
    drafts:
      small: {path: org/small}
  ladder:
    targets:
      none: {path: org/ladder}
      fp8: {path: org/ladder-fp8}
grid:
  engine: [vllm]
  model: [dense]
  tensor_parallel_size: [1, 2]
  prefix_caching: [true, false]
  batch_size: [1, 8]
  speculation:
    - {method: ngram, num_speculative_tokens: 4}
    - {method: draft_model, draft: small, num_speculative_tokens: 3}
"""

Write = Callable[[str], Path]
Expand = Callable[[str], Expansion]


def changed(old: str, new: str, text: str = GOOD) -> str:
    """The good text with one part changed; the part must be there."""
    assert text.count(old) == 1, f"{old!r} occurs {text.count(old)} times"
    return text.replace(old, new)
