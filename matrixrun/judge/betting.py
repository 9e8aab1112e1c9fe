"""Testing by betting: does an arm sample from the distributions that it claims to sample from?

At every token the target's own probabilities are known, given all tokens before it, so the token is
a bet: money is put on the outcomes that an alternative makes likelier, at the target's odds. Under
the null nobody can expect to win, and the capital is a nonnegative martingale that starts at 1; it
exceeds 1/a with probability at most a, whatever is stopped when (Ville 1939; Shafer 2021, "Testing
by betting", J. R. Statist. Soc. A 184; Ramdas, Gruenwald, Vovk and Shafer 2023, "Game-theoretic
statistics and safe anytime-valid inference", Statist. Sci. 38). So every token counts, in the order
in which it came, and no second sample is needed. Many bets share the capital; their mean is a
martingale again.

Outcomes are the best K tokens by name and all others together: whatever is merged, the odds of what
is left are exact. Of what a request's settings cut they are somewhat too short, and nobody can
expect to win by that either.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace

import numpy as np

from matrixrun.judge.case import Floats, Ints
from matrixrun.judge.laws import LEAST_PROBABILITY, Flags, Setting

# The part of the capital that goes on an alternative: a fault in one token of 30, 7, 2.
STAKES = (0.03, 0.15, 0.5)
# The same for draft tokens that are let through, and for tokens from nowhere: one in 300, 30, 3.
LEAK_STAKES = (0.003, 0.03, 0.3)
# Tokens that are none of the best come from nowhere where all of them together hold less than this.
HARDLY_ANY = 0.01
# A rank of a sharded vocabulary, or a kernel's last tile, holds about so much of all ids.
PARTS = 4
# No token at all, among ids.
NONE = -1
# What is less likely than this pays as if it were so likely: one token decides nothing alone.
LEAST_PAID = 1e-4


@dataclass(frozen=True)
class Draws:
    """Sampled tokens in the order sampled [N]: `token`, the `logprob` of what it was drawn from;
    the target's best `top` [N, K] by id and the `law` [N, K + 1] of them that was drawn from, the
    last entry that of all others together; `uncut` [N, K + 1] the same without the request's
    settings, `cut` [N] the number of its `Setting`; `outcome` [N], the place of the token in `law`;
    `draft` [N], the place in its step's draft, -1 where none was offered or it is not known,
    `taken` where it is the draft's own token, `bonus` where a whole draft had been taken; `owner`
    [N] the answer it belongs to, `position` [N] its place there."""

    token: Ints
    logprob: Floats
    top: Ints
    law: Floats
    uncut: Floats
    cut: Ints
    outcome: Ints
    draft: Ints
    taken: Flags
    bonus: Flags
    owner: Ints
    position: Ints

    def narrowed(self, width: int) -> Draws:
        """Return the draws with the best `width` tokens by name and the rest among the others."""
        if width == self.top.shape[1]:
            return self
        return replace(
            self,
            top=self.top[:, :width],
            law=_narrowed(self.law, width),
            uncut=_narrowed(self.uncut, width),
            outcome=np.minimum(self.outcome, width),
        )

    def where(self, flags: Flags) -> Draws:
        """Return the flagged draws."""
        return Draws(*(getattr(self, name)[flags] for name in self.__dataclass_fields__))


def _narrowed(law: Floats, width: int) -> Floats:
    return np.column_stack([law[:, :width], law[:, width:].sum(axis=1)])


def alternatives(draws: Draws) -> dict[str, Floats]:
    """Return the distributions that faults would draw from instead [N, K + 1], by what they are.

    A rejected draft token that stays in the residual is drawn too often; so is the best token where
    a greedy choice leaks in, and the draft's own law is sharper or flatter than the target's. A
    residual that takes too much away misses the best token. A row too early is the law before.
    Settings that do not reach a row leave the raw law there. Random numbers that stay as they are
    decide alike wherever the law is alike.
    """
    law = draws.law
    best, second = np.zeros_like(law), np.zeros_like(law)
    best[:, 0], second[:, 1] = 1.0, 1.0
    missing = law.copy()
    missing[:, 0] = 0.0
    return {
        "the best token": best,
        "the second token": second,
        "a sharper law": _scaled(law**2),
        "a flatter law": _scaled(np.sqrt(law)),
        "the law without its best token": _scaled(missing),
        "the law of the row before": _row_before(draws),
        "the law without the request's settings": draws.uncut,
        "what came of the place most like it": _as_before(draws, best, _scaled(missing)),
    }


def _as_before(draws: Draws, best: Floats, missing: Floats) -> Floats:
    """Return `best` where the best token came at the place most like this one, `missing` where
    another did: at the same draft position, earlier in the answer, its best token about as likely.
    The law itself where there was none."""
    law = draws.law.copy()
    for place in range(int(draws.draft.max(initial=-1)) + 1):
        for owner in np.unique(draws.owner[draws.draft == place]):
            rows = np.flatnonzero((draws.draft == place) & (draws.owner == owner))
            if rows.size > 1:
                came = draws.outcome[rows[_nearest_before(draws.law[rows, 0])]] == 0
                law[rows[1:]] = np.where(came[:, None], best[rows[1:]], missing[rows[1:]])
    return law


def _nearest_before(values: Floats) -> Ints:
    """Return for each value but the first the place of the nearest one before it [N - 1]."""
    apart = np.abs(values[1:, None] - values[None, :])
    apart[np.triu(np.ones(apart.shape, dtype=bool), 1)] = np.inf
    return np.asarray(apart.argmin(axis=1), dtype=np.int64)


def _scaled(law: Floats) -> Floats:
    return np.asarray(law / law.sum(axis=1, keepdims=True))


def _row_before(draws: Draws) -> Floats:
    """Return the law of the token before, over this one's outcomes; the same law where there is
    none, and where a request's settings cut it."""
    law = draws.law.copy()
    follows = np.zeros(draws.token.size, dtype=bool)
    follows[1:] = (draws.owner[1:] == draws.owner[:-1]) & (
        draws.position[1:] == draws.position[:-1] + 1
    )
    follows &= draws.cut == Setting.WHOLE.number
    rows = np.flatnonzero(follows)
    named = np.zeros((rows.size, law.shape[1] - 1))
    for place in range(named.shape[1]):
        same = draws.top[rows - 1] == draws.top[rows, place][:, None]
        named[:, place] = (same * draws.law[rows - 1, :-1]).sum(axis=1)
    others = np.maximum(0.0, 1.0 - named.sum(axis=1))
    law[rows] = np.column_stack([named, others])
    return law


