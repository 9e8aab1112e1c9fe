"""The faults by name."""

from __future__ import annotations

from . import arithmetic, drafting, ending, memory, processing, sampling, transitions, verification
from .base import Fault

FAULTS: dict[str, type[Fault]] = {
    "let-through": verification.LetThrough,
    "all-accepted": verification.AllAccepted,
    "wrong-row": verification.WrongRow,
    "dropped-token": verification.DroppedToken,
    "exchanged": verification.Exchanged,
    "constant-loop": verification.ConstantLoop,
    "not-a-number": verification.NotANumber,
    "scaled": verification.Scaled,
    "shifted": drafting.Shifted,
    "drafter-off": drafting.Off,
    "decaying": drafting.Decaying,
    "warm-drafts": drafting.WarmDrafts,
    "kept-rejected": memory.KeptRejected,
    "rolled-too-far": memory.RolledTooFar,
    "lost-at-border": memory.LostAtBorder,
    "stale-row": memory.StaleRow,
    "past-the-end": ending.PastTheEnd,
    "stop-ignored": ending.StopIgnored,
    "cut-short": ending.CutShort,
    "warm-hole": memory.WarmHole,
    "one-too-many": memory.OneTooMany,
    "doubled": verification.Doubled,
    "noisy-verification": verification.NoisyVerification,
    "neighbours": drafting.Neighbours,
    "first-only": drafting.FirstOnly,
    "stops-at-once": ending.StopsAtOnce,
    "unset-temperature": sampling.UnsetTemperature,
    "unreduced-residual": sampling.UnreducedResidual,
    "greedy-residual": sampling.GreedyResidual,
    "eager-acceptance": sampling.EagerAcceptance,
    "leaked-drafts": sampling.LeakedDrafts,
    "sticky-noise": sampling.StickyNoise,
    "one-number-a-draft": sampling.OneNumberADraft,
    "flatter-acceptance": sampling.FlatterAcceptance,
    "shared-noise": sampling.SharedNoise,
    "draftless-history": processing.DraftlessHistory,
    "penalties-skipped": processing.PenaltiesSkipped,
    "min-tokens-ignored": processing.MinTokensIgnored,
    "damaged-on-resume": transitions.DamagedOnResume,
    "damaged-bystander": transitions.DamagedBystander,
    "leaked-block": transitions.LeakedBlock,
    "late-rollback": transitions.LateRollback,
    "kept-past-the-end": transitions.KeptPastTheEnd,
    "answers-uncached": transitions.AnswersUncached,
    "noise": arithmetic.Noise,
    "width-dependent": arithmetic.WidthDependent,
    "other-target": arithmetic.OtherTarget,
}

__all__ = ["FAULTS", "Fault"]
