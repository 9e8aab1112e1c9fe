"""Tokens whose regret is beyond the ceiling, and what re-scoring says about them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

import numpy as np

from matrixrun.evidence.cells import Cell, Speculation
from matrixrun.evidence.requests import Evaluation, Score, ScoreRequest
from matrixrun.judge.case import LARGEST_REGRET, Answers, Case, Ints
from matrixrun.judge.ceiling import Ceiling

RESCORED = (Evaluation.DECODE, Evaluation.EXTEND)


class State(StrEnum):
    """What is known about a suspicion."""

    EXPLAINED = "explained"
    UNEXPLAINED = "unexplained"
    ASKED = "asked"
    UNSETTLED = "unsettled"


@dataclass(frozen=True)
class Suspicion:
    """An emitted token whose prefill regret exceeds the ceiling. `index` is the request's place in
    the case, `regret` the prefill's, `evaluations` every regret that is known, in nats; `wants`
    are the re-scorings that could settle it."""

    arm: str
    index: int
    request: str
    position: int
    token: int
    regret: float
    evaluations: dict[str, float]
    state: State
    wants: tuple[ScoreRequest, ...] = ()


@dataclass(frozen=True)
class Suspected:
    """The suspicions against one arm: the worst ones, and the number of those past the cap."""

    named: tuple[Suspicion, ...]
    uncounted: int

    @property
    def unexplained(self) -> tuple[Suspicion, ...]:
        """Those that every evaluation confirms."""
        return tuple(one for one in self.named if one.state is State.UNEXPLAINED)

    @property
    def waiting(self) -> tuple[Suspicion, ...]:
        """Those that nothing has settled yet."""
        return tuple(one for one in self.named if one.state in (State.ASKED, State.UNSETTLED))

    @property
    def wants(self) -> tuple[ScoreRequest, ...]:
        """The re-scorings that could settle them."""
        return tuple(want for one in self.named for want in one.wants)


def suspicions(case: Case, ceiling: Ceiling, arm: str, *, most: int) -> Suspected:
    """Return the suspicions against one arm (`on`, `off` or `null`), the worst of each request
    first; those past the first `most` are only counted.

    A token that an off arm emitted itself after the same prefix is explained by that arm's own
    decoding and raises none, and so is one that the off arm's own top logprobs put within the
    ceiling of its best. The off arm's own tokens get no such pardon: they are the baseline.
    """
    answers: Answers = getattr(case, arm)
    shared = _shared(case, arm)
    beyond = np.flatnonzero(answers.regrets > ceiling.value)
    owner, position = answers.owner[beyond], answers.position[beyond]
    first = (position == shared[owner]) & (arm != "off")
    pardoned = [_pardoned(case, ceiling, arm, answers, place) for place in beyond[first].tolist()]
    kept = position >= shared[owner]
    kept[first] = ~np.array(pardoned, dtype=bool)
    places = _spread(answers, beyond[kept])
    named = tuple(
        _settle(case, ceiling, _suspicion(case, arm, answers, place), answers)
        for place in places[:most].tolist()
    )
    return Suspected(named, max(0, places.size - most))


def _suspicion(case: Case, arm: str, answers: Answers, place: int) -> Suspicion:
    index, regret = int(answers.owner[place]), float(answers.regrets[place])
    return Suspicion(
        arm=arm,
        index=index,
        request=case.requests[index],
        position=int(answers.position[place]),
        token=int(answers.token_ids[place]),
        regret=regret,
        evaluations={Evaluation.PREFILL.value: regret},
        state=State.UNSETTLED,
    )


def want_id(arm: str, request: str, position: int, evaluation: Evaluation) -> str:
    """Return the id under which a re-scoring is asked for and answered."""
    return f"{arm}.{request}.{position}.{evaluation.value}"


def _shared(case: Case, arm: str) -> Ints:
    """Return for each request how many first tokens another off arm emitted likewise [requests]."""
    if arm == "off":
        return np.zeros(len(case.requests), dtype=np.int64)
    forks, answers = (case.forks, case.on) if arm == "on" else (case.null_forks, case.null)
    shared = np.where(forks < 0, answers.lengths, forks)
    if arm == "null":
        return shared
    # Only where both left off at one place can on still agree with the control.
    for index in np.flatnonzero((case.forks >= 0) & (case.forks == case.null_forks)).tolist():
        mine = case.on.part(case.on.token_ids, index)
        theirs = case.null.part(case.null.token_ids, index)
        reach = min(mine.size, theirs.size)
        differ = mine[:reach] != theirs[:reach]
        shared[index] = int(differ.argmax()) if differ.any() else reach
    return shared


def _spread(answers: Answers, places: Ints) -> Ints:
    """Return `places` with each request's worst first, then each one's second, and so on."""
    worst = places[np.lexsort((places, -answers.regrets[places]))]
    by_request = worst[np.argsort(answers.owner[worst], kind="stable")]
    owner = answers.owner[by_request]
    starts = np.flatnonzero(np.concatenate([[True], owner[1:] != owner[:-1]]))
    rank = np.arange(owner.size) - np.repeat(starts, np.diff([*starts, owner.size]))
    return by_request[np.lexsort((by_request, -answers.regrets[by_request], rank))]


def _pardoned(case: Case, ceiling: Ceiling, arm: str, answers: Answers, place: int) -> bool:
    """Return whether an off arm's own decoding of the same prefix, as far as it returned top
    logprobs, puts the token within the ceiling of its best."""
    index, position = int(answers.owner[place]), int(answers.position[place])
    token = int(answers.token_ids[place])
    prefix = answers.part(answers.token_ids, index)[:position]
    for other in (case.off, case.null) if arm == "on" else (case.off,):
        theirs = other.part(other.token_ids, index)[:position]
        if not np.array_equal(prefix, theirs):
            continue
        gap = top_gap(other, index, position, token)
        if gap is not None and gap <= ceiling.value:
            return True
    return False


def top_gap(answers: Answers, index: int, position: int, token: int) -> float | None:
    """Return best - token in nats among an answer's own top logprobs, None if not shown."""
    answer = answers.observations[index]
    if answer.top_ids.ndim != 2 or position >= answer.top_ids.shape[0]:
        return None
    places = np.flatnonzero(answer.top_ids[position] == token)
    if places.size == 0:
        return None
    row = answer.top_logprobs[position]
    gap = float(row[0]) - float(row[places[0]])
    return gap if np.isfinite(gap) else None


