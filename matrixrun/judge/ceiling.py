"""The largest regret that two off evaluations of the same prefix can explain.

ceiling = max(floor, learned). The floor is fixed by the arithmetic, before anything is seen. The
learned part is the tail of how far a token's lead over the others moves between two off
evaluations (decoding and prefill), fitted on one half of the prompts and checked on the other. It
is never the largest value seen in a control: that would be beaten by chance half of the time; and
never more than the band, which calls a control too noisy: a tail that far out is extrapolated, and
three evaluations that all put a token beyond the band are no rounding.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from matrixrun.evidence.cells import Cell
from matrixrun.evidence.verdicts import CellEvidence
from matrixrun.judge.case import Answers, Case, Floats
from matrixrun.judge.statistics import Tail, fit_tail, poisson_excess_p_value

# Bits of the significand that are stored; a step at [2^e, 2^(e+1)) is 2^(e - bits).
SIGNIFICAND_BITS = {"bfloat16": 7, "float16": 10, "float32": 23}
DTYPE_NAMES = {"bf16": "bfloat16", "half": "float16", "fp16": "float16", "float": "float32",
               "fp32": "float32"}  # fmt: skip
STEPS = 2.0
# Accumulated rounding of a float32 network is far above two steps of its logits.
LEAST_FLOOR = 1e-3

# Where activations or the KV cache are quantized, a rounding may fall the other way and moves a
# logit by more than the logits' own precision. Nats. fp8: KV keys off by 2.7 % everywhere
# (pegainfer#833), no better source; 8-bit: a correct fork at margin 0.625 (rMLX#544), logits off
# by up to 0.21 (ferrox#108); 4-bit: winning logit moves 0.75 at the 99 % point (mlxcel).
QUANTIZED_FLOORS = {"fp8": 0.5, "8": 0.625, "4": 0.75}
# Weights alone are quantized: both arms hold the same ones, the arithmetic stays its own.
WEIGHT_ONLY = ("awq", "gptq", "w4a16", "w8a16", "marlin", "bitsandbytes", "gguf-dequant")

# Beyond this a control is too noisy to judge against: 8 floors, and never more than the gap that
# public gates call decided (2 nats: ds4, mlxcel).
BAND_FLOORS = 8.0
DECIDED = 2.0

TAIL_SHARE = 0.05
LEAST_EXCESSES = 30
# Expected events of a healthy sweep: one token in a hundred sweeps beyond the ceiling.
FALSE_EVENTS_PER_SWEEP = 0.01
# A lead is measurable where the others hold this much probability: float32 logprobs of a token
# nearer to certainty are rounding noise.
LEAST_REST = 1e-3
MAX_SHAPE = 0.5
# Smaller movements are the rounding of float32 logprobs.
RESOLUTION = 1e-5


@dataclass(frozen=True)
class Ceiling:
    """`value` in nats. `learned`, which counts up to the band only, is None where no tail could be
    fitted; `trusted` is False where the control moves by more than the floor and its tail could not
    be fitted and checked; then nothing above `value` is more than a suspicion. `usual` is the
    movement exceeded at one position in a thousand, `positions` the number of leads compared."""

    value: float
    floor: float
    band: float
    learned: float | None
    trusted: bool
    usual: float
    positions: int
    note: str


def arithmetic_floor(cell: Cell, dtype: str, largest_logit: float) -> float:
    """Return the floor in nats for a cell: two steps of the logits' precision at their size, or
    the table's value where activations or the KV cache are quantized."""
    name = str(dtype).removeprefix("torch.").lower()
    name = DTYPE_NAMES.get(name, name)
    bits = SIGNIFICAND_BITS.get(name, SIGNIFICAND_BITS["bfloat16"])
    exponent = math.ceil(math.log2(largest_logit)) - 1
    floor = max(LEAST_FLOOR, STEPS * 2.0 ** (exponent - bits))
    quantized = (
        quantized_floor(str(cell.axes.get("quantization") or "none")),
        quantized_floor(str(cell.axes.get("kv_cache_dtype") or "none")),
    )
    return max(floor, *quantized)


def quantized_floor(name: str) -> float:
    """Return the table's floor for a quantization's or KV cache type's name, 0 if it adds none."""
    name = name.lower()
    if name in ("none", "auto", "bfloat16", "float16", "float32", "bf16", "f16", "f32"):
        return 0.0
    if any(word in name for word in WEIGHT_ONLY):
        return 0.0
    for digit in ("fp8", "4", "8"):
        if digit in name:
            return QUANTIZED_FLOORS[digit]
    return QUANTIZED_FLOORS["fp8"]


