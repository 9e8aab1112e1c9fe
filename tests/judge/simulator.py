"""A simulator of a target with margins and noise, and of a drafter, for the judge's tests.

Not an engine: a closed form gives the logits of every prefix, so that each arm's tokens, logprobs,
steps and scores follow from it, and a fault can be put in exactly where a test wants it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np
from scipy import special

from matrixrun.evidence.cells import Cell, Speculation
from matrixrun.evidence.launches import LaunchEnd, LaunchOutcome
from matrixrun.evidence.requests import Evaluation, Observation, Score
from matrixrun.evidence.verdicts import CellEvidence, Want
from matrixrun.judge import CellObservations

VOCABULARY = 24
DRAFT_TOKENS = 3
PROMPT_LENGTH = 4
EOS = VOCABULARY - 1
LOOP = 5


@dataclass(frozen=True)
class Target:
    """Logits of a prefix: a peaked, deterministic function of prompt, position and last token.

    `spread` is the scale of the logits; with 4 about one step in ten has a margin below 1 nat.
    `loops` are prompts on which the target itself falls into a loop, as small models do.
    """

    seed: int = 0
    spread: float = 4.0
    loops: tuple[int, ...] = ()

    def logits(self, prompts: np.ndarray, position: int, last: np.ndarray) -> np.ndarray:
        """Return logits [requests, vocabulary] of the next token at `position`."""
        key = prompts * 7919 + position * 104729 + last * 1299709 + self.seed * 15485863
        grid = key[:, None].astype(np.uint64) * np.uint64(0x9E3779B97F4A7C15)
        grid = grid + np.arange(1, VOCABULARY + 1, dtype=np.uint64) * np.uint64(0xBF58476D1CE4E5B9)
        grid ^= grid >> np.uint64(31)
        grid *= np.uint64(0x94D049BB133111EB)
        grid ^= grid >> np.uint64(29)
        uniform = (grid >> np.uint64(11)).astype(np.float64) / 2.0**53
        logits = self.spread * special.ndtri(np.clip(uniform, 1e-12, 1 - 1e-12))
        logits[:, EOS] = -60.0
        if position >= 10:
            logits[np.isin(prompts, self.loops), LOOP] += 40.0
        return logits


@dataclass(frozen=True)
class Arm:
    """How one launch runs. `noise` is the standard deviation of what rounding adds to each logit,
    `let_through` the share of rejecting steps that publish the rejected token, `accept` the
    drafter's acceptance at each position (None: no drafter), `shift` a systematic error of the
    lowered logits that flips nothing by itself."""

    noise: float = 0.0
    seed: int = 0
    let_through: float = 0.0
    accept: float | None = None
    silent: bool = False
    shift: float = 0.0


@dataclass(frozen=True)
class Pair:
    """A cell to simulate: `prompts` requests of `tokens` tokens on three arms and one scorer."""

    prompts: int = 48
    tokens: int = 48
    target: Target = field(default_factory=Target)
    on: Arm = field(default_factory=lambda: Arm(accept=0.7, seed=1))
    off: Arm = field(default_factory=lambda: Arm(seed=2))
    null: Arm = field(default_factory=lambda: Arm(seed=3))
    scorer: Arm = field(default_factory=lambda: Arm(seed=4))

    def noisy(self, noise: float) -> Pair:
        """Return the pair with the same noise in every launch."""
        arms = {name: replace(getattr(self, name), noise=noise) for name in
                ("on", "off", "null", "scorer")}  # fmt: skip
        return replace(self, **arms)

    def seeded(self, seed: int) -> Pair:
        """Return the pair with other prompts and other noise."""
        arms = {
            name: replace(getattr(self, name), seed=100 * seed + number)
            for number, name in enumerate(("on", "off", "null", "scorer"), start=1)
        }
        return replace(self, target=replace(self.target, seed=seed), **arms)


def observe(pair: Pair, arm: Arm, role: str) -> tuple[Observation, ...]:
    """Return what `arm` answers to the pair's prompts."""
    random = np.random.default_rng([arm.seed, 11])
    prompts = np.arange(pair.prompts)
    last = _prompt_ids(pair)[:, -1]
    tokens = np.zeros((pair.prompts, pair.tokens), dtype=np.int32)
    logprobs = np.zeros((pair.prompts, pair.tokens), dtype=np.float32)
    top_ids = np.zeros((pair.prompts, pair.tokens, 2), dtype=np.int32)
    top_logprobs = np.zeros((pair.prompts, pair.tokens, 2), dtype=np.float32)
    accepted, drafted, rejects = _drafts(pair, arm, random)
    for position in range(pair.tokens):
        exact = pair.target.logits(prompts, position, last)
        seen = exact + arm.noise * random.standard_normal(exact.shape)
        seen[:, 0] += arm.shift
        law = special.log_softmax(seen, axis=1)
        order = np.argsort(-law, axis=1, kind="stable")
        chosen = order[:, 0].copy()
        leaks = rejects[:, position] & (random.random(pair.prompts) < arm.let_through)
        wrong = order[prompts, random.integers(1, 5, pair.prompts)]
        chosen = np.where(leaks, wrong, chosen)
        tokens[:, position] = chosen
        logprobs[:, position] = law[prompts, chosen]
        top_ids[:, position] = order[:, :2]
        top_logprobs[:, position] = np.take_along_axis(law, order[:, :2], axis=1)
        last = chosen
    return tuple(
        Observation(
            request=request_id(index),
            prompt=f"p{index:04d}",
            category="natural",
            token_ids=tokens[index],
            logprobs=logprobs[index],
            top_ids=top_ids[index],
            top_logprobs=top_logprobs[index],
            accepted=accepted[index],
            drafted=drafted[index],
            prompt_tokens=PROMPT_LENGTH,
            cached_tokens=0,
            finish_reason="length",
            started=0.0,
            first_token=0.1,
            finished=1.0 if role == "on" else 1.5,
        )
        for index in range(pair.prompts)
    )


