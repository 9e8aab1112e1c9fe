"""Witnesses: each looks at one cell and says what it sees. One file a witness, one line here.

outcomes      what became of the launches (looks at outcomes alone)
baseline      whether the off arms are sound, judged first and absolutely
attached      what is not known of servers that nobody here launched
hardware      whether the arms ran on the same kind of machine
checkpoints   whether they served the same target
target_path   whether both arms compute the same target before anything is speculated
answers       events: failed requests, NaN, nothing, past the end, limits missed; else their rate
surface       texts, where the tokens are the same
unexplained   emitted tokens that no off evaluation accounts for
equality      exact match, first forks and their gaps
regret        what all emitted tokens cost the target, against the control
hazard        whether what lies beyond the floor stands behind rejections, as a cause
degeneration  loops, against the control
known_answers what both arms say where the right answer is known
drift         logprobs of the same tokens, against the control
activity      whether the on arm speculated
acceptance    what the target takes of the drafts
prediction    acceptance against what an n-gram drafter must propose
drafting      draft positions and steps without a draft, within the on arm
repeats       acceptance of a prompt sent again, against the first time
fading        acceptance of prompts sent late, against those sent early
warm          whether prompts sent again find their prefix in the cache
coverage      rejections at each draft position
power         whether enough was observed for the claim
performance   speed and reuse, as figures

Of further probes:

distribution  sampling: sampled tokens against the target's own probabilities
processing    processors: greedy answers with a logits processor on
reuse         conversation: what each turn takes from the cache, on against off
turn_ends     conversation: whether a turn ends at its stop string
rollback      rollback: the token right after each planned rejection
pressure      pressure: which transitions happened, and what is left behind
accuracy      accuracy: documents of a task that are lost, by a paired test
replies       surface: streams, whole replies, tool calls, counts
ledger        ledger: whether a traced launch's scheduler kept its own rules
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from matrixrun.evidence.ledger import Event
from matrixrun.evidence.verdicts import CellEvidence
from matrixrun.judge.case import Case, ProbeObserved
from matrixrun.judge.examination import Examination
from matrixrun.judge.settings import JudgeSettings
from matrixrun.judge.testimony import Testimony
from matrixrun.judge.witnesses import (
    accuracy,
    answers,
    degeneration,
    distribution,
    drift,
    fading,
    processing,
    regret,
    repeats,
    replies,
    reuse,
)
from matrixrun.judge.witnesses.acceptance import examine_acceptance
from matrixrun.judge.witnesses.activity import examine_activity
from matrixrun.judge.witnesses.attached import examine_attached
from matrixrun.judge.witnesses.baseline import examine_baseline
from matrixrun.judge.witnesses.checkpoints import examine_checkpoints
from matrixrun.judge.witnesses.coverage import examine_coverage
from matrixrun.judge.witnesses.drafting import examine_drafting
from matrixrun.judge.witnesses.equality import examine_equality
from matrixrun.judge.witnesses.hardware import examine_hardware
from matrixrun.judge.witnesses.hazard import examine_hazard
from matrixrun.judge.witnesses.known_answers import examine_known_answers
from matrixrun.judge.witnesses.ledger import examine_ledger
from matrixrun.judge.witnesses.outcomes import examine_outcomes
from matrixrun.judge.witnesses.performance import examine_performance
from matrixrun.judge.witnesses.power import examine_power
from matrixrun.judge.witnesses.prediction import examine_prediction
from matrixrun.judge.witnesses.pressure import examine_pressure
from matrixrun.judge.witnesses.rollback import examine_rollback
from matrixrun.judge.witnesses.surface import examine_surface
from matrixrun.judge.witnesses.target_path import examine_target_path
from matrixrun.judge.witnesses.turn_ends import examine_turn_ends
from matrixrun.judge.witnesses.unexplained import examine_unexplained
from matrixrun.judge.witnesses.warm import examine_warm


@dataclass(frozen=True)
class Witness:
    """A witness: `examine` looks at a cell whose launches served; `rate_tests` is the number of
    tests it may bring, fixed beforehand, since a cell's p-value pays for every one of them.
    `everywhere` says that it also looks at what further probes observed."""

    name: str
    examine: Callable[[Examination], Testimony]
    rate_tests: int = 0
    everywhere: bool = False


@dataclass(frozen=True)
class ProbeExamination:
    """What a probe's own witness is given. `case` holds what was sent alike to every arm; None
    where the probe's answers are not to be compared. `prompts` are the workload's by name,
    `ledgers` as in CellObservations. `main` is the examination of equality's answers, whose ceiling
    holds here too."""

    evidence: CellEvidence
    settings: JudgeSettings
    observed: ProbeObserved
    case: Case | None
    prompts: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    ledgers: Mapping[str, tuple[Event, ...]] = field(default_factory=dict)
    main: Examination | None = None


@dataclass(frozen=True)
class ProbeWitness:
    """A witness of what one probe observed, for `probe` and no other."""

    probe: str
    name: str
    examine: Callable[[ProbeExamination], Testimony]
    rate_tests: int = 0


WITNESSES = (
    Witness("baseline", examine_baseline),
    Witness("attached", examine_attached),
    Witness("hardware", examine_hardware),
    Witness("checkpoints", examine_checkpoints),
    Witness("target_path", examine_target_path),
    Witness("answers", answers.examine_answers, answers.RATE_TESTS, everywhere=True),
    Witness("surface", examine_surface, everywhere=True),
    Witness("unexplained", examine_unexplained, everywhere=True),
    Witness("equality", examine_equality, everywhere=True),
    Witness("regret", regret.examine_regret, regret.RATE_TESTS, everywhere=True),
    Witness("hazard", examine_hazard),
    Witness(
        "degeneration",
        degeneration.examine_degeneration,
        degeneration.RATE_TESTS,
        everywhere=True,
    ),
    Witness("known_answers", examine_known_answers),
    Witness("drift", drift.examine_drift, drift.RATE_TESTS),
    Witness("activity", examine_activity),
    Witness("acceptance", examine_acceptance),
    Witness("prediction", examine_prediction),
    Witness("drafting", examine_drafting),
    Witness("repeats", repeats.examine_repeats, repeats.RATE_TESTS),
    Witness("fading", fading.examine_fading, fading.RATE_TESTS),
    Witness("warm", examine_warm),
    Witness("coverage", examine_coverage),
    Witness("power", examine_power),
    Witness("performance", examine_performance),
)

PROBE_WITNESSES: tuple[ProbeWitness, ...] = (
    ProbeWitness(
        distribution.PROBE,
        "distribution",
        distribution.examine_distribution,
        distribution.RATE_TESTS,
    ),
    ProbeWitness(
        processing.PROBE, "processing", processing.examine_processing, processing.RATE_TESTS
    ),
    ProbeWitness("conversation", "reuse", reuse.examine_reuse, reuse.RATE_TESTS),
    ProbeWitness("conversation", "turn_ends", examine_turn_ends),
    ProbeWitness("pressure", "pressure", examine_pressure),
    ProbeWitness("rollback", "rollback", examine_rollback),
    ProbeWitness("ledger", "ledger", examine_ledger),
    ProbeWitness(replies.PROBE, "replies", replies.examine_replies, replies.RATE_TESTS),
    ProbeWitness(accuracy.PROBE, "accuracy", accuracy.examine_accuracy, accuracy.RATE_TESTS),
)

RATE_TESTS = sum(witness.rate_tests for witness in WITNESSES)

__all__ = [
    "PROBE_WITNESSES",
    "RATE_TESTS",
    "WITNESSES",
    "ProbeExamination",
    "ProbeWitness",
    "Witness",
    "examine_outcomes",
]
