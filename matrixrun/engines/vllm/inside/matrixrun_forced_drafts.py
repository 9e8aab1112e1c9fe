"""A drafter for vLLM whose drafts are right up to a place that is known, and wrong there.

It stands alone: vLLM's own process imports it by name (`method: custom_class`), so it needs nothing
but the standard library and the arrays it is handed. A text that it sees for the first time gets no
drafts and is remembered, so that the target's own continuation comes from a pass without drafts of
this very launch. When the text comes again it drafts that continuation, with one token replaced:
the place, 0 to k - 1, or k for none, depends on the number of tokens so far and on the last of
them, so that each place is hit again and again, wherever an answer stands, and by every request in
its own order.
"""

from __future__ import annotations

from typing import Any

# Fibonacci hashing: the high bits of a product with it are spread evenly.
MULTIPLIER = 2654435761


def wrong_place(length: int, last: int, places: int) -> int:
    """Return which of `places` draft tokens is wrong after `length` tokens, of which `last` is
    the last one; `places` itself for none."""
    mixed = (length * 8191 + last) * MULTIPLIER & 0xFFFFFFFF
    return (mixed >> 16) % (places + 1)


class Drafter:
    """vLLM's seam for proposers of one's own, see its `CustomClassProposer`."""

    def __init__(self, vllm_config: Any) -> None:
        self._places = int(vllm_config.speculative_config.num_speculative_tokens)
        self._vocabulary = int(vllm_config.model_config.get_vocab_size())
        self._texts: list[list[int]] = []

    def load_model(self, *_: Any, **__: Any) -> None:
        """vLLM's CPU runner asks every drafter to load something."""

    def propose(
        self, sampled_token_ids: Any, num_tokens_no_spec: Any, token_ids_cpu: Any, **_: Any
    ) -> list[list[int]]:
        """Return the draft of each row. A row that has not emitted anything in this step (a part of
        its prompt was computed) gets none."""
        return [
            self.draft(token_ids_cpu[row, : int(num_tokens_no_spec[row])].tolist())
            if len(sampled)
            else []
            for row, sampled in enumerate(sampled_token_ids)
        ]

    def draft(self, text: list[int]) -> list[int]:
        """Return the draft after `text`: what followed it before, with one token replaced."""
        known = self._continuation(text)
        if not known:
            self._remember(text)
            return []
        place = wrong_place(len(text), text[-1], self._places)
        if place < len(known):
            known[place] = (known[place] + 1) % self._vocabulary
        return known

    def _continuation(self, text: list[int]) -> list[int]:
        size = len(text)
        for other in self._texts:
            if len(other) > size and other[:size] == text:
                return other[size : size + self._places]
        return []

    def _remember(self, text: list[int]) -> None:
        for place, other in enumerate(self._texts):
            if len(other) <= len(text) and text[: len(other)] == other:
                self._texts[place] = text
                return
        self._texts.append(text)
