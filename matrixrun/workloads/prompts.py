"""Prompts and the workload they make up."""

from __future__ import annotations

import hashlib

import msgspec

from matrixrun.evidence.requests import BadWord


class Prompt(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One prompt: `id` such as `natural-0007`, `category` the workload it came from.

    `token_ids` is what is sent; `text` is for people, and None where only ids were given.
    `follow_ups` are the further turns of a conversation that the prompt opens: what stands between
    an answer and the next one, as token ids. `answer` is a text that must stand in a right answer.
    `bad_words` are texts of the prompt that a request may forbid in its answer.
    """

    id: str
    category: str
    token_ids: tuple[int, ...]
    text: str | None = None
    follow_ups: tuple[tuple[int, ...], ...] = ()
    answer: str | None = None
    bad_words: tuple[BadWord, ...] = ()


class Workload(msgspec.Struct, frozen=True, kw_only=True):
    """Distinct prompts in the order in which they are sent; `sha256` covers ids and tokens."""

    prompts: tuple[Prompt, ...]
    sha256: str


def workload_of(prompts: tuple[Prompt, ...]) -> Workload:
    """Return `prompts` with their hash.

    Texts, bad words among them, are left out of the hash: a sweep that stores none has
    the same workload.
    """
    content = msgspec.json.encode(
        [
            (p.id, p.category, p.token_ids, *((p.follow_ups,) if p.follow_ups else ()))
            for p in prompts
        ]
    )
    return Workload(prompts=prompts, sha256=hashlib.sha256(content).hexdigest())
