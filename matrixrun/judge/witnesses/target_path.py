"""target path: whether both arms compute the same where nothing is speculated yet.

The first token of an answer comes from the prefill of its prompt: no draft precedes it. If the arms
already differ there, in most prompts and by more than two off evaluations do, the target itself is
another one (weights, quantization, a layer's settings), or something else is done with its logits.
Where they agree, what is wrong later lies in speculation.
"""

from __future__ import annotations

import numpy as np

from matrixrun.evidence.verdicts import Finding, Severity
from matrixrun.judge.case import Answers, Case, Floats
from matrixrun.judge.ceiling import log_odds
from matrixrun.judge.examination import Examination
from matrixrun.judge.testimony import Testimony
from matrixrun.judge.witnesses.drift import broken_contract

KIND = "target-path"
LEAST_PROMPTS = 20
# Of two healthy arms about one position in a million lies beyond the ceiling.
MOST = 0.5


def examine_target_path(examination: Examination) -> Testimony:
    """Return how far first tokens move against the off arm, on and control; a fault where at least
    half of the on arm's move beyond the ceiling and fewer of the control's."""
    case, ceiling = examination.case, examination.ceiling
    if broken_contract(case) is not None:
        return Testimony()
    moved = {arm: _moves(case, answers) for arm, answers in (("on", case.on), ("null", case.null))}
    known = np.isfinite(moved["on"]) & np.isfinite(moved["null"])
    count = int(known.sum())
    if count < LEAST_PROMPTS:
        return Testimony()
    beyond = {arm: int((moves[known] > ceiling.value).sum()) for arm, moves in moved.items()}
    metrics = {f"target/first_tokens_moved.{arm}": many / count for arm, many in beyond.items()}
    metrics["target/largest_move.on"] = float(moved["on"][known].max())
    if beyond["on"] < MOST * count or beyond["null"] >= MOST * count:
        return Testimony(metrics=metrics)
    middle = float(np.median(moved["on"][known]))
    text = (
        f"the arms differ before anything is speculated: first tokens, which no draft precedes, "
        f"move by more than the ceiling of {ceiling.value:.3g} nats in {beyond['on']} of {count} "
        f"answers (median {middle:.3g}), the control's in {beyond['null']}; the target is another "
        f"one, or its logits are treated otherwise"
    )
    numbers = {"answers": count, "on": beyond["on"], "null": beyond["null"], "median": middle}
    finding = Finding(kind=KIND, severity=Severity.FAULT, text=text, numbers=numbers)
    return Testimony((finding,), metrics=metrics)


def _moves(case: Case, arm: Answers) -> Floats:
    """Return how far each first token's lead lies from the off arm's [requests], in nats: of
    another token, what A's prefill says it costs. NaN where it cannot be told, or where a part of
    the prompt came from a cache."""
    moves = np.full(len(case.requests), np.nan)
    for index in np.flatnonzero(case.comparable).tolist():
        own, other = arm.observations[index], case.off.observations[index]
        if own.cached_tokens or other.cached_tokens:
            continue
        if not (own.token_ids.size and other.token_ids.size):
            continue
        if own.token_ids[0] == other.token_ids[0]:
            leads = log_odds(np.array([own.logprobs[0], other.logprobs[0]], dtype=np.float64))
            moves[index] = abs(leads[0] - leads[1])
        else:
            moves[index] = arm.regrets[arm.offsets[index]]
    return moves
