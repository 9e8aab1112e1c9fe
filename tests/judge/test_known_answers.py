"""Known answers judge both arms."""

from __future__ import annotations

from dataclasses import replace

from matrixrun.judge import JudgeSettings, judge_sweep

from .simulator import Pair, simulate

CELL = simulate(Pair())


def result(on: str, off: str):
    """Judge a cell in which half of the requests ask for `42` and the arms say so much."""

    def saying(observations, text):
        return tuple(replace(one, text=text) for one in observations)

    known = {one.request: "42" for one in CELL.off[::2]}
    cell = replace(
        CELL,
        on=saying(CELL.on, on),
        off=saying(CELL.off, off),
        null=saying(CELL.null, off),
        answers=known,
    )
    return judge_sweep([cell], JudgeSettings(detect_rate=0.1)).results[0]


def notices(judged) -> list[str]:
    return [one.text for one in judged.findings if one.kind == "known-answers"]


def test_shares_are_figures_of_both_arms():
    judged = result("it is 42", "it is 42")
    assert judged.metrics["known/right.on"] == judged.metrics["known/right.off"] == 1.0
    assert notices(judged) == []


def test_fewer_right_answers_than_the_off_arm_are_told():
    (text,) = notices(result("it is 41", "it is 42"))
    assert "0 of 24 known answers are right on the on arm, 24 on the off arm" in text


def test_an_off_arm_that_knows_little_is_told_of():
    (text,) = notices(result("41", "41"))
    assert "the off arm gives 0 of 24 known answers" in text


def test_texts_that_were_not_kept_say_nothing():
    assert not [name for name in result(None, None).metrics if name.startswith("known/")]
