"""A case with what all witnesses share: its ceiling and the suspicions against each arm."""

from __future__ import annotations

from dataclasses import dataclass

from matrixrun.judge.case import Case
from matrixrun.judge.ceiling import Ceiling, learn_ceiling
from matrixrun.judge.settings import JudgeSettings
from matrixrun.judge.suspicions import Suspected, suspicions

# The off arms are the same for many cells: a few of their worst tokens tell whether they are sound.
BASELINE_SUSPICIONS = 4


@dataclass(frozen=True)
class Examination:
    """What a witness is given. `on`, `off` and `null` are the suspicions against each arm."""

    case: Case
    ceiling: Ceiling
    on: Suspected
    off: Suspected
    null: Suspected

    @property
    def settings(self) -> JudgeSettings:
        return self.case.settings


def examine(case: Case, ceiling: Ceiling | None = None) -> Examination:
    """Return the examination of a case; its ceiling is learned from it unless one is given."""
    ceiling = learn_ceiling(case) if ceiling is None else ceiling
    return Examination(
        case=case,
        ceiling=ceiling,
        on=suspicions(case, ceiling, "on", most=case.settings.max_suspicions),
        off=suspicions(case, ceiling, "off", most=BASELINE_SUSPICIONS),
        null=suspicions(case, ceiling, "null", most=BASELINE_SUSPICIONS),
    )
