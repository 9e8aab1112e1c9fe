"""Streams, whole replies, tool calls and counts: each arm against itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from matrixrun.evidence.replies import Form, Reply, Stream, ToolCall
from matrixrun.evidence.requests import Observation
from matrixrun.evidence.verdicts import Severity, Verdict
from matrixrun.judge import FAULT_KINDS, JudgeSettings, ProbeObserved, judge_sweep
from matrixrun.judge.witnesses import ProbeExamination
from matrixrun.judge.witnesses.replies import WHAT, examine_replies
from matrixrun.signoff.junit import CHECK_OF

from .simulator import Pair, simulate

Replies = tuple[Observation, ...]
Change = Callable[[Reply], Reply]
ARGUMENTS = '{"subject": "a class", "certain": true}'


def made(form: Form, number: int, *, streamed: bool, tokens: int = 6) -> Observation:
    words = "" if form is Form.TOOL_REQUIRED else " ".join(f"w{n}" for n in range(tokens))
    call = ToolCall(name="file_note", arguments=ARGUMENTS)
    stream = Stream(tokens=(2, *[1] * (tokens - 2)), finishes=1, usages=1, dones=1)
    reply = Reply(
        form=form, text=words, tool_calls=(call,) if form is Form.TOOL_REQUIRED else (),
        completion_tokens=tokens, prompt_tokens=9, stream=stream if streamed else None,
        decoded=None if form.has_tools else words,
    )  # fmt: skip
    return Observation(
        request=f"surface.{form}.m{number}{'.stream' if streamed else ''}",
        prompt=f"m{number}", category="surface",
        token_ids=np.arange(tokens, dtype=np.int32) + number, reply=reply,
        finish_reason="tool_calls" if form is Form.TOOL_REQUIRED else "stop",
    )  # fmt: skip


HEALTHY: Replies = tuple(
    made(form, number, streamed=streamed)
    for number in range(6)
    for form in (Form.COMPLETION, Form.CHAT, Form.TOOL_REQUIRED)
    for streamed in (False, True)
)


def changed(
    change: Change,
    form: Form,
    *,
    streamed: bool = True,
    prompts: int = 2,
    base: Replies = HEALTHY,
    **others: object,
) -> Replies:
    def one(seen: Observation) -> Observation:
        assert seen.reply is not None
        hit = seen.reply.form is form and (seen.reply.stream is not None) == streamed
        if not hit or int(seen.prompt[1:]) >= prompts:
            return seen
        return replace(seen, reply=change(seen.reply), **others)

    return tuple(map(one, base))


def with_(**fields: object) -> Change:
    return lambda reply: msgspec.structs.replace(reply, **fields)


def streaming(**fields: object) -> Change:
    def change(reply: Reply) -> Reply:
        assert reply.stream is not None
        stream = msgspec.structs.replace(reply.stream, **fields)
        return msgspec.structs.replace(reply, stream=stream)

    return change


def seen(on: Replies, off: Replies = HEALTHY, null: Replies = ()) -> ProbeObserved:
    arms = {"on": on, "off": off, "null": null}
    return ProbeObserved(kind="surface", compared=False, observations=arms, scores={}, records={})


def told(on: Replies, off: Replies = HEALTHY, null: Replies = ()):
    evidence = simulate(Pair(prompts=2, tokens=4)).evidence
    return examine_replies(ProbeExamination(evidence, JudgeSettings(), seen(on, off, null), None))


def faults(testimony) -> list[str]:
    return [one.kind for one in testimony.findings if one.severity is Severity.FAULT]


def test_replies_that_agree_say_nothing_but_how_much_was_compared() -> None:
    testimony = told(HEALTHY)
    assert (testimony.findings, testimony.objections, testimony.rates) == ((), (), ())
    assert testimony.coverage == {
        "surface.compared": 18, "surface.parts": 90, "surface.several_tokens": 18,
        "surface.tool_calls": 6, "surface.several_in_tool_calls": 6, "surface.shared": 36,
    }  # fmt: skip


CUT = ToolCall(name="file_note", arguments=ARGUMENTS[1:])
OTHER = ToolCall(name="file_note", arguments='{"subject": "a module", "certain": true}')
BROKEN = {
    "a piece lost": (with_(text="w0 w1 w3 w4 w5"), Form.CHAT, "surface-stream"),
    "a piece twice": (with_(text="w0 w1 w1 w2 w3 w4 w5"), Form.COMPLETION, "surface-stream"),
    "reasoning lost": (with_(reasoning="hm"), Form.CHAT, "surface-stream"),
    "no mark of the end": (streaming(dones=0), Form.CHAT, "surface-stream"),
    "a part behind the end": (streaming(late=1), Form.COMPLETION, "surface-stream"),
    "two reasons": (streaming(finishes=2), Form.CHAT, "surface-stream"),
    "no usage": (streaming(usages=0), Form.CHAT, "surface-stream"),
    "steps counted for tokens": (with_(completion_tokens=5), Form.CHAT, "surface-usage"),
    "another prompt counted": (with_(prompt_tokens=8), Form.CHAT, "surface-usage"),
    "no JSON": (with_(tool_calls=(CUT,)), Form.TOOL_REQUIRED, "surface-tool-call"),
    "other arguments": (with_(tool_calls=(OTHER,)), Form.TOOL_REQUIRED, "surface-tool-call"),
    "no call": (with_(tool_calls=()), Form.TOOL_REQUIRED, "surface-tool-call"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_the_on_arm_alone_breaks_is_a_fault(name: str) -> None:
    change, form, kind = BROKEN[name]
    testimony = told(changed(change, form))
    assert faults(testimony) == [kind]
    assert testimony.findings[0].numbers["requests"] == 2
    assert testimony.rates == ()


@pytest.mark.parametrize("name", BROKEN)
def test_what_the_off_arm_breaks_alike_is_a_notice(name: str) -> None:
    change, form, kind = BROKEN[name]
    testimony = told(changed(change, form), changed(change, form))
    assert faults(testimony) == []
    assert [one.kind for one in testimony.findings] == ["surface-inherited"]
    (rate,) = testimony.rates
    assert (rate.p_value, rate.finding.kind) == (1.0, kind)


def test_what_another_off_launch_breaks_is_no_fault_either() -> None:
    change, form, _ = BROKEN["a piece lost"]
    assert faults(told(changed(change, form), HEALTHY, changed(change, form))) == []


def test_a_part_sent_twice_with_its_tokens_is_seen_by_the_count_and_tested() -> None:
    twice = with_(text="w0 w0 w1 w2 w3 w4 w5", decoded="w0 w0 w1 w2 w3 w4 w5")
    tokens = np.array([0, 0, 1, 2, 3, 4, 5], np.int32)
    testimony = told(changed(twice, Form.CHAT, prompts=6, token_ids=tokens))
    assert [one.kind for one in testimony.findings] == ["surface-unconfirmed"]
    assert [(one.p_value, one.finding.kind) for one in testimony.rates] == [
        (2**-6, "surface-usage")
    ]


FORK = np.arange(6, dtype=np.int32) + 50


def test_what_is_broken_at_tokens_that_no_off_reply_has_is_a_notice_and_a_test() -> None:
    on = changed(with_(completion_tokens=5), Form.CHAT, prompts=1, token_ids=FORK)
    testimony = told(on)
    assert [(one.kind, one.severity) for one in testimony.findings] == [
        ("surface-unconfirmed", Severity.NOTICE)
    ]
    assert [one.p_value for one in testimony.rates] == [0.5]
    null = changed(with_(), Form.CHAT, prompts=1, token_ids=FORK)
    assert faults(told(on, null=null)) == ["surface-usage"]


def test_an_off_arm_whose_stream_forked_was_not_put_to_the_comparison() -> None:
    on = changed(with_(), Form.CHAT, prompts=1, finish_reason="length")
    off = changed(with_(), Form.CHAT, prompts=1, streamed=False, token_ids=FORK)
    testimony = told(on, off)
    assert faults(testimony) == []
    assert [one.p_value for one in testimony.rates] == [0.5]


@pytest.mark.parametrize("streamed", [False, True])
def test_a_complete_tool_call_that_meets_the_limit_may_end_for_either_reason(
    streamed: bool,
) -> None:
    on = changed(with_(), Form.TOOL_REQUIRED, streamed=streamed, prompts=6, finish_reason="length")
    assert told(on).findings == ()
    assert told(on).rates == ()


def test_each_launch_without_speculation_is_held_against_itself() -> None:
    """What launch A's stream breaks stays known, though all is right on launch B."""
    change, form, _ = BROKEN["other arguments"]
    broken = changed(change, form)
    testimony = told(broken, broken, HEALTHY)
    assert faults(testimony) == []
    assert [one.kind for one in testimony.findings] == ["surface-inherited"]
    assert [one.p_value for one in testimony.rates] == [1.0]


