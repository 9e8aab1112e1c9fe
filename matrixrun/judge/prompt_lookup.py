"""What an n-gram drafter must propose: its draft is a function of the tokens before it.

Behaviour of vLLM's n-gram proposer (docs.vllm.ai, "Speculating by matching n-grams in the prompt";
`v1/spec_decode/ngram_proposer.py` in 0.32): of the last tokens, the longest n-gram of `least` to
`most` tokens that stands in the text before, at its earliest place, proposes the up to `tokens`
tokens that follow it there, and never tokens beyond the model's longest text.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class PromptLookup:
    """An n-gram drafter: lengths of its n-grams, draft tokens a step, longest text."""

    least: int
    most: int
    tokens: int
    longest: int | None = None


@dataclass(frozen=True)
class Drafts:
    """For each place of a text, what a step that begins there is offered and accepts if the text
    goes on as it does [length + 1]: `offered` draft tokens, of which the first `matching` are the
    text's own."""

    offered: Ints
    matching: Ints


def prompt_lookup_of(facts: Mapping[str, Any]) -> PromptLookup | None:
    """Return the drafter that a launch reports of itself; None where its drafts are not those
    of prompt lookup as vLLM does it, or where it does not say how it looks up."""
    if facts.get("engine") != "vllm" or facts.get("speculative_method") != "ngram":
        return None
    names = ("prompt_lookup_min", "prompt_lookup_max", "num_speculative_tokens")
    values = [facts.get(f"speculative_{name}") for name in names]
    if not all(isinstance(value, int) and value > 0 for value in values):
        return None
    longest = facts.get("max_model_len")
    least, most, tokens = (int(value) for value in values if value is not None)
    return PromptLookup(least, most, tokens, longest if isinstance(longest, int) else None)


def drafts_of(drafter: PromptLookup, text: Sequence[int] | NDArray[Any]) -> Drafts:
    """Return what `drafter` proposes at every place of `text`, prompt and answer in one.

    n-grams are numbered through their first n - 1 tokens and the last one, exactly and without
    hashing, so that the earliest place of each is one sort a length.
    """
    tokens = np.asarray(text, dtype=np.int64)
    start = np.full(tokens.size + 1, -1, dtype=np.int64)
    numbers = np.zeros(tokens.size + 1, dtype=np.int64)
    for length in range(1, drafter.most + 1):
        if length > tokens.size:
            break
        # numbers[e] names the n-gram that ends before e, for every e >= length.
        grams = numbers[length - 1 : -1] * (int(tokens.max()) + 1) + tokens[length - 1 :]
        _, first, same = np.unique(grams, return_index=True, return_inverse=True)
        numbers = np.concatenate([np.zeros(length, dtype=np.int64), same.reshape(-1)])
        if length >= drafter.least:
            ends, earliest = np.arange(length, tokens.size + 1), first[same.reshape(-1)] + length
            seen = earliest < ends
            start[ends[seen]] = earliest[seen]
    return _matched(drafter, tokens, start)


def _matched(drafter: PromptLookup, tokens: Ints, start: Ints) -> Drafts:
    places = np.arange(tokens.size + 1)
    offered = np.where(start >= 0, np.minimum(drafter.tokens, places - start), 0)
    if drafter.longest is not None:
        offered = np.minimum(offered, np.maximum(drafter.longest - places, 0))
    matching = np.zeros(tokens.size + 1, dtype=np.int64)
    going = offered > 0
    for place in range(drafter.tokens):
        inside = going & (place < offered) & (places + place < tokens.size)
        same = np.zeros(places.size, dtype=bool)
        here = np.flatnonzero(inside)
        same[here] = tokens[start[here] + place] == tokens[here + place]
        matching += same
        going = same
    return Drafts(offered, matching)


def predicted_steps(drafts: Drafts, prompt: int) -> tuple[Ints, Ints]:
    """Return drafted and accepted tokens of the verification steps that emit a text whose first
    `prompt` tokens are given and whose next one the prompt's own step emits; steps without a
    draft are not listed, as the engine lists none."""
    drafted, accepted = [], []
    offered, matching = drafts.offered.tolist(), drafts.matching.tolist()
    place, end = prompt + 1, len(offered) - 1
    while place < end:
        if offered[place]:
            drafted.append(offered[place])
            accepted.append(matching[place])
        place += matching[place] + 1
    return np.array(drafted, dtype=np.int64), np.array(accepted, dtype=np.int64)
