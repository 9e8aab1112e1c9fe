"""What launch A scores, and where each score is found.

Every emitted text is valued by the off arm in one prefill. Texts that are the same token by token
have the same score, so each is scored once, whichever launch emitted it first; with healthy
speculation that is nearly all of them.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

import numpy as np

from matrixrun.evidence.requests import (
    Evaluation,
    Observation,
    Pass,
    Score,
    ScoreRequest,
    banned_by,
)
from matrixrun.probes.protocol import Source, salt
from matrixrun.workloads import Workload

# One text at a time: the composition of a batch would otherwise depend on timing, and a score on
# the composition.
SCORING_CONCURRENCY = 1
# What vLLM returns at most by default; beyond it hardly any probability is left.
TOPS = 20


@dataclasses.dataclass(frozen=True, kw_only=True)
class Emitted:
    """The observations of one pass of one launch; `top` best tokens are wanted in their scores."""

    launch: str
    pass_id: str
    observations: Sequence[Observation]
    top: int = 1


@dataclasses.dataclass(frozen=True, kw_only=True)
class Scoring:
    """`passes` to send to launch A; `places` maps launch, pass and request to the pass and the
    request whose score is theirs."""

    passes: tuple[Pass, ...]
    places: Mapping[tuple[str, str, str], tuple[str, str]]

    def lookup(self, source: Source, request: str) -> tuple[str, str] | None:
        """Return scoring pass and score request that value `request` of `source`.

        None when it emitted nothing that could be scored.
        """
        return self.places.get((source.launch, source.pass_id, request))

    def assemble(
        self,
        source: Source,
        observations: Sequence[Observation],
        scores: Mapping[str, Sequence[Score]],
    ) -> list[Score]:
        """Return the scores of `observations`, in their order, under their own request ids.

        Args:
            source: the launch and pass that gave the observations.
            observations: what was observed; those without tokens have no score and are left out.
            scores: what each scoring pass gave, by pass id. Missing ones are left out.
        """
        given = {(name, score.request): score for name, many in scores.items() for score in many}
        found = []
        for observation in observations:
            place = self.lookup(source, observation.request)
            score = None if place is None else given.get(place)
            if score is not None:
                found.append(dataclasses.replace(score, request=observation.request))
        return found


def score_passes(scorer: str, emitted: Sequence[Emitted], workload: Workload) -> Scoring:
    """Return what launch `scorer` is to score of all that was emitted in its group.

    A score request's id is the request's; its pass is `score.<launch id>.<pass id>`. The scorer's
    own passes come first, then the others by name, so that the result does not depend on timing.

    Args:
        scorer: the id of launch A.
        emitted: the observations of A's own passes and of the launches it serves.
        workload: the prompts that were sent, where an observation does not hold its own.
    """
    prompts = {prompt.id: prompt.token_ids for prompt in workload.prompts}
    ordered = sorted(emitted, key=lambda e: (e.launch != scorer, e.launch, e.pass_id))
    known: dict[tuple[tuple[int, ...], bytes, int], tuple[str, str]] = {}
    places: dict[tuple[str, str, str], tuple[str, str]] = {}
    passes = []
    for one in ordered:
        pass_id = f"score.{one.launch}.{one.pass_id}"
        requests = []
        for observation in sorted(one.observations, key=lambda o: o.request):
            if len(observation.token_ids) == 0:
                continue
            prompt = prompt_of(observation, prompts)
            text = (prompt, observation.token_ids.tobytes(), one.top)
            if text not in known:
                known[text] = (pass_id, observation.request)
                requests.append(_request(observation, prompt, one.top))
            places[one.launch, one.pass_id, observation.request] = known[text]
        if requests:
            passes.append(_pass(scorer, pass_id, requests))
    return Scoring(passes=tuple(passes), places=places)


def with_prompts(
    pass_: Pass, observations: Sequence[Observation], workload: Workload
) -> tuple[Observation, ...]:
    """Return the observations of a pass, each with the prompt that was sent where that is not the
    workload's prompt of its name, and with what it was forbidden to say."""
    prompts = {prompt.id: prompt.token_ids for prompt in workload.prompts}
    own = {
        request.id: np.asarray(request.token_ids, np.int32)
        for request in pass_.requests
        if prompts.get(request.prompt) != request.token_ids
    }
    banned = {
        request.id: banned_by(request.sampling)
        for request in pass_.requests
        if request.sampling.bad_words
    }
    return tuple(
        dataclasses.replace(
            one,
            sent=own.get(one.request, one.sent),
            banned=banned.get(one.request, one.banned),
        )
        if one.request in own or one.request in banned
        else one
        for one in observations
    )


def prompt_of(observation: Observation, prompts: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    """Return the prompt that was answered: the observation's own, else that of its name."""
    if observation.sent.size:
        return tuple(observation.sent.tolist())
    return prompts[observation.prompt]


def _request(observation: Observation, prompt: tuple[int, ...], top: int) -> ScoreRequest:
    return ScoreRequest(
        id=observation.request,
        token_ids=prompt + tuple(observation.token_ids.tolist()),
        start=len(prompt),
        evaluation=Evaluation.PREFILL,
        top=top,
    )


def _pass(scorer: str, pass_id: str, scores: list[ScoreRequest]) -> Pass:
    return Pass(
        id=pass_id,
        scores=tuple(scores),
        concurrency=SCORING_CONCURRENCY,
        salt=salt(Source(scorer, pass_id)),
    )