def test_the_test_of_rates_is_against_one_launch() -> None:
    change, form, _ = BROKEN["no usage"]
    off, null = changed(change, form, prompts=1), changed(change, form, prompts=5)
    (rate,) = told(changed(change, form, prompts=6), off, null).rates
    assert (rate.p_value, rate.finding.numbers["off"]) == (2**-5, 1)


def test_a_class_that_every_reply_shows_does_not_hide_another() -> None:
    twice = streaming(usages=2)
    off = changed(twice, Form.CHAT, prompts=6)
    late_once = changed(streaming(late=1), Form.CHAT, prompts=1, base=off)
    late_always = changed(streaming(late=1), Form.CHAT, prompts=6, base=off)
    (rate,) = told(late_always, late_once).rates
    assert (rate.p_value, rate.finding.numbers["check"]) == (2 * 2**-5, "late")
    assert "parts behind its end" in rate.finding.text


def test_a_text_in_one_piece_that_is_not_its_tokens_is_a_fault() -> None:
    on = changed(with_(text="w0"), Form.COMPLETION, streamed=False)
    assert faults(told(on)) == ["surface-decoding", "surface-stream"]


def test_another_reason_for_the_end_is_a_fault() -> None:
    on = changed(with_(), Form.CHAT, finish_reason="length")
    assert faults(told(on)) == ["surface-finish"]


