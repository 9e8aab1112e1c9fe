"""Sampled answers of one arm, laid out for the tests above temperature 0."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from matrixrun.evidence.requests import IntArray, Observation, Score
from matrixrun.judge.betting import Draws
from matrixrun.judge.case import Floats, Ints
from matrixrun.judge.laws import LEAST_PROBABILITY, Flags, Law, Setting, law_under, outcome_of

AGAIN = ".again"
SGLANG_CHAINS = ("EAGLE", "EAGLE3", "STANDALONE", "NEXTN")


@dataclass(frozen=True)
class Sampled:
    """One arm's answers that were valued throughout, in the order sent: `answers` and their
    `scores`; `unvalued` counts the others, `drafted` and `rejected` what its steps did."""

    answers: tuple[Observation, ...]
    scores: tuple[Score, ...]
    unvalued: int
    drafted: int
    rejected: int

    def draws(self) -> Draws | None:
        """Return every token after each answer's first, which no draft precedes, whose law is
        known; None where there are none. Answers to a seed sent again are left out: they are no
        new draws."""
        found = [
            _draws(place, answer, score)
            for place, (answer, score) in enumerate(zip(self.answers, self.scores, strict=True))
            if not answer.request.endswith(AGAIN)
        ]
        parts = [one for one in found if one is not None]
        if not parts:
            return None
        width = min(part.top.shape[1] for part in parts)
        parts = [part.narrowed(width) for part in parts]
        names = Draws.__dataclass_fields__
        whole = Draws(*(np.concatenate([getattr(part, name) for part in parts]) for name in names))
        return whole.where(whole.position > 0)

    def pairs(self) -> Floats:
        """Return for successive samples of a prompt with the same setting whether they agree, and
        the probability of the first one's token, up to the token where they part [M, 2]."""
        rows: list[Floats] = [np.zeros((0, 2))]
        before: tuple[Observation, Score] | None = None
        for answer, score in zip(self.answers, self.scores, strict=True):
            if answer.request.endswith(AGAIN):
                continue
            if before is not None and _kind(before[0]) == _kind(answer):
                rows.append(_shared(before[0].token_ids, _chances(*before), answer.token_ids))
            before = (answer, score)
        return np.concatenate(rows)

    def surprise(self, names: Sequence[str]) -> Floats:
        """Return the mean logprob of each prompt's tokens [prompts], NaN where there are none."""
        found: dict[str, list[Floats]] = {}
        for answer, score in zip(self.answers, self.scores, strict=True):
            found.setdefault(answer.prompt, []).append(score.token_logprobs[1:].astype(np.float64))
        means = [_mean(np.concatenate(found[name])) if name in found else np.nan for name in names]
        return np.array(means, dtype=np.float64)

    def by_prompt(self) -> dict[str, list[Ints]]:
        """Return the distinct samples of each prompt."""
        found: dict[str, list[Ints]] = {}
        for answer in self.answers:
            if not answer.request.endswith(AGAIN):
                found.setdefault(answer.prompt, []).append(answer.token_ids.astype(np.int64))
        return found

    def repeated(self) -> dict[str, bool]:
        """Return by prompt whether a seed sent again gave the same answer."""
        known = {answer.request: answer.token_ids for answer in self.answers}
        return {
            answer.prompt: np.array_equal(answer.token_ids, known[name])
            for answer in self.answers
            for name in [answer.request.removesuffix(AGAIN)]
            if answer.request != name and name in known
        }


def sampled(answers: Sequence[Observation], scores: Sequence[Score]) -> Sampled:
    """Lay out an arm's answers and the scores of them."""
    valued = {score.request: score for score in scores if score.error is None}
    kept = [
        (answer, valued[answer.request])
        for answer in answers
        if answer.error is None
        and answer.request in valued
        and valued[answer.request].token_logprobs.size == answer.token_ids.size > 0
    ]
    drafted = np.concatenate([np.zeros(0, np.int32), *(one.drafted for one, _ in kept)])
    accepted = np.concatenate([np.zeros(0, np.int32), *(one.accepted for one, _ in kept)])
    return Sampled(
        answers=tuple(answer for answer, _ in kept),
        scores=tuple(score for _, score in kept),
        unvalued=len(answers) - len(kept),
        drafted=int(drafted.sum()),
        rejected=int((accepted < drafted).sum()),
    )