def arithmetic_of(evidence: CellEvidence, default: str) -> str:
    """Return the dtype of a cell's arithmetic: as the engine reports it, else as the axis asks,
    else the sweep's default."""
    reported = evidence.outcomes["A"].facts.get("dtype") if "A" in evidence.outcomes else None
    for name in (reported, evidence.cell.axes.get("dtype")):
        if isinstance(name, str) and name not in ("", "auto"):
            return name
    return default


def log_odds(logprobs: Floats) -> Floats:
    """Return each token's lead over all others together [N], nats; NaN where the others hold too
    little probability for it to be known."""
    values = np.minimum(logprobs, 0.0)
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        rest = -np.expm1(values)
        return np.where(rest > LEAST_REST, values - np.log(rest), np.nan)


def movements(answers: Answers) -> Floats:
    """Return how far each emitted token's lead moved between decoding and prefill [N], nats.

    The lead is the log-odds of the token: its logit less the log-sum-exp of all others, which at a
    near tie is the gap to the runner-up. Where prefill prefers another token, the move of the gap
    between that one and the token is taken if it is larger. NaN where it cannot be measured.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        lead = np.abs(log_odds(answers.logprobs) - log_odds(answers.scored))
        gap = np.abs(answers.regrets - (answers.best - answers.logprobs))
    return np.where(np.isfinite(lead), np.fmax(lead, gap), lead)


def learn_ceiling(case: Case) -> Ceiling:
    """Return a cell's ceiling, from the floor of its arithmetic and its controls' movements."""
    dtype = arithmetic_of(case.observed.evidence, case.settings.dtype)
    floor = arithmetic_floor(case.cell, dtype, case.settings.largest_logit)
    band = min(DECIDED, BAND_FLOORS * floor)
    first, second = _halves(case)
    both = np.concatenate([first, second])
    usual = float(np.quantile(both, 0.999)) if both.size else 0.0
    regrets = np.concatenate([case.off.regrets, case.null.regrets])
    farthest = float(both.max()) if both.size else 0.0
    largest = max((float(np.nanmax(x)) for x in (both, regrets) if np.isfinite(x).any()), default=0)
    tail = fit_tail(first, share=TAIL_SHARE, least=LEAST_EXCESSES)

    def settled(learned: float | None, trusted: bool, note: str) -> Ceiling:
        value = max(floor, min(learned or 0.0, band))
        return Ceiling(value, floor, band, learned, trusted, usual, both.size, note)

    if both.size == 0:
        return settled(None, largest <= floor, "no lead could be compared: the floor alone")
    if farthest <= RESOLUTION:
        return settled(0.0, True, "two off evaluations agree exactly: the floor")
    if tail is None:
        return settled(None, largest <= floor, "too few movements to fit a tail: the floor")
    probability = FALSE_EVENTS_PER_SWEEP / max(1, _scored(case.on) * case.sweep_cells)
    learned = tail.level(probability)
    if tail.shape <= MAX_SHAPE and _holds(tail, second):
        return settled(learned, True, "tail fitted on half of the prompts, checked on the rest")
    other = fit_tail(second, share=TAIL_SHARE, least=LEAST_EXCESSES)
    learned = max(learned, other.level(probability) if other else 0.0)
    return settled(learned, largest <= floor, "the halves of the prompts disagree about the tail")


def _halves(case: Case) -> tuple[Floats, Floats]:
    """Return the movements of both off arms in two halves, divided by prompt."""
    halves: tuple[list[Floats], list[Floats]] = ([], [])
    for answers in (case.off, case.null):
        moved = movements(answers)
        known = np.isfinite(moved)
        odd = (case.prompt_groups[answers.owner] % 2).astype(bool)
        halves[0].append(moved[known & ~odd])
        halves[1].append(moved[known & odd])
    return np.concatenate(halves[0]), np.concatenate(halves[1])


def _holds(tail: Tail, others: Floats) -> bool:
    """Return whether the other half shows no more far movements than the tail foretells.

    Movements of one request go together, so that twice the expected number is allowed for.
    """
    expected = min(10.0, others.size * tail.share)
    if expected < 1.0:
        return False
    level = tail.level(expected / others.size)
    return poisson_excess_p_value(int((others > level).sum()), 2.0 * expected) >= 1e-3


def _scored(answers: Answers) -> int:
    return int(np.isfinite(answers.regrets).sum())