def test_much_more_of_what_both_break_is_tested() -> None:
    change, form, kind = BROKEN["a piece lost"]
    testimony = told(changed(change, form, prompts=6), changed(change, form, prompts=1))
    (rate,) = testimony.rates
    # Two classes show it: the text in one piece, and what the token ids say.
    assert (rate.p_value, rate.finding.kind) == (2 * 2**-5, kind)


def test_replies_of_other_tokens_are_not_held_against_each_other() -> None:
    text = "v0 w1 w2 w3 w4 w5"
    change = with_(text=text, decoded=text)
    on = changed(change, Form.CHAT, token_ids=np.arange(6, dtype=np.int32) + 50)
    testimony = told(on)
    assert testimony.findings == ()
    assert testimony.coverage["surface.compared"] == 16


def test_a_tool_call_cut_off_by_the_limit_is_not_compared() -> None:
    on = changed(with_(tool_calls=(CUT,)), Form.TOOL_REQUIRED, finish_reason="length")
    whole = changed(
        with_(tool_calls=()), Form.TOOL_REQUIRED, streamed=False, finish_reason="length"
    )
    both = tuple(
        mine if mine.finish_reason == "length" else theirs
        for mine, theirs in zip(on, whole, strict=True)
    )
    assert told(both).findings == ()


def test_tool_calls_that_are_all_cut_off_show_nothing() -> None:
    cut = HEALTHY
    for streamed in (False, True):
        hit = changed(with_(), Form.TOOL_REQUIRED, streamed=streamed, prompts=6,
                      finish_reason="length")  # fmt: skip
        cut = tuple(
            new if new.finish_reason == "length" else old for old, new in zip(cut, hit, strict=True)
        )
    (objection,) = told(cut).objections
    assert "no tool was called" in objection.reason


def test_spaces_in_arguments_mean_nothing() -> None:
    dense = '{"subject":"a class","certain":true}'
    call = ToolCall(name="file_note", arguments=dense)
    assert told(changed(with_(tool_calls=(call,)), Form.TOOL_REQUIRED)).findings == ()


@given(st.text(), st.text(alphabet="\ufffd", max_size=3))
def test_an_unfinished_character_at_the_end_may_be_held_back(text: str, held: str) -> None:
    on = changed(with_(decoded=text + held, text=text), Form.CHAT, prompts=6)
    on = tuple(
        replace(one, reply=msgspec.structs.replace(one.reply, text=text, decoded=text))
        if one.reply and one.reply.form is Form.CHAT and one.reply.stream is None
        else one
        for one in on
    )
    assert faults(told(on)) == []


ONE_EACH = Stream(tokens=(1,) * 6, finishes=1, usages=1, dones=1)


def test_where_no_part_carries_several_tokens_nothing_was_shown() -> None:
    on = HEALTHY
    for form in Form:
        on = tuple(
            replace(one, reply=msgspec.structs.replace(one.reply, stream=ONE_EACH))
            if one.reply and one.reply.form is form and one.reply.stream
            else one
            for one in on
        )
    (objection,) = told(on).objections
    assert objection.verdict is Verdict.INCONCLUSIVE
    assert "no part of a stream carried several tokens" in objection.reason