def offers_single_tokens(facts: Mapping[str, Any]) -> bool:
    """Return whether a launch reports of itself that its drafts hold one token at each place, not
    drawn from a law that acceptance reckons with: its own probability is then the chance that it
    is taken. False where it is not said.

    vLLM's drafters take their best token unless told otherwise (`config/speculative.py` in 0.32,
    `draft_sample_method`, `rejection_sample_method`); llama.cpp draws the target's token first and
    then looks whether the draft's is the same (`common/sampling.cpp`,
    `common_sampler_sample_and_accept_n`); SGLang's chains of a draft model do as vLLM's unless
    told to draw, or to accept beyond the target's odds.
    """
    engine = facts.get("engine")
    if engine == "vllm":
        return bool(facts.get("speculative_method")) and (
            facts.get("speculative_draft_sample_method", "greedy") == "greedy"
            and facts.get("speculative_rejection_sample_method", "standard") == "standard"
        )
    if engine == "sglang":
        thresholds = ("speculative_accept_threshold_single", "speculative_accept_threshold_acc")
        return (
            facts.get("speculative_algorithm") in SGLANG_CHAINS
            and int(facts.get("speculative_eagle_topk") or 0) == 1
            and not facts.get("speculative_use_rejection_sampling")
            and all(float(facts.get(name, 1.0)) == 1.0 for name in thresholds)
        )
    return engine == "llamacpp"


def setting_of(request: str) -> Setting:
    """Return what cuts the law of a sample, which its id names."""
    return Setting(request.removesuffix(AGAIN).rpartition(".")[2].rstrip("0123456789"))


def _kind(answer: Observation) -> tuple[str, Setting]:
    return answer.prompt, setting_of(answer.request)


def _tops(score: Score) -> tuple[Ints, Floats]:
    """Return the best tokens at each place and their logprobs [N, K]. Of an engine that tells the
    best token alone, the others are one outcome."""
    ids, logprobs = score.top_ids, score.top_logprobs
    if ids.ndim != 2:
        ids, logprobs = score.best_ids[:, None], score.best_logprobs[:, None]
    return ids.astype(np.int64), logprobs.astype(np.float64)


def _drawn(answer: Observation, score: Score) -> tuple[Law, Ints] | None:
    """Return the law of an answer's tokens and the place of each in it [N]; None where what the
    request's settings keep is not known."""
    top, logprobs = _tops(score)
    law = law_under(setting_of(answer.request), logprobs)
    if law is None:
        return None
    outcome = outcome_of(answer.token_ids.astype(np.int64), top)
    column = np.column_stack([law.column, np.full(outcome.size, top.shape[1])])
    return law, column[np.arange(outcome.size), outcome]


def _chances(answer: Observation, score: Score) -> Floats:
    """Return the probability of each token of an answer [N], NaN where it is not known."""
    if setting_of(answer.request) is Setting.WHOLE:
        return np.exp(np.minimum(score.token_logprobs.astype(np.float64), 0.0))
    drawn = _drawn(answer, score)
    if drawn is None:
        return np.full(answer.token_ids.size, np.nan)
    law, outcome = drawn
    return np.where(law.clear, law.odds[np.arange(outcome.size), outcome], np.nan)


def _draws(place: int, answer: Observation, score: Score) -> Draws | None:
    drawn = _drawn(answer, score)
    if drawn is None:
        return None
    law, outcome = drawn
    tokens, (draft, taken, bonus) = answer.token_ids.astype(np.int64), _places(answer)
    whole = Draws(
        token=tokens,
        logprob=np.log(np.maximum(_chances(answer, score), LEAST_PROBABILITY)),
        top=_tops(score)[0],
        law=law.odds,
        uncut=law.uncut,
        cut=np.full(tokens.size, setting_of(answer.request).number),
        outcome=outcome,
        draft=draft,
        taken=taken,
        bonus=bonus,
        owner=np.full(tokens.size, place, dtype=np.int64),
        position=np.arange(tokens.size, dtype=np.int64),
    )
    return whole.where(law.clear)


def _places(answer: Observation) -> tuple[Ints, Flags, Flags]:
    """Return each token's place in its step's draft, -1 where it is not known, whether it is the
    draft's own token, and whether a whole draft had been taken before it. Where some tokens came
    without a step, and engines do not list those, it is not known where the steps lie."""
    size = answer.token_ids.size
    draft = np.full(size, -1, dtype=np.int64)
    taken, bonus = np.zeros(size, dtype=bool), np.zeros(size, dtype=bool)
    emitted = answer.accepted.astype(np.int64) + 1
    known = answer.steps_ordered and emitted.size > 0
    if not known or not emitted[:-1].sum() < size - 1 <= emitted.sum():
        return draft, taken, bonus
    owner = np.repeat(np.arange(emitted.size), emitted)
    place = np.arange(owner.size) - np.repeat(np.cumsum(emitted) - emitted, emitted)
    offered = answer.drafted.astype(np.int64)[owner]
    bonus[1:] = (place == offered)[: size - 1]
    draft[1:] = np.where(place < offered, place, -1)[: size - 1]
    taken[1:] = (place < answer.accepted[owner])[: size - 1]
    return draft, taken, bonus


def _shared(first: IntArray, chances: Floats, second: IntArray) -> Floats:
    size = min(first.size, second.size)
    same = first[:size] == second[:size]
    reach = size if same.all() else int(np.argmin(same)) + 1
    known = np.isfinite(chances[:reach])
    return np.column_stack([same[:reach].astype(np.float64), chances[:reach]])[known]


def _mean(values: Floats) -> float:
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else float("nan")