def request_id(index: int) -> str:
    return f"r{index:04d}"


def score(pair: Pair, observations: Iterable[Observation], salt: int) -> tuple[Score, ...]:
    """Return the scorer's prefill scores of what an arm emitted."""
    observations = list(observations)
    random = np.random.default_rng([pair.scorer.seed, salt])
    longest = max((one.token_ids.size for one in observations), default=0)
    prompts = np.array([int(one.request[1:]) for one in observations], dtype=np.int64)
    last = np.zeros((prompts.size, longest + 1), dtype=np.int64)
    last[:, 0] = _prompt_ids(pair)[prompts, -1]
    for row, one in enumerate(observations):
        last[row, 1 : one.token_ids.size + 1] = one.token_ids
    laws = np.zeros((prompts.size, longest, VOCABULARY))
    for position in range(longest):
        exact = pair.target.logits(prompts, position, last[:, position])
        noise = pair.scorer.noise * random.standard_normal(exact.shape)
        laws[:, position] = special.log_softmax(exact + noise, axis=1)
    return tuple(_score(one, laws[row]) for row, one in enumerate(observations))


def _score(one: Observation, laws: np.ndarray) -> Score:
    count = one.token_ids.size
    law = laws[:count]
    best, places = law.argmax(-1), np.arange(count)
    return Score(
        request=one.request,
        evaluation=Evaluation.PREFILL,
        start=PROMPT_LENGTH,
        token_logprobs=law[places, one.token_ids].astype(np.float32),
        best_logprobs=law[places, best].astype(np.float32),
        best_ids=best.astype(np.int32),
    )


def answer(pair: Pair, wants: Iterable[Want], salt: int = 77) -> tuple[Score, ...]:
    """Return the scorer's answers to what the judge wants."""
    told: list[Score] = []
    for number, want in enumerate(request for entry in wants for request in entry.scores):
        index = _index_of(pair, want.token_ids)
        emitted = np.array(want.token_ids[PROMPT_LENGTH:], dtype=np.int32)
        one = Observation(request=request_id(index), prompt="", category="", token_ids=emitted)
        (whole,) = score(pair, [one], salt + number)
        told.append(
            replace(
                whole,
                request=want.id,
                evaluation=want.evaluation,
                start=want.start,
                token_logprobs=whole.token_logprobs[-1:],
                best_logprobs=whole.best_logprobs[-1:],
                best_ids=whole.best_ids[-1:],
            )
        )
    return tuple(told)


def simulate(
    pair: Pair, *, cell_id: str = "vllm.small.ngram-k3.b8", **axes: object
) -> CellObservations:
    """Return a cell's observations, scores included."""
    on = observe(pair, pair.on, "on")
    off = observe(pair, pair.off, "off")
    null = observe(pair, pair.null, "null")
    return gathered(pair, on, off, null, cell_id=cell_id, **axes)


