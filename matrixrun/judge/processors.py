"""Logits processors whose arithmetic can be done again from scores: what a request asks for, and
what the processed logits say of each emitted token.

Scores are logprobs of the raw logits, without the normaliser. What a processor adds to a logit is
added to its logprob; so at each place the best processed token among the target's best by name is
known, and the regret against it is a lower bound of the true one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from matrixrun.evidence.requests import BadWord, Observation, Sampling, Score
from matrixrun.judge.bad_words import Sequences, barred, completing, first_completed
from matrixrun.judge.case import LARGEST_REGRET, Floats, Ints
from matrixrun.judge.grammar import GRAMMAR, LONGEST_LINE, fork_values, misfit

# A token that comes back within one draft shows whether the draft counts. It hardly ever does, and
# the less so the smaller the penalty: 2 is the most that the engines' interface allows.
PRESENCE, FREQUENCY, REPETITION = 2.0, 0.1, 1.3
MIN_TOKENS = 8
STOPS = 3


class Processor(StrEnum):
    """`penalties` (presence and frequency), `repetition`, `allowed` (the prompt's own tokens and
    no others), `min-tokens` (the prompt's most frequent tokens end the answer, but not early),
    `grammar` (a structured output: the answer's text belongs to a language), `bad-words` (words of
    the prompt, of one token and of several, must not come)."""

    PENALTIES = "penalties"
    REPETITION = "repetition"
    ALLOWED = "allowed"
    MIN_TOKENS = "min-tokens"
    GRAMMAR = "grammar"
    BAD_WORDS = "bad-words"


def sampling_of(
    processor: Processor, prompt: Sequence[int], seed: int, bad_words: tuple[BadWord, ...] = ()
) -> Sampling:
    """Return the sampling fields of a greedy request with one processor on."""
    match processor:
        case Processor.PENALTIES:
            return Sampling(presence_penalty=PRESENCE, frequency_penalty=FREQUENCY, seed=seed,
                            ignore_eos=True)  # fmt: skip
        case Processor.REPETITION:
            return Sampling(repetition_penalty=REPETITION, seed=seed, ignore_eos=True)
        case Processor.ALLOWED:
            return Sampling(allowed_token_ids=allowed(prompt), seed=seed, ignore_eos=True)
        case Processor.MIN_TOKENS:
            return Sampling(min_tokens=MIN_TOKENS, stop_token_ids=stops(prompt), seed=seed,
                            ignore_eos=True)  # fmt: skip
        case Processor.GRAMMAR:
            # After a whole valid text only the end is allowed.
            return Sampling(grammar=GRAMMAR, seed=seed)
        case Processor.BAD_WORDS:
            return Sampling(bad_words=bad_words, seed=seed, ignore_eos=True)


def allowed(prompt: Sequence[int]) -> tuple[int, ...]:
    """Return the tokens that an answer with `allowed` may hold."""
    return tuple(sorted(set(prompt)))


def stops(prompt: Sequence[int]) -> tuple[int, ...]:
    """Return the tokens that end an answer with `min-tokens`."""
    counts = Counter(prompt)
    return tuple(sorted(sorted(counts, key=lambda token: (-counts[token], token))[:STOPS]))


@dataclass(frozen=True)
class Violation:
    """What a processor forbids, whatever the logits are: the place of the first such token of an
    answer, or of the first such character of its text, and the words for it."""

    place: int
    words: str


def violation(processor: Processor, prompt: Sequence[int], answer: Observation) -> Violation | None:
    """Return the first that an answer holds of what the processor forbids, None where it holds
    nothing of the kind, or no text that could be looked at."""
    if processor is Processor.GRAMMAR:
        return _misfit(answer)
    tokens = answer.token_ids.astype(np.int64)
    if processor is Processor.BAD_WORDS:
        found = first_completed(tokens, answer.banned_sequences)
        return None if found is None else Violation(
            found[0], f"token {found[0]} completes {list(found[1])}"
        )  # fmt: skip
    places = np.zeros(0, dtype=np.int64)
    if processor is Processor.ALLOWED:
        places = np.flatnonzero(~np.isin(tokens, allowed(prompt)))
    elif processor is Processor.MIN_TOKENS:
        places = np.flatnonzero(np.isin(tokens[:MIN_TOKENS], stops(prompt)))
    if not places.size:
        return None
    place = int(places[0])
    return Violation(place, f"token {place}: {tokens[place]}")


def _misfit(answer: Observation) -> Violation | None:
    text = answer.text
    if text is None:
        return None
    place = misfit(text, ended=answer.finish_reason == "stop")
    if place is None:
        return None
    around = text[max(0, place - LONGEST_LINE) : place], text[place : place + LONGEST_LINE]
    return Violation(place, f"character {place}: after {around[0]!r} comes {around[1]!r}")


@dataclass(frozen=True)
class ProcessedValues:
    """Of each token [n]: a lower bound, in nats, of how far it lies below the best one after
    processing, and the id of the token by which that is known, its own where there is none."""

    regrets: Floats
    rivals: Ints


def processed_values(
    processor: Processor,
    prompt: Sequence[int],
    tokens: Ints,
    score: Score,
    *,
    whole: bool,
    banned: Sequences = (),
) -> ProcessedValues:
    """Value every token of an answer after processing, by its score with the best tokens named.

    `whole` says that presence and frequency count the prompt's tokens too, as some engines do, and
    that a banned sequence may begin there; `banned` are those sequences. Where the
    emitted token's own value cannot be had the bound is 0.
    """
    size = min(tokens.size, score.token_logprobs.size)
    if size == 0:
        return ProcessedValues(np.zeros(0), np.zeros(0, dtype=np.int64))
    ids = np.column_stack([score.top_ids[:size].astype(np.int64), tokens[:size]])
    raw: Floats = np.column_stack([score.top_logprobs[:size], score.token_logprobs[:size]]).astype(
        np.float64
    )
    before = _history_before(processor, prompt, whole=whole)
    gaps = _gaps(
        processor, prompt, ids, raw,
        seen=_counts(ids, before, tokens),
        bars=barred(ids, before, tokens, banned),
        early=np.arange(size) < MIN_TOKENS,
    )  # fmt: skip
    best = gaps.argmax(axis=1)
    places = np.arange(size)
    return ProcessedValues(gaps[places, best], ids[places, best])


def forked_values(
    tokens: Ints, score: Score, other: Observation | None, other_score: Score | None
) -> ProcessedValues:
    """Value an answer's tokens where no mask is known but another answer holds to it: at their
    first fork, see judge.grammar. Without another answer nothing is known."""
    tokens = tokens[: score.token_logprobs.size]
    if other is None or other_score is None:
        return ProcessedValues(np.zeros(tokens.size), tokens)
    others = other.token_ids.astype(np.int64)
    return ProcessedValues(
        *fork_values(tokens, score.token_logprobs, others, other_score.token_logprobs)
    )


def processed_gap(
    processor: Processor,
    prompt: Sequence[int],
    before: Sequence[int],
    rival: tuple[int, float],
    own: tuple[int, float],
    *,
    whole: bool,
    banned: Sequences = (),
) -> float:
    """Return a lower bound of how far `own` lies below `rival` after processing, both a token id
    with its raw logprob, as the token after the generated ones `before`."""
    ids = np.array([[rival[0], own[0]]], dtype=np.int64)
    history = [*_history_before(processor, prompt, whole=whole), *before]
    gaps = _gaps(
        processor, prompt, ids, np.array([[rival[1], own[1]]]),
        seen=np.array([[history.count(token) for token in ids[0].tolist()]], dtype=np.int64),
        bars=np.isin(ids, list(completing(history, banned))),
        early=np.array([len(before) < MIN_TOKENS]),
    )  # fmt: skip
    return float(gaps[0, 0])


def _history_before(processor: Processor, prompt: Sequence[int], *, whole: bool) -> Sequence[int]:
    """Return what counts as seen before the first generated token: engines apply a repetition
    penalty to the prompt always, the others where `whole`."""
    return prompt if whole or processor is Processor.REPETITION else ()


def _gaps(
    processor: Processor,
    prompt: Sequence[int],
    ids: Ints,
    raw: Floats,
    *,
    seen: Ints,
    bars: NDArray[np.bool_],
    early: NDArray[np.bool_],
) -> Floats:
    """Return lower bounds of how far the last of `ids` [n, k] lies below each of them after
    processing [n, k], at most LARGEST_REGRET; `bars` [n, k] are those that would complete a banned
    sequence, `early` [n] places before the least length."""
    unknown = np.isnan(raw[:, -1:])
    raw = np.where(np.isfinite(raw) & (ids >= 0), raw, -LARGEST_REGRET)
    if processor is Processor.PENALTIES:
        gaps = _below(raw - PRESENCE * (seen > 0) - FREQUENCY * seen)
    elif processor is Processor.REPETITION:
        gaps = _repetition_gaps(raw, seen > 0)
    elif processor is Processor.GRAMMAR:
        gaps = _below(raw)
    elif processor is Processor.ALLOWED:
        gaps = _below(np.where(np.isin(ids, allowed(prompt)), raw, -np.inf))
    elif processor is Processor.BAD_WORDS:
        gaps = _below(np.where(bars, -np.inf, raw))
    else:
        # Before the least length engines mask end tokens of their own besides, which are not known.
        gaps = np.where(early[:, None], 0.0, _below(raw))
    return np.where(unknown, 0.0, np.minimum(gaps, LARGEST_REGRET))


def _below(values: Floats) -> Floats:
    """Return how far the last column lies below each; 0 where it is forbidden itself, which is a
    violation and no matter of size."""
    own = values[:, -1:]
    known = np.isfinite(own)
    return np.where(known, values - np.where(known, own, 0.0), 0.0)


def _repetition_gaps(raw: Floats, seen: NDArray[np.bool_]) -> Floats:
    """Return lower bounds without the normaliser: a seen token's logit is divided by the penalty,
    or multiplied where it is negative, so that it only falls. Tokens not seen keep their gaps, two
    seen ones keep at least the gap over the penalty, and a seen one lies below one not seen by no
    less than before."""
    own, own_seen = raw[:, -1:], seen[:, -1:]
    gaps = raw - own
    alike = np.where(seen, gaps / REPETITION, gaps)
    return np.where(seen == own_seen, alike, np.where(own_seen, gaps, -np.inf))


def _counts(ids: Ints, before: Sequence[int], tokens: Ints) -> Ints:
    """Return how often each of `ids` [n, k] stands in `before` and the tokens before its place."""
    counts = np.zeros(ids.shape, dtype=np.int64)
    known: Counter[int] = Counter(before)
    for place, row in enumerate(ids.tolist()):
        counts[place] = [known[token] for token in row]
        known[int(tokens[place])] += 1
    return counts
