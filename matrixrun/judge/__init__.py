"""The judge: evidence of a sweep in, verdicts out. Pure: no I/O, no Ray, no HTTP.

sweep        judge_sweep: every cell by every witness, then Holm over the sweep
verdict      assemble: the precedence of verdicts; exit_code
settings     JudgeSettings: the claim, the budgets, what is expected
case         CellObservations, ProbeObserved, and a cell's arms laid side by side
ceiling      the largest regret that rounding explains: floor of the arithmetic, learned tail
suspicions   tokens beyond the ceiling, and what re-scoring says of them
kinds        FAULT_KINDS: the names of all faults
examination  a case with its ceiling and suspicions: what a witness is given
testimony    what a witness returns
probed       what further probes observed, compared and judged
witnesses/   one file a witness
invariance   acceptance over batch size, caching and topology
agreement    acceptance of the same target and draft over engines and versions
paired_steps acceptance step by step, between cells of one drafter
betting      sampled tokens as bets at the target's own odds
sampled      sampled answers laid out for that
laws         the target's law under a request's temperature, top-k and top-p
processors   logits processors, and what they leave of each token
replies      what is wrong with streams, tool calls and counts
prompt_lookup what an n-gram drafter must propose
patterns     loops, empty answers, stop tokens
counters     an engine's counters by what they count
steps        verification steps, and the engine's counters of them
power        how many requests show which fault
statistics   sign flips, Holm, tails, clustered intervals
"""

from matrixrun.judge.case import CellObservations, ProbeObserved
from matrixrun.judge.kinds import FAULT_KINDS
from matrixrun.judge.laws import Setting, drawn_with
from matrixrun.judge.power import required_requests, visible_fault_rate
from matrixrun.judge.processors import Processor, sampling_of
from matrixrun.judge.settings import Expectation, ExpectedVerdict, JudgeSettings, settings_for
from matrixrun.judge.steps import LEAST_LOSS
from matrixrun.judge.sweep import Judgement, judge_sweep
from matrixrun.judge.verdict import exit_code

__all__ = [
    "FAULT_KINDS",
    "LEAST_LOSS",
    "CellObservations",
    "Expectation",
    "ExpectedVerdict",
    "JudgeSettings",
    "Judgement",
    "ProbeObserved",
    "Processor",
    "Setting",
    "drawn_with",
    "exit_code",
    "judge_sweep",
    "required_requests",
    "sampling_of",
    "settings_for",
    "visible_fault_rate",
]
