"""What degenerate answers look like: loops, empty answers, answers past their end."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from matrixrun.judge.case import Answers

# Public reports: runs of one id (vllm#53180), periods up to 16 repeated 8 times and more
# (vllm-ascend#14686), empty answers that finish with `stop` (vllm#45060).
LONGEST_PERIOD = 16
LEAST_REPEATS = 8
# A stop token is recognised by ending answers to so many requests and standing inside none.
LEAST_STOPS = 2
# The turns of the probe `conversation` that are to end at a stop string.
TURNS, BY_STRING = "conversation.", "string"
MOST_UNDEFINED = 0.9

Flags = NDArray[np.bool_]


def cycling(answers: Answers, *, longest_period: int = LONGEST_PERIOD) -> Flags:
    """Return whether each answer [requests] repeats a cycle of at most `longest_period` tokens
    at least 8 times in a row."""
    found = np.zeros(answers.lengths.size, dtype=bool)
    tokens, owner = answers.token_ids, answers.owner
    for period in range(1, longest_period + 1):
        if tokens.size < period * LEAST_REPEATS:
            break
        same = (tokens[period:] == tokens[:-period]) & (owner[period:] == owner[:-period])
        breaks = np.flatnonzero(np.concatenate([[True], ~same, [True]]))
        long_runs = np.flatnonzero(np.diff(breaks) - 1 >= period * (LEAST_REPEATS - 1))
        found[owner[breaks[long_runs]]] = True
    return found


def empty(answers: Answers) -> Flags:
    """Return whether each answer [requests] has no token though the request did not fail."""
    result: Flags = (answers.lengths == 0) & ~answers.failed
    return result


def undefined(answers: Answers) -> Flags:
    """Return whether each answer [requests] holds a NaN among logprobs that are given elsewhere.

    An arm that gives none, or leaves one out in most answers, has no NaN: it has no logprobs there.
    Nor has a token whose top logprobs are left out as well: some engines give none for accepted
    draft tokens. A NaN that was given has its token ids beside it.
    """
    missing = np.isnan(answers.logprobs) & _shown(answers)
    flags: Flags = np.bincount(answers.owner, weights=missing, minlength=answers.lengths.size) > 0
    return flags & (flags.mean() <= MOST_UNDEFINED) if flags.size else flags


def _shown(answers: Answers) -> Flags:
    """Return whether the engine gave top logprobs at each token [N], of whatever value; true for
    answers that none were asked for."""
    flags: Flags = np.ones(answers.token_ids.size, dtype=bool)
    for index, answer in enumerate(answers.observations):
        if answer.top_ids.ndim == 2 and answer.top_ids.size and answer.token_ids.size:
            given = (answer.top_ids[: answer.token_ids.size] >= 0).max(axis=1)
            start = int(answers.offsets[index])
            flags[start : start + given.size] = given
    return flags


def finished_by(answers: Answers, reason: str) -> Flags:
    """Return whether each answer's finish reason is `reason` [requests]."""
    return np.array([one.finish_reason == reason for one in answers.observations], dtype=bool)


def inner_tokens(*arms: Answers) -> frozenset[int]:
    """Return the tokens that stand in an answer of these arms before its last."""
    found: set[int] = set()
    for answers in arms:
        inner = answers.position < answers.lengths[answers.owner] - 1
        found.update(np.unique(answers.token_ids[inner]).tolist())
    return frozenset(found)


def stop_tokens(*arms: Answers) -> frozenset[int]:
    """Return the tokens that end answers to several requests of these arms and stand inside none:
    the stop tokens, where the engine returns them. Whatever token a stop string ends on is none."""
    ends: dict[int, set[str]] = {}
    inside = inner_tokens(*arms)
    for answers in arms:
        stopped = finished_by(answers, "stop") & (answers.lengths > 0) & ~at_strings(answers)
        for index in np.flatnonzero(stopped).tolist():
            token = int(answers.token_ids[answers.offsets[index + 1] - 1])
            ends.setdefault(token, set()).add(answers.observations[index].request)
    return frozenset(
        token
        for token, requests in ends.items()
        if len(requests) >= LEAST_STOPS and token not in inside
    )


def at_strings(answers: Answers) -> Flags:
    """Return whether each answer was to end at a stop string [requests]: turns of a conversation
    whose category says so, which ignore the model's own end."""
    return np.array(
        [
            one.category == BY_STRING and one.request.startswith(TURNS)
            for one in answers.observations
        ],
        dtype=bool,
    )
