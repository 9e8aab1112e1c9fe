"""What the judge is asked: the sweep's claims, budgets and expectations."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from matrixrun.evidence.cells import Cell, Speculation
from matrixrun.evidence.verdicts import Verdict
from matrixrun.matrix.schema import Matrix


class ExpectedVerdict(msgspec.Struct, frozen=True, kw_only=True):
    """A verdict that the matrix file expects of the cells whose axes match `when`."""

    when: dict[str, Any]
    verdict: Verdict
    reason: str
    link: str | None = None

    def matches(self, cell: Cell) -> bool:
        """Return whether every axis named in `when` has that value in `cell`."""
        return all(_agrees(cell.axes.get(axis), wanted) for axis, wanted in self.when.items())


class Expectation(msgspec.Struct, frozen=True, kw_only=True):
    """An interval in which a metric of a cell is expected, as an approved sweep wrote it.

    `metric` is one of the acceptance witness's names, such as `acceptance/mean_acceptance_length`.
    """

    cell: str
    metric: str
    low: float
    high: float


class JudgeSettings(msgspec.Struct, frozen=True, kw_only=True):
    """All that verdicts depend on besides the evidence.

    `detect_rate` and `detect_confidence` are the claim; `sensitivity` is the share of affected
    requests that the judge is taken to see. `dtype` is the
    arithmetic of cells that do not say it themselves; `largest_logit` bounds the size of the
    logits, which engines do not report. `alpha` is the family-wise error rate of the rate tests.
    `min_speculated_share` is the least share of tokens that verification steps must emit.
    `least_acceptance_length` is the mean acceptance length below which speculation does nothing:
    1 is a drafter of which no token is ever accepted.
    `max_suspicions` bounds the tokens re-scored for a cell, `top_reasons` those written out.
    """

    equality: Literal["explained", "strict"] = "explained"
    control: Literal["between-launches", "within-launch"] = "between-launches"
    detect_rate: float = 0.01
    detect_confidence: float = 0.95
    sensitivity: float = 1.0
    rejections_per_position: int = 1
    dtype: str = "bfloat16"
    largest_logit: float = 32.0
    alpha: float = 0.05
    min_speculated_share: float = 0.05
    least_acceptance_length: float = 1.1
    max_suspicions: int = 16
    top_reasons: int = 3
    expect: tuple[ExpectedVerdict, ...] = ()
    expectations: tuple[Expectation, ...] = ()


def settings_for(matrix: Matrix, *, expectations: tuple[Expectation, ...] = ()) -> JudgeSettings:
    """Return the settings that a matrix file states; `expectations` come from its own file."""
    return JudgeSettings(
        equality=matrix.equality,
        control=matrix.control,
        detect_rate=matrix.detect.request_fault_rate,
        detect_confidence=matrix.detect.confidence,
        sensitivity=matrix.detect.sensitivity,
        rejections_per_position=matrix.coverage.rejections_per_position,
        expect=tuple(
            ExpectedVerdict(
                when=entry.when,
                verdict=Verdict(entry.verdict),
                reason=entry.reason,
                link=entry.link,
            )
            for entry in matrix.expect
        ),
        expectations=expectations,
    )


def _agrees(value: Any, wanted: Any) -> bool:
    if not isinstance(value, Speculation):
        return bool(value == wanted)
    if isinstance(wanted, str):
        return wanted in (value.method, value.label)
    if isinstance(wanted, Speculation):
        return value == wanted
    known = {
        "method": value.method,
        "num_speculative_tokens": value.num_speculative_tokens,
        "draft": value.draft,
        **value.options,
    }
    return all(known.get(name) == entry for name, entry in dict(wanted).items())