def _settle(case: Case, ceiling: Ceiling, suspicion: Suspicion, answers: Answers) -> Suspicion:
    """Return the suspicion with what re-scoring said, or with what must be asked."""
    prompt = case.prompt_tokens(suspicion.request)
    prefix = answers.part(answers.token_ids, suspicion.index)[: suspicion.position + 1]
    known, failed, wants = dict(suspicion.evaluations), [], []
    for evaluation in RESCORED:
        name = want_id(suspicion.arm, suspicion.request, suspicion.position, evaluation)
        score = case.confirmations.get(name)
        regret = None if score is None else _regret(score, ceiling)
        if regret is not None:
            known[evaluation.value] = regret
        elif score is not None or prompt is None:
            failed.append(evaluation)
        else:
            tokens = (*prompt, *prefix.tolist())
            wants.append(
                ScoreRequest(
                    id=name,
                    token_ids=tokens,
                    start=len(tokens) - 1,
                    evaluation=evaluation,
                    rows=verified_rows(case.cell) if evaluation is Evaluation.EXTEND else 0,
                )
            )
    if min(known.values()) <= ceiling.value:
        state, wants = State.EXPLAINED, []
    elif wants:
        state = State.ASKED
    else:
        state = settled_state(ceiling, min(known.values()), failed)
    return replace(suspicion, evaluations=known, state=state, wants=tuple(wants))


def verified_rows(cell: Cell) -> int:
    """Return the rows of the cell's verification steps: the draft's and one more; 0 if unknown."""
    speculation = cell.axes.get("speculation")
    if isinstance(speculation, Speculation) and speculation.num_speculative_tokens is not None:
        return speculation.num_speculative_tokens + 1
    return 0


def settled_state(ceiling: Ceiling, least: float, failed: Sequence[Evaluation]) -> State:
    """Return what is said of a token that every evaluation obtained leaves beyond the ceiling.

    Where a server cannot extend a cached prefix, prefill and decoding suffice for a regret beyond
    the band, which no width of rows has been seen to bring about.
    """
    beyond_widths = list(failed) == [Evaluation.EXTEND] and least > max(ceiling.band, ceiling.value)
    settled = ceiling.trusted and (not failed or beyond_widths)
    return State.UNEXPLAINED if settled else State.UNSETTLED


def _regret(score: Score, ceiling: Ceiling) -> float | None:
    """Return the regret in nats that a re-scoring found, None where it settles nothing.

    A bounded score only knows that the regret is no smaller: it confirms one beyond the ceiling
    and explains none within.
    """
    if score.error is not None or not score.regret.size or np.isnan(score.regret[-1]):
        return None
    regret = min(float(score.regret[-1]), LARGEST_REGRET)
    return None if score.bounded and regret <= ceiling.value else regret
