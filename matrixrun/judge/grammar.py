"""The language that answers with the processor `grammar` are written in, and what the judge can say
of them without the engine's masks: whether a text can still become a valid one, and, at the first
fork of two answers, how far the one's token lies below the other's, which is allowed there.

A valid text is short lines, closed by a tilde in the place of one. The length so far decides what
may come next, so that a state which counts rejected tokens, or forgets accepted ones, shows; within
a line nearly every token is allowed, so that drafts made without the grammar come to verification;
and a model hardly ever writes the tilde, so that answers are long.
"""

from __future__ import annotations

import re

import numpy as np

from matrixrun.evidence.requests import FloatArray, Grammar
from matrixrun.judge.case import LARGEST_REGRET, Floats, Ints

# Characters of a line: about four tokens, as many as a draft and its correction have.
LONGEST_LINE = 16
GRAMMAR = Grammar(
    regex=rf"([^\n~]{{1,{LONGEST_LINE}}}\n)*~",
    gbnf=rf'root ::= line* "~"' "\n" rf'line ::= [^\n~]{{1,{LONGEST_LINE}}} "\n"' "\n",
)
_LINES = re.compile(rf"(?:[^\n~]{{1,{LONGEST_LINE}}}\n)*")
_LAST = re.compile(rf"~|[^\n~]{{0,{LONGEST_LINE}}}")
# What a character becomes whose bytes have not all come: up to three at the end of a text.
UNFINISHED = "\ufffd"


def misfit(text: str, *, ended: bool) -> int | None:
    """Return the place of the first character that no valid text has there, None where there is
    none. A text that `ended` by itself must be valid as it is; its missing rest has its length."""
    if not ended:
        text = text.rstrip(UNFINISHED)
    lines = _LINES.match(text)
    last = _LAST.match(text, lines.end() if lines else 0)
    place, whole = (last.end(), last.group() == "~") if last else (0, False)
    return place if place < len(text) or (ended and not whole) else None


def fork_values(
    tokens: Ints, logprobs: FloatArray, others: Ints, other_logprobs: FloatArray
) -> tuple[Floats, Ints]:
    """Return a lower bound of each token's regret after the mask [n], and the id of the token by
    which it is known [n].

    At the first fork from another answer that holds to the grammar, its token was allowed after the
    same prefix: the gap of the raw `logprobs` is what the mask leaves of it. Elsewhere nothing is
    known: 0, and the token itself.
    """
    regrets, rivals = np.zeros(tokens.size), tokens.copy()
    size = min(tokens.size, others.size, logprobs.size, other_logprobs.size)
    apart = np.flatnonzero(tokens[:size] != others[:size])
    if apart.size:
        place = int(apart[0])
        gap = float(other_logprobs[place]) - float(logprobs[place])
        rivals[place] = others[place]
        regrets[place] = min(gap, LARGEST_REGRET) if gap > 0 else 0.0  # NaN is not above 0
    return regrets, rivals