def gathered(
    pair: Pair,
    on: tuple[Observation, ...],
    off: tuple[Observation, ...],
    null: tuple[Observation, ...],
    *,
    cell_id: str = "vllm.small.ngram-k3.b8",
    **axes: object,
) -> CellObservations:
    """Return a cell from given answers, scored by the pair's scorer."""
    prompts = _prompt_ids(pair)
    return CellObservations(
        evidence=evidence(cell_id, **axes),
        on=on,
        off=off,
        null=null,
        on_scores=score(pair, on, 21),
        off_scores=score(pair, off, 22),
        null_scores=score(pair, null, 23),
        prompts={request_id(index): tuple(ids.tolist()) for index, ids in enumerate(prompts)},
    )


def evidence(
    cell_id: str = "vllm.small.ngram-k3.b8", *, ends: dict[str, LaunchOutcome] | None = None,
    **axes: object,
) -> CellEvidence:  # fmt: skip
    """Return a cell's evidence whose launches all served, but for those in `ends`."""
    speculation = Speculation(method="ngram", num_speculative_tokens=DRAFT_TOKENS)
    defaults = {"engine": "vllm", "model": "small", "quantization": "none", "dtype": None,
                "kv_cache_dtype": None, "tensor_parallel_size": 1, "prefix_caching": None,
                "speculation": speculation, "batch_size": 8}  # fmt: skip
    outcomes = {role: outcome(role) for role in ("on", "A", "B")} | (ends or {})
    return CellEvidence(
        cell=Cell(id=cell_id, axes={**defaults, **axes}, fingerprint="0" * 16),
        outcomes=outcomes,
        records={},
        workload_sha256="",
        settings_sha256="",
        program="",
    )


def outcome(role: str, end: LaunchEnd = LaunchEnd.SERVED, message: str = "", **fields: object):
    """Return how a launch ended; `fields` are further fields of the outcome."""
    hardware = {"node": f"node-{role}", "cpu": "cpu", "cores": 2, "accelerators": []}
    known = {"hardware": hardware, **fields}
    return LaunchOutcome(launch=f"{role}.vllm", fingerprint="0", end=end, message=message, **known)


def changed(
    observations: tuple[Observation, ...], indices: Iterable[int], **fields: object
) -> tuple[Observation, ...]:
    """Return the observations with `fields` changed in those at `indices`; a callable field is
    applied to the observation."""
    chosen = set(indices)
    return tuple(
        replace(one, **{name: value(one) if callable(value) else value
                        for name, value in fields.items()})
        if index in chosen else one
        for index, one in enumerate(observations)
    )  # fmt: skip


def cut(one: Observation, count: int) -> Observation:
    """Return the observation with its first `count` tokens only."""
    return replace(
        one,
        token_ids=one.token_ids[:count],
        logprobs=one.logprobs[:count],
        top_ids=one.top_ids[:count],
        top_logprobs=one.top_logprobs[:count],
    )


def _prompt_ids(pair: Pair) -> np.ndarray:
    """Prompt token ids [prompts, 4], no two alike."""
    numbers = np.arange(pair.prompts)[:, None] // (VOCABULARY - 1) ** np.arange(PROMPT_LENGTH)
    return (numbers % (VOCABULARY - 1)).astype(np.int32)


def _index_of(pair: Pair, token_ids: tuple[int, ...]) -> int:
    rows = (_prompt_ids(pair) == np.array(token_ids[:PROMPT_LENGTH])).all(axis=1)
    return int(np.flatnonzero(rows)[0])


def _drafts(
    pair: Pair, arm: Arm, random: np.random.Generator
) -> tuple[list[np.ndarray], list[np.ndarray], np.ndarray]:
    """Return accepted and drafted tokens of each request's steps, and where steps rejected
    [prompts, tokens]: the token there is the target's own, in place of the rejected one."""
    rejects = np.zeros((pair.prompts, pair.tokens), dtype=bool)
    accepted: list[np.ndarray] = []
    drafted: list[np.ndarray] = []
    for index in range(pair.prompts):
        steps: list[int] = []
        position = 1
        while position < pair.tokens and arm.accept is not None and not arm.silent:
            misses = np.flatnonzero(random.random(DRAFT_TOKENS) >= arm.accept)
            taken = int(misses[0]) if misses.size else DRAFT_TOKENS
            if taken < DRAFT_TOKENS and position + taken < pair.tokens:
                rejects[index, position + taken] = True
            steps.append(taken)
            position += taken + 1
        accepted.append(np.array(steps, dtype=np.int32))
        drafted.append(np.full(len(steps), DRAFT_TOKENS, dtype=np.int32))
    return accepted, drafted, rejects
