"""The judge's wants as passes: named tokens, valued again by launch A in other ways."""

from __future__ import annotations

from collections.abc import Iterable

from matrixrun.evidence.requests import Evaluation, Pass, ScoreRequest
from matrixrun.evidence.verdicts import Want
from matrixrun.probes.protocol import Source, salt
from matrixrun.probes.scoring import SCORING_CONCURRENCY


def confirmation_passes(scorer: str, wants: Iterable[Want]) -> tuple[Pass, ...]:
    """Return a pass `confirm.<cell id>` for each cell that wants scores, in order of the cells.

    Decoding one row comes first, then extending a cached prefix: neither finds what the other
    left in the cache, since the engines' clients keep the two apart by the salt they are given.

    Args:
        scorer: the id of launch A, or of the launch that stands in for it.
        wants: what the judge asked for; several wants of a cell become one pass.
    """
    scores: dict[str, dict[str, ScoreRequest]] = {}
    for want in wants:
        for score in want.scores:
            scores.setdefault(want.cell, {}).setdefault(score.id, score)
    return tuple(
        Pass(
            id=pass_id,
            scores=tuple(sorted(scores[cell].values(), key=_order)),
            concurrency=SCORING_CONCURRENCY,
            salt=salt(Source(scorer, pass_id)),
        )
        for cell in sorted(scores)
        for pass_id in (f"confirm.{cell}",)
    )


_EVALUATIONS = tuple(Evaluation)


def _order(score: ScoreRequest) -> tuple[int, str]:
    return _EVALUATIONS.index(score.evaluation), score.id
