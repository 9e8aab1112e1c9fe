"""Token sequences that an answer must not hold: which tokens would complete one, place by place."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from matrixrun.judge.case import Ints

Sequences = tuple[tuple[int, ...], ...]


def completing(history: Sequence[int], banned: Sequences) -> set[int]:
    """Return the tokens that may not come after `history`: each is the last of a sequence whose
    other tokens are the last ones of `history`."""
    return {
        one[-1]
        for one in banned
        if len(one) <= len(history) + 1
        and tuple(history[len(history) - len(one) + 1 :]) == one[:-1]
    }


def barred(ids: Ints, before: Sequence[int], tokens: Ints, banned: Sequences) -> NDArray[np.bool_]:
    """Return which of `ids` [n, k] may not come at their place, after `before` and the tokens of
    the answer before that place [n, k]."""
    history, found = list(before), np.zeros(ids.shape, dtype=bool)
    for place, row in enumerate(ids):
        found[place] = np.isin(row, list(completing(history, banned)))
        history.append(int(tokens[place]))
    return found


def first_completed(tokens: Ints, banned: Sequences) -> tuple[int, tuple[int, ...]] | None:
    """Return the first place of an answer at which a sequence is complete, and the sequence; None
    where none ever is."""
    for place in range(tokens.size):
        for one in banned:
            start = place + 1 - len(one)
            if start >= 0 and tuple(tokens[start : place + 1].tolist()) == one:
                return place, one
    return None
