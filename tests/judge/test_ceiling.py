"""The ceiling: a floor that the arithmetic fixes, a tail that the controls teach."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from matrixrun.evidence.cells import Cell
from matrixrun.judge import JudgeSettings
from matrixrun.judge.case import build_case
from matrixrun.judge.ceiling import (
    arithmetic_floor,
    arithmetic_of,
    learn_ceiling,
    movements,
    quantized_floor,
)

from .simulator import Arm, Pair, evidence, outcome, simulate


def cell(**axes) -> Cell:
    return Cell(id="c", axes={"quantization": "none", **axes}, fingerprint="")


def ceiling_of(pair: Pair, dtype: str = "bfloat16", cells: int = 1):
    settings = JudgeSettings(dtype=dtype)
    return learn_ceiling(build_case(simulate(pair), settings, cells))


@pytest.mark.parametrize(
    ("dtype", "largest_logit", "floor"),
    [
        ("bfloat16", 32.0, 0.25),
        ("torch.bfloat16", 64.0, 0.5),
        ("float16", 32.0, 0.03125),
        ("half", 16.0, 0.015625),
        ("float32", 32.0, 1e-3),
    ],
)
def test_the_floor_is_two_steps_of_the_logits_precision(dtype, largest_logit, floor):
    assert arithmetic_floor(cell(), dtype, largest_logit) == floor


def test_quantized_activations_raise_the_floor_and_quantized_weights_do_not():
    assert arithmetic_floor(cell(quantization="fp8"), "bfloat16", 32.0) == 0.5
    assert arithmetic_floor(cell(quantization="Q4_K_M"), "bfloat16", 32.0) == 0.75
    assert arithmetic_floor(cell(kv_cache_dtype="fp8_e4m3"), "bfloat16", 32.0) == 0.5
    assert arithmetic_floor(cell(quantization="awq"), "bfloat16", 32.0) == 0.25
    assert quantized_floor("something new") == quantized_floor("fp8")


def test_the_engines_own_word_on_its_arithmetic_comes_first():
    said = evidence(ends={"A": outcome("A", facts={"dtype": "torch.float16"})}, dtype="float32")
    assert arithmetic_of(said, "bfloat16") == "torch.float16"
    assert arithmetic_of(evidence(dtype="float32"), "bfloat16") == "float32"
    assert arithmetic_of(evidence(dtype="auto"), "bfloat16") == "bfloat16"


def test_a_deterministic_engine_has_the_floor_for_its_ceiling():
    ceiling = ceiling_of(Pair())
    assert ceiling.value == ceiling.floor
    assert ceiling.learned == 0.0
    assert ceiling.trusted


def test_the_learned_ceiling_grows_with_the_noise_of_the_controls():
    values = [ceiling_of(Pair(prompts=80).noisy(noise)).value for noise in (0.0, 0.08, 0.2)]
    assert values[0] < values[1] < values[2]


def test_the_ceiling_bounds_the_whole_sweep():
    pair = Pair(prompts=80).noisy(0.1)
    assert ceiling_of(pair, cells=300).value > ceiling_of(pair).value


def test_the_on_arm_teaches_nothing():
    pair = Pair(prompts=80).noisy(0.1)
    wild = replace(pair, on=replace(pair.on, noise=2.0))
    assert ceiling_of(wild).value == pytest.approx(ceiling_of(pair).value)


def test_tokens_let_through_in_the_off_arm_do_not_raise_the_ceiling():
    leaky = Arm(accept=0.7, seed=2, let_through=0.05)
    assert ceiling_of(Pair(off=leaky, null=replace(leaky, seed=3))).learned == 0.0


def test_a_ceiling_above_what_the_controls_ever_showed_is_not_their_maximum():
    pair = Pair(prompts=80).noisy(0.1)
    case = build_case(simulate(pair), JudgeSettings(), 1)
    shown = max(float(np.nanmax(arm.regrets)) for arm in (case.off, case.null))
    assert learn_ceiling(case).value > shown


def test_movements_are_those_of_the_gap_at_a_near_tie():
    pair = Pair(prompts=200).noisy(0.1)
    case = build_case(simulate(pair), JudgeSettings(), 1)
    moved = movements(case.off)
    assert np.isfinite(moved).sum() > 1000
    # A gap of two logits, each evaluated twice: four independent errors.
    assert np.sqrt(np.nanmean(moved**2)) == pytest.approx(0.2, rel=0.2)


def test_a_few_prompts_cannot_teach_a_tail_and_the_ceiling_says_so():
    ceiling = ceiling_of(Pair(prompts=4, tokens=12).noisy(0.2))
    assert ceiling.learned is None
    assert not ceiling.trusted
    assert "too few" in ceiling.note


def test_halves_that_disagree_are_not_trusted():
    pair = Pair(prompts=100).noisy(0.02)
    seen = simulate(pair)
    random = np.random.default_rng(0)
    wild = tuple(
        replace(one, logprobs=one.logprobs - random.exponential(1.0, one.logprobs.size))
        if index % 2
        else one
        for index, one in enumerate(seen.off)
    )
    case = build_case(replace(seen, off=wild), JudgeSettings(), 1)
    assert not learn_ceiling(case).trusted


def test_a_tail_that_would_excuse_everything_counts_up_to_the_band():
    """Seen on a hybrid target: movements so rare and far that their tail reached 194 nats."""
    pair = Pair(prompts=120).noisy(0.02)
    seen = simulate(pair)
    random = np.random.default_rng(0)

    def moved(one):
        far = random.pareto(2.5, one.logprobs.size) * 0.05
        return replace(one, logprobs=one.logprobs - far)

    off, null = (tuple(map(moved, arm)) for arm in (seen.off, seen.null))
    ceiling = learn_ceiling(build_case(replace(seen, off=off, null=null), JudgeSettings(), 1))
    assert ceiling.learned is not None
    assert ceiling.learned > 2 * ceiling.band
    assert ceiling.value == ceiling.band
