"""What a sample was drawn from: the target's law, cut and cooled by the request's own settings.

Engines apply these to the law that drafts are verified against, one row for each draft position; a
row that misses them is drawn from another law, and no greedy answer shows it (vllm#42744). A tells
the raw law's best tokens by name, so that of settings which keep some of these and no others the
law is known whole.

Rounding moves a token over a cut's border, and what is impossible pays highly. So tokens near the
border are one outcome, and whatever is kept pays as if it were as likely as it can be, whichever of
those are in. Where not all tokens near a border are known by name, the place is left out, as is
known before its token is drawn. What is cut off pays as if it were not quite impossible.
"""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from matrixrun.evidence.requests import Sampling
from matrixrun.judge.case import LARGEST_REGRET, Floats, Ints

Flags = NDArray[np.bool_]

# Below this a probability is what is left of float32 rounding.
LEAST_PROBABILITY = 1e-7
# Tokens within so many nats of the last one that top-k keeps are one outcome.
BORDER_NATS = 0.5
# So far rounding is taken to move the sum of the tokens before one, which top-p goes by.
BORDER_SHARE = 0.05
# The best tokens that must be known by name where settings cut the law.
LEAST_NAMED = 20
# What is cut off pays as if it were so likely.
LEAST_CUT = 1e-3


class Setting(StrEnum):
    """What cuts a sample's law: nothing; temperature and top-k; top-p. Top-p is combined with
    neither: engines apply it before or after a temperature, and to all of the law or to what top-k
    has left of it (SGLang 0.5 does the one without and the other with speculation)."""

    WHOLE = "s"
    COOLED = "cooled"
    NUCLEUS = "nucleus"

    @property
    def number(self) -> int:
        """Its place among all."""
        return list(Setting).index(self)


TEMPERATURES = {Setting.COOLED: 0.7}
TOP_K = {Setting.COOLED: 8}
TOP_P = {Setting.NUCLEUS: 0.8}


def drawn_with(setting: Setting, seed: int | None) -> Sampling:
    """Return the sampling fields of a sample. A token that ends a text must be seen like any
    other."""
    return Sampling(
        temperature=TEMPERATURES.get(setting, 1.0),
        top_k=TOP_K.get(setting, 0),
        top_p=TOP_P.get(setting, 1.0),
        seed=seed,
        ignore_eos=True,
    )


def law_of(top_logprobs: Floats) -> Floats:
    """Return the probabilities of the best K tokens and of all others [N, K + 1]; NaN is none."""
    named = np.where(np.isnan(top_logprobs), 0.0, np.exp(np.minimum(top_logprobs, 0.0)))
    named = named / np.maximum(1.0, named.sum(axis=1, keepdims=True))
    others = np.maximum(0.0, 1.0 - named.sum(axis=1))
    law = np.maximum(np.column_stack([named, others]), LEAST_PROBABILITY)
    return np.asarray(law / law.sum(axis=1, keepdims=True))


def outcome_of(token: Ints, top: Ints) -> Ints:
    """Return each token's place among the best, K where it is none of them [N]."""
    same = top == token[:, None]
    place: Ints = np.where(same.any(axis=1), same.argmax(axis=1), top.shape[1]).astype(np.int64)
    return place


class Law(NamedTuple):
    """The law that N tokens were drawn from: `odds` [N, K + 1] of the best K by name and of all
    others together, `uncut` the same of the target's raw law, `column` [N, K] the entry that each
    of the best counts for, and `clear` [N] where the odds hold whatever rounding does.

    Entries of `odds` add up to 1 or more: nobody can win by them on average."""

    odds: Floats
    uncut: Floats
    column: Ints
    clear: Flags