def classes(draws: Draws) -> dict[str, Flags]:
    """Return the draws that a bet may be confined to: what they are is known before each draw.
    Those that a request's settings cut stand by themselves: their odds are somewhat too short."""
    whole = draws.cut == Setting.WHOLE.number
    return {
        "any token": whole,
        "first draft positions": whole & (draws.draft == 0),
        "later draft positions": whole & (draws.draft > 0),
        "tokens after a whole draft": whole & draws.bonus,
        "tokens under top-k and a temperature": draws.cut == Setting.COOLED.number,
        "tokens under top-p": draws.cut == Setting.NUCLEUS.number,
    }


@dataclass(frozen=True)
class Wealth:
    """What all bets together are worth, as a natural logarithm, and the best of them."""

    log: float
    best: str
    best_log: float
    bets: int


def wager(draws: Draws, *, single: bool = False) -> Wealth:
    """Return the capital after betting on every alternative in every class at every stake; where
    the drafter offers a `single` token at each place, on drafts let through as well. What is never
    laid keeps its worth of 1: how many bets share the capital must not depend on the draws."""
    places = np.arange(draws.token.size)
    odds = draws.law[places, draws.outcome]
    logs: list[float] = []
    names: list[str] = []
    groups = classes(draws)
    for name, other in alternatives(draws).items():
        ratio = other[places, draws.outcome] / odds
        for group, flags in groups.items():
            for stake in STAKES:
                logs.append(float(np.log1p(stake * (ratio[flags] - 1.0)).sum()))
                names.append(f"{name}, {group}")
    for name, more in (
        ("tokens from nowhere", wager_on_strangers(draws)),
        ("one unlikely token again and again", wager_on_a_favourite(draws)),
        ("a part of the vocabulary left out", wager_on_parts(draws)),
    ):
        logs += more
        names += [name] * len(more)
    if single:
        leaks = wager_on_leaks(draws)
        logs += leaks
        names += ["draft tokens let through"] * len(leaks)
    return _together(logs, names)


def wager_on_leaks(draws: Draws) -> list[float]:
    """Return the capital after betting that draft tokens are taken more often than they are likely,
    at each stake.

    Which token was offered is unknown where it was rejected, and need not be known: a single
    token d is taken with its probability p(d), so that what pays 1 / p(token) where the draft's
    token was taken, and nothing else, pays 1 on average. A draft that is taken whatever the target
    says is mostly an unlikely token, and pays highly. A drafter that draws from a law of its own,
    or offers several tokens at a place, is not bound by this: there min(1, p / q) is what is
    taken (Leviathan, Kalman and Matias 2023, arXiv 2211.17192; Chen et al. 2023, arXiv 2302.01318).
    """
    offered = draws.draft >= 0
    likely = np.exp(np.clip(draws.logprob[offered], math.log(LEAST_PAID), 0.0))
    paid = draws.taken[offered] / likely
    return [float(np.log1p(stake * (paid - 1.0)).sum()) for stake in LEAK_STAKES]


