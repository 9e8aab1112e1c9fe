"""Samples of the simulator's target, drawn by speculative sampling that can be wrong in one way."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import msgspec
import numpy as np
from scipy import special

from matrixrun.evidence.requests import Evaluation, Observation, Sampling, Score
from matrixrun.judge import CellObservations, ProbeObserved, Setting, drawn_with

from .simulator import VOCABULARY, Arm, Pair, Target, outcome, simulate

TOP = 20
PROMPT = 4
TARGET = Target(spread=1.5)


def right(random: np.random.Generator, law: np.ndarray, draft: int) -> int:
    """The residual of a greedy draft: the law without the draft token."""
    rest = law.copy()
    rest[draft] = 0.0
    return int(random.choice(law.size, p=rest / rest.sum()))


def unreduced(random: np.random.Generator, law: np.ndarray, draft: int) -> int:
    """Wrong: the draft token stays in."""
    return int(random.choice(law.size, p=law))


def greedy(random: np.random.Generator, law: np.ndarray, draft: int) -> int:
    """Wrong: the best token that is left."""
    rest = law.copy()
    rest[draft] = 0.0
    return int(rest.argmax())


@dataclass(frozen=True)
class Sampler:
    """How an arm samples: `residual` after a rejection, `leak` added to the chance that a draft is
    taken, `let_through` the share of drafts taken whatever the target says, `drafts` tokens a step
    (0: none), `noise` of its logits, `shared` the share of answers that repeat the noise of the
    sample before, `unreached` the fields of a request that do not reach draft positions, `stuck`
    whether drafts are accepted by the same numbers in every step."""

    seed: int
    residual: Callable[[np.random.Generator, np.ndarray, int], int] = right
    leak: float = 0.0
    let_through: float = 0.0
    drafts: int = 3
    noise: float = 0.0
    shared: float = 0.0
    unreached: tuple[str, ...] = ()
    stuck: bool = False


def under(law: np.ndarray, sampling: Sampling) -> np.ndarray:
    """Return a law over the whole vocabulary after temperature, top-k and top-p, in that order."""
    if (sampling.temperature, sampling.top_k, sampling.top_p) == (1.0, 0, 1.0):
        return law
    law = law ** (1.0 / sampling.temperature)
    order = np.argsort(-law)
    if sampling.top_k:
        law[order[sampling.top_k :]] = 0.0
    law = law / law.sum()
    before = np.cumsum(law[order]) - law[order]
    law[order[before >= sampling.top_p]] = 0.0
    return np.asarray(law / law.sum())


def _law(prompt: int, position: int, last: int, noise: float = 0.0, seed: int = 0) -> np.ndarray:
    logits = TARGET.logits(np.array([prompt]), position, np.array([last]))[0]
    if noise:
        key = [seed, prompt, position, last]
        logits = logits + noise * np.random.default_rng(key).standard_normal(logits.size)
    return np.asarray(special.softmax(logits))


def _draft(law: np.ndarray, prompt: int, position: int) -> int:
    """The best token, or now and then the third: a drafter that is not the target."""
    order = np.argsort(-law)
    return int(order[2] if (prompt + position) % 4 == 0 else order[0])


def sample(
    sampler: Sampler, random: np.random.Generator, prompt: int, tokens: int, sampling: Sampling
) -> tuple:
    """Return token ids, accepted and drafted tokens of one answer."""
    ids: list[int] = []
    accepted: list[int] = []
    default = Sampling()
    reached = {name: getattr(default, name) for name in sampler.unreached if name != "temperature"}
    reached |= {"temperature": 1.0} if "temperature" in sampler.unreached else {}
    at_drafts = msgspec.structs.replace(sampling, **reached)
    numbers = random.random(sampler.drafts)

    def law(by: Sampling) -> np.ndarray:
        last = ids[-1] if ids else PROMPT
        return under(_law(prompt, len(ids), last, sampler.noise, sampler.seed), by)

    while len(ids) < tokens:
        if not ids or not sampler.drafts:
            ids.append(int(random.choice(VOCABULARY, p=law(sampling))))
            continue
        taken = 0
        while True:
            if taken == sampler.drafts:
                ids.append(int(random.choice(VOCABULARY, p=law(sampling))))
                break
            own = law(at_drafts)
            draft = _draft(own, prompt, len(ids))
            chance = own[draft] + sampler.leak + sampler.let_through * (1.0 - own[draft])
            if (numbers[taken] if sampler.stuck else random.random()) < chance:
                ids.append(draft)
                taken += 1
                continue
            ids.append(sampler.residual(random, own, draft))
            break
        accepted.append(taken)
    drafted = np.full(len(accepted), sampler.drafts, dtype=np.int32)
    return np.array(ids[:tokens], np.int32), np.array(accepted, np.int32), drafted


def answers(
    sampler: Sampler, prompts: int, samples: int, tokens: int, cut: int
) -> tuple[Observation, ...]:
    """Return an arm's samples in the order sent; of the first `cut` prompts also two with each
    setting."""
    made = []
    coins = np.random.default_rng([sampler.seed, 99])
    for prompt in range(prompts):
        numbers = dict.fromkeys(Setting, 2 if prompt < cut else 0) | {Setting.WHOLE: samples}
        for place, (setting, count) in enumerate(numbers.items()):
            key = [sampler.seed, prompt, 0, place]
            for number in range(count):
                if number == 0 or coins.random() >= sampler.shared:
                    key = [sampler.seed, prompt, number, place]
                random = np.random.default_rng(key)
                drawn = sample(sampler, random, prompt, tokens, drawn_with(setting, None))
                made.append(
                    Observation(
                        request=f"sampling.p{prompt}.{setting}{number}", prompt=f"p{prompt}",
                        category="natural", token_ids=drawn[0], accepted=drawn[1], drafted=drawn[2],
                    )
                )  # fmt: skip
    first = [one for one in made if one.request.endswith(f".{Setting.WHOLE}0")]
    again = [replace(one, request=f"{one.request}.again") for one in first]
    return (*made, *again)


def scores(observations: tuple[Observation, ...], noise: float = 0.0) -> tuple[Score, ...]:
    """Return what A scores."""
    return tuple(_score(one, noise) for one in observations)


def _score(one: Observation, noise: float) -> Score:
    prompt, tokens = int(one.prompt[1:]), one.token_ids.tolist()
    before = [PROMPT, *tokens[:-1]]
    laws = np.array(
        [_law(prompt, place, last, noise, 4) for place, last in enumerate(before)]
    ).reshape(-1, VOCABULARY)
    order = np.argsort(-laws, axis=1)[:, :TOP]
    rows = np.arange(len(tokens))
    logs = np.log(laws)
    return Score(
        request=one.request,
        evaluation=Evaluation.PREFILL,
        start=PROMPT,
        token_logprobs=logs[rows, one.token_ids].astype(np.float32),
        best_logprobs=logs[rows, order[:, 0]].astype(np.float32),
        best_ids=order[:, 0].astype(np.int32),
        top_ids=order.astype(np.int32),
        top_logprobs=np.take_along_axis(logs, order, axis=1).astype(np.float32),
    )


def observed(
    on: Sampler,
    *,
    prompts: int = 16,
    samples: int = 4,
    tokens: int = 24,
    noise: float = 0.0,
    cut: int = 0,
) -> ProbeObserved:
    """Return what the probe saw of an arm and of two off arms."""
    arms = {
        "on": on,
        "off": Sampler(seed=2, drafts=0, noise=on.noise),
        "null": Sampler(seed=3, drafts=0, noise=on.noise),
    }
    seen = {name: answers(arm, prompts, samples, tokens, cut) for name, arm in arms.items()}
    return ProbeObserved(
        kind="sampling",
        compared=False,
        observations=seen,
        scores={name: scores(many, noise) for name, many in seen.items()},
        records={},
    )


CELL = simulate(Pair(on=Arm(accept=0.7, seed=1)))


def cell(seen: ProbeObserved, facts: Mapping[str, object] | None = None) -> CellObservations:
    """Return a healthy cell with what the probe saw; its on launch reports `facts` of itself."""
    ends = {**CELL.evidence.outcomes, "on": outcome("on", facts=facts or {})}
    return replace(
        CELL, probes=(seen,), evidence=msgspec.structs.replace(CELL.evidence, outcomes=ends)
    )