def failing(words: str, form: Form = Form.CHAT, prompts: int = 6) -> Replies:
    nothing = np.zeros(0, np.int32)
    some = HEALTHY
    for streamed in (False, True):
        some = changed(
            with_(), form, streamed=streamed, prompts=prompts, base=some,
            error=words, token_ids=nothing,
        )  # fmt: skip
    return some


def test_a_form_that_both_arms_refuse_is_told_and_the_others_are_judged() -> None:
    refused = failing("HTTP 400: no chat template")
    testimony = told(refused, refused)
    (finding,) = testimony.findings
    assert (finding.kind, finding.severity) == ("surface-unasked", Severity.NOTICE)
    assert "refused by on and off" in finding.text
    assert "no chat template" in finding.text
    assert testimony.objections == ()


@pytest.mark.parametrize("status", [400, 404, 422])
def test_a_form_that_the_on_arm_alone_refuses_cannot_be_judged(status: int) -> None:
    testimony = told(failing(f"HTTP {status}: not with speculation"))
    assert testimony.findings == ()
    (objection,) = testimony.objections
    assert objection.verdict is Verdict.INCONCLUSIVE
    assert "chat was not compared, refused by on: HTTP" in objection.reason


@pytest.mark.parametrize(
    "words",
    ["HTTP 500: index out of range", "HTTP 429: busy", "HTTP 401: no", "the connection broke: E"],
)
def test_what_the_off_arm_answers_and_the_on_arm_does_not_is_a_fault(words: str) -> None:
    assert faults(told(failing(words))) == ["failed-request"]


def test_a_refusal_of_some_requests_of_a_form_is_a_failure() -> None:
    some = failing("HTTP 400: draft too long", prompts=1)
    assert faults(told(some)) == ["failed-request"]
    assert faults(told(some, some)) == []


def test_a_form_that_the_off_arm_alone_refuses_is_inconclusive_where_the_on_arm_breaks_it() -> None:
    off = failing("HTTP 400: no chat template")
    assert [one.kind for one in told(HEALTHY, off).findings] == ["surface-unasked"]
    assert told(HEALTHY, off).objections == ()
    change, form, _ = BROKEN["a piece lost"]
    testimony = told(changed(change, form), off)
    assert faults(testimony) == []
    assert [one.verdict for one in testimony.objections] == [Verdict.INCONCLUSIVE]


def test_texts_that_no_detokeniser_was_put_to_are_told() -> None:
    on = changed(with_(decoded=None), Form.CHAT, prompts=6)
    (finding,) = told(on, on).findings
    assert finding.kind == "surface-unasked"
    assert "6 texts on the on arm were not held against their token ids" in finding.text


def test_arms_without_a_reply_of_the_same_tokens_show_nothing() -> None:
    on = tuple(replace(one, token_ids=one.token_ids + 100) for one in HEALTHY)
    (objection,) = told(on).objections
    assert "no reply of the on arm has the tokens of the off arm's" in objection.reason


def test_a_failure_of_both_arms_is_a_notice_and_more_of_it_is_tested() -> None:
    broken = failing("HTTP 500: no")
    once = tuple(
        one if one.prompt != "m0" else two for one, two in zip(HEALTHY, broken, strict=True)
    )
    testimony = told(broken, once)
    assert faults(testimony) == []
    assert [(rate.p_value, rate.finding.kind) for rate in testimony.rates] == [
        (2**-5, "failed-request")
    ]


def test_an_engine_that_was_asked_nothing_is_told() -> None:
    testimony = told((), ())
    assert [one.kind for one in testimony.findings] == ["surface-unasked"]
    assert testimony.objections == ()


def test_a_sweep_fails_for_it_and_names_the_reply() -> None:
    change, form, _ = BROKEN["a piece lost"]
    cell = replace(simulate(Pair()), probes=(seen(changed(change, form)),))
    (result,) = judge_sweep([cell], JudgeSettings(detect_rate=0.1), final=True).results
    assert result.verdict is Verdict.FAIL
    assert "surface.chat.m0.stream" in result.reason


def test_every_kind_is_known_to_policies_and_to_reports() -> None:
    assert set(WHAT) <= FAULT_KINDS
    assert {CHECK_OF[kind] for kind in WHAT if kind in CHECK_OF} == {"replies"}