def wager_on_strangers(draws: Draws) -> list[float]:
    """Return the capital after betting, at each stake, on tokens that are none of the best where
    these hold nearly everything.

    A token from nowhere (the id 0, padding, another row's) is one of them (vllm#41834). Where to
    bet is known before the draw, and what is paid is at most what the odds allow.
    """
    others, last = draws.law[:, -1], draws.law.shape[1] - 1
    places = others < HARDLY_ANY
    paid = (draws.outcome == last)[places] / np.maximum(others[places], LEAST_PAID)
    return [float(np.log1p(stake * (paid - 1.0)).sum()) for stake in LEAK_STAKES]


def wager_on_a_favourite(draws: Draws) -> list[float]:
    """Return the capital after betting, at each stake, on the unlikely token that came most often
    so far.

    What stands in for a token that was never drawn is one and the same (the id 0, padding). Each
    draw is paid 1 / p(token) if it is that token, whose probability is known as that of what was
    drawn, and nothing else: 1 on average, whatever the token.
    """
    likely = np.exp(np.minimum(draws.logprob, 0.0))
    favourite = _favourites(draws.token, likely < HARDLY_ANY)
    laid = favourite != NONE
    paid = (draws.token == favourite)[laid] / np.maximum(likely[laid], LEAST_PAID)
    return [float(np.log1p(stake * (paid - 1.0)).sum()) for stake in LEAK_STAKES]


def wager_on_parts(draws: Draws) -> list[float]:
    """Return the capital after betting, for each quarter of the ids and at each stake, that its
    tokens are drawn too seldom.

    So it is where a rank of a sharded vocabulary or a kernel's tile takes no part, and where one
    random number serves twice: drawn by the sum of the probabilities before it, a token's id goes
    by how large the number was. Odds are known of the best tokens. The very best is mostly the
    draft's own and is taken as such, so that it counts for no part. How large ids are is taken from
    those seen before each draw. Settings that cut a law merge some of its tokens: it is left out.
    """
    draws = draws.where(draws.cut == Setting.WHOLE.number)
    largest = np.maximum.accumulate(draws.top.max(axis=1, initial=0))[:, None] + 1
    part_of = np.minimum(draws.top * PARTS // largest, PARTS - 1)
    part_of[:, 0] = NONE
    drawn = np.column_stack([part_of, np.full(draws.token.size, NONE)])[
        np.arange(draws.token.size), draws.outcome
    ]
    found = []
    for part in range(PARTS):
        share = (draws.law[:, :-1] * (part_of == part)).sum(axis=1)
        paid = (drawn != part) / np.maximum(1.0 - share, LEAST_PAID)
        found += [float(np.log1p(stake * (paid - 1.0)).sum()) for stake in STAKES]
    return found


def _favourites(tokens: Ints, unlikely: Flags) -> Ints:
    """Return for each token the one that came most often before it where it was `unlikely` [N],
    the first of several; NONE where there is none yet."""
    counts: Counter[int] = Counter()
    favourite, found = NONE, np.full(tokens.size, NONE, dtype=np.int64)
    for place, (token, counted) in enumerate(zip(tokens.tolist(), unlikely.tolist(), strict=True)):
        found[place] = favourite
        if counted:
            counts[token] += 1
            if counts[token] > counts[favourite]:
                favourite = token
    return found


def wager_on_collisions(pairs: Floats) -> Wealth:
    """Return the capital after betting that a second sample repeats the first.

    `pairs` [M, 2] holds, for every token at which two samples still had the same text before
    it, whether they agree (1 or 0) and the target's probability of the first one's token.
    """
    same, probability = pairs[:, 0], np.maximum(pairs[:, 1], LEAST_PROBABILITY)
    logs = [float(np.log1p(stake * (same / probability - 1.0)).sum()) for stake in STAKES]
    return _together(logs, ["the same token"] * len(logs))


def _together(logs: list[float], names: list[str]) -> Wealth:
    values = np.array(logs)
    largest = int(values.argmax())
    top = float(values[largest])
    whole = top + float(np.log(np.exp(values - top).mean()))
    return Wealth(whole, names[largest], top, values.size)