def law_under(setting: Setting, top_logprobs: Floats) -> Law | None:
    """Return the law of tokens by the target's best raw logprobs [N, K], best first; None where
    fewer are known than the setting keeps."""
    raw, width = law_of(top_logprobs), top_logprobs.shape[1]
    places = np.broadcast_to(np.arange(width), top_logprobs.shape)
    if setting is Setting.WHOLE:
        return Law(raw, raw, places, np.ones(raw.shape[0], dtype=bool))
    if width < LEAST_NAMED:
        return None
    known = np.nan_to_num(top_logprobs, nan=-LARGEST_REGRET, neginf=-LARGEST_REGRET)
    kept, column, clear = (_cooled if setting is Setting.COOLED else _nucleus)(known)
    others = np.full((raw.shape[0], 1), LEAST_CUT)
    odds = np.maximum(np.column_stack([_gathered(kept, column), others]), LEAST_PROBABILITY)
    named = _gathered(raw[:, :-1], column)
    uncut = np.column_stack([named, 1.0 - named.sum(axis=1)])
    told = ~np.isnan(top_logprobs[:, LEAST_NAMED - 1])
    return Law(odds, uncut, column, clear & told)


def _cooled(logprobs: Floats) -> tuple[Floats, Ints, Flags]:
    """Return the largest share that each of the best tokens can have under temperature and top-k,
    of those near the border together, the column that it counts for [N, K], and where that is clear
    [N]."""
    rows, top_k = np.arange(logprobs.shape[0]), TOP_K[Setting.COOLED]
    weights = np.exp((logprobs - logprobs[:, :1]) / TEMPERATURES[Setting.COOLED])
    last = logprobs[:, top_k - 1][:, None]
    near = np.abs(logprobs - last) <= BORDER_NATS
    surely = (logprobs > last) & ~near
    largest = np.where(surely, weights / weights[:, :top_k].sum(axis=1, keepdims=True), 0.0)
    kept, most = (np.where(some, weights, 0.0).sum(axis=1) for some in (surely, near))
    largest[rows, near.argmax(axis=1)] = most / (kept + most)
    return largest, _columns(surely, near), logprobs[:, -1] < last[:, 0] - BORDER_NATS


def _nucleus(logprobs: Floats) -> tuple[Floats, Ints, Flags]:
    """Return the same under top-p. What is kept adds up to top-p, and beyond it to one token more
    or to all that are near the border."""
    top_p, rows = TOP_P[Setting.NUCLEUS], np.arange(logprobs.shape[0])
    shares = np.exp(logprobs)
    before = shares.cumsum(axis=1) - shares
    last = logprobs[rows, (before < top_p).sum(axis=1) - 1][:, None]
    surely = (before < top_p - BORDER_SHARE) & (logprobs > last + BORDER_NATS)
    near = ~surely & ((logprobs >= last - BORDER_NATS) | (before < top_p + BORDER_SHARE))
    kept, every = (np.where(some, shares, 0.0).sum(axis=1) for some in (surely, near))
    least = np.maximum(kept, top_p - BORDER_SHARE)
    largest = np.where(surely, shares / least[:, None], 0.0)
    one_more = top_p + BORDER_SHARE + np.where(near, shares, 0.0).max(axis=1)
    most = np.clip(np.maximum(one_more, kept + every), None, 1.0)
    largest[rows, near.argmax(axis=1)] = 1.0 - kept / most
    reached = shares.sum(axis=1) > top_p + BORDER_SHARE
    clear = reached & (logprobs[:, -1] < last[:, 0] - BORDER_NATS)
    return largest, _columns(surely, near), clear


def _columns(kept: Flags, near: Flags) -> Ints:
    """Return each token's column [N, K]: its own where it is kept, one for all near the border,
    else that of all others."""
    width = kept.shape[1]
    column = np.where(kept, np.arange(width), width)
    return np.where(near, near.argmax(axis=1)[:, None], column).astype(np.int64)


def _gathered(shares: Floats, column: Ints) -> Floats:
    """Return the shares [N, K] added up by column, without that of all others."""
    gathered = np.zeros((shares.shape[0], shares.shape[1] + 1))
    np.add.at(gathered, (np.arange(shares.shape[0])[:, None], column), shares)
    return gathered[:, :-1]
