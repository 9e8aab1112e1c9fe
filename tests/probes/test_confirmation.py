"""The judge's wants as passes."""

from matrixrun.evidence.requests import Evaluation, ScoreRequest
from matrixrun.evidence.verdicts import Want
from matrixrun.probes import confirmation_passes


def want(cell: str, *names: str) -> Want:
    scores = [
        ScoreRequest(
            id=f"{name}.{evaluation.value}",
            token_ids=(1, 2, 3),
            start=2,
            evaluation=evaluation,
        )
        for name in names
        for evaluation in (Evaluation.EXTEND, Evaluation.DECODE)
    ]
    return Want(cell=cell, scores=tuple(scores))


def test_each_cell_has_a_pass_of_its_own_with_both_evaluations():
    passes = confirmation_passes("A.x", [want("c2", "on.p-1.4"), want("c1", "on.p-0.2")])
    assert [one.id for one in passes] == ["confirm.c1", "confirm.c2"]
    assert [score.evaluation for score in passes[0].scores] == [
        Evaluation.DECODE,
        Evaluation.EXTEND,
    ]
    assert len({one.salt for one in passes}) == 2


def test_several_wants_of_a_cell_become_one_pass_without_repetitions():
    (one,) = confirmation_passes("A.x", [want("c1", "a", "b"), want("c1", "b")])
    assert [score.id for score in one.scores] == ["a.decode", "b.decode", "a.extend", "b.extend"]
    assert one.concurrency == 1


def test_nothing_wanted_is_nothing_sent():
    assert confirmation_passes("A.x", []) == ()
    assert confirmation_passes("A.x", [Want(cell="c1", scores=())]) == ()
