"""The text of an answer, where its tokens are the off arm's."""

from __future__ import annotations

from dataclasses import replace

from matrixrun.evidence.verdicts import Severity, Verdict
from matrixrun.judge import JudgeSettings, judge_sweep

from .simulator import Pair, changed, simulate

SETTINGS = JudgeSettings(detect_rate=0.1)


def spelled(one):
    return "".join(f" w{token}" for token in one.token_ids)


def written(many):
    return tuple(replace(one, text=spelled(one)) for one in many)


BARE = simulate(Pair())
CELL = replace(BARE, on=written(BARE.on), off=written(BARE.off), null=written(BARE.null))


def judged(cell):
    return judge_sweep([cell], SETTINGS).results[0]


def faults(result):
    return [one.kind for one in result.findings if one.severity is Severity.FAULT]


def test_equal_texts_pass():
    assert judged(CELL).verdict is Verdict.PASS


def test_a_word_written_twice_is_a_fault_although_the_tokens_are_right():
    def twice(one):
        return spelled(one).replace(" w7", " w7 w7")

    indices = [index for index, one in enumerate(CELL.on) if 7 in one.token_ids][:1]
    result = judged(replace(CELL, on=changed(CELL.on, indices, text=twice)))
    assert faults(result) == ["surface-text"]
    assert CELL.on[indices[0]].request in result.reason


def test_texts_that_the_control_shows_too_are_no_fault():
    def lost(one):
        return spelled(one)[:-3]

    cell = replace(
        CELL, on=changed(CELL.on, [3], text=lost), null=changed(CELL.null, [5], text=lost)
    )
    assert judged(cell).verdict is Verdict.PASS


def test_a_character_cut_off_at_the_end_may_be_held_back():
    def held(one):
        return spelled(one) + "\ufffd"

    assert judged(replace(CELL, on=changed(CELL.on, [3], text=held))).verdict is Verdict.PASS


def test_texts_that_were_not_kept_are_not_compared():
    cell = replace(CELL, on=changed(CELL.on, range(48), text=None))
    assert judged(cell).verdict is Verdict.PASS
