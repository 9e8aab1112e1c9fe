"""Each request in one piece and streamed, by every endpoint that the engine has."""

from __future__ import annotations

import json

import msgspec
import pytest
from probe_sweeps import matrix, plan, workload

from matrixrun.evidence.errors import UserError
from matrixrun.evidence.launches import Role
from matrixrun.evidence.replies import Ask, Form
from matrixrun.matrix import Matrix
from matrixrun.probes import get
from matrixrun.probes.surface import PROMPTS, TOOL, TOOL_PROMPTS, asks_of

PROBE = get("surface")


def asked(**others: object) -> Matrix:
    return matrix(probes=["equality", "surface"], **others)


def sent(made: Matrix):
    """The passes by launch."""
    swept = plan(made)
    return swept, {
        one.id: list(
            PROBE.passes(one, [c for c in swept.cells if c.id in one.cells], workload(), made)
        )
        for one in swept.launches
    }


@pytest.mark.parametrize("control", ["within-launch", "between-launches"])
def test_every_source_of_a_cell_is_sent_in_a_cache_namespace_of_its_own(control: str) -> None:
    swept, passes = sent(asked(control=control))
    known = {(name, one.id) for name, many in passes.items() for one in many}
    salts = [one.salt for many in passes.values() for one in many]
    assert len(set(salts)) == len(salts)
    for cell, pair in zip(swept.cells, swept.pairs, strict=True):
        sources = PROBE.sources(cell, pair)
        null = {"null"} if control == "between-launches" else set()
        assert set(sources) == {"on", "off"} | null
        assert {tuple(one) for many in sources.values() for one in many} <= known


def test_each_request_is_asked_in_one_piece_and_streamed() -> None:
    asks = asks_of(tuple(Form), workload(), 0)
    assert len({one.id for one in asks}) == len(asks)

    def alike(one: Ask) -> bytes:
        return msgspec.json.encode(msgspec.structs.replace(one, id="", streamed=False))

    whole, streamed = asks[::2], asks[1::2]
    assert [alike(one) for one in whole] == [alike(one) for one in streamed]
    assert not any(one.streamed for one in whole)
    assert all(one.streamed for one in streamed)
    count = min(PROMPTS, len(workload().prompts))
    assert [sum(one.form is form for one in whole) for form in Form] == [
        count, count, min(TOOL_PROMPTS, count), min(TOOL_PROMPTS, count),
    ]  # fmt: skip


def test_completions_send_the_workloads_ids_and_chats_messages_that_the_seed_decides() -> None:
    first, other = asks_of(tuple(Form), workload(), 0), asks_of(tuple(Form), workload(), 1)
    for one in first:
        assert bool(one.token_ids) == (one.form is Form.COMPLETION) != bool(one.message)
        assert (one.tool is not None) == one.form.has_tools
    assert first == asks_of(tuple(Form), workload(), 0)
    assert [one.message for one in first if one.message] != [o.message for o in other if o.message]


def test_the_tools_schema_leaves_no_room_for_an_endless_value() -> None:
    schema = json.loads(TOOL.parameters)
    assert schema["additionalProperties"] is False
    assert set(schema["required"]) == set(schema["properties"])
    assert all("enum" in one or one["type"] == "boolean" for one in schema["properties"].values())


def test_nothing_is_sent_where_texts_may_not_be_stored_and_plan_says_so() -> None:
    swept, passes = sent(asked(store_text=False))
    assert not any(passes.values())
    assert any("surface: nothing is sent" in note for note in swept.notes)


def test_plan_says_that_tools_need_a_parser() -> None:
    swept, passes = sent(asked())
    forms = {one.form for many in passes.values() for pass_ in many for one in pass_.asks}
    assert forms == {Form.COMPLETION, Form.CHAT}
    (note,) = [note for note in swept.notes if "surface on" in note]
    assert "no tools are offered" in note


TOOLS = ["--enable-auto-tool-choice", "--tool-call-parser=hermes"]


def engine(kind: str = "vllm", args: list[str] | None = None, **limits: int) -> dict[str, object]:
    return {"vllm": {"kind": kind, "args": args or [], "limits": limits}}


def lengths(made: Matrix) -> set[int | None]:
    return {one.config.limits.max_model_len for one in plan(made).launches}


def test_the_models_length_holds_a_chat_with_a_tool_where_one_is_asked_and_nowhere_else() -> None:
    (plain,) = lengths(matrix(probes=["equality"]))
    (length,) = lengths(asked(engines=engine(args=TOOLS)))
    assert (length or 0) > 1024 > (plain or 0)
    assert lengths(asked(store_text=False)) == {plain}
    assert lengths(asked(engines=engine("llamacpp"))) == {plain}


def test_a_length_that_cannot_hold_a_completion_and_its_reply_is_a_mistake() -> None:
    short = {"prompt_tokens": [16, 256], "max_tokens": 16}
    with pytest.raises(UserError, match=r"vllm\.limits\.max_model_len: 287 .*288 tokens.*") as told:
        plan(asked(workload=short, engines=engine(max_model_len=287)))
    assert "`max_model_len: 288`" in str(told.value)
    assert lengths(asked(workload=short, engines=engine(max_model_len=288))) == {288}
    plain = matrix(workload=short, engines=engine(max_model_len=287))
    assert lengths(plain) == {287}


def test_plan_says_that_a_given_length_may_not_hold_a_chat_with_a_tool() -> None:
    def notes(length: int) -> list[str]:
        made = plan(asked(engines=engine(args=TOOLS, max_model_len=length)))
        return [note for note in made.notes if "probe surface" in note]

    (note,) = notes(1023)
    assert "engines.vllm: limits.max_model_len (1023) may not hold a chat with a tool" in note
    assert notes(1024) == []


def test_the_control_within_the_launch_is_not_asked() -> None:
    swept, passes = sent(asked(control="within-launch"))
    counts = {one.role: len(passes[one.id]) for one in swept.launches}
    assert counts[Role.A] == counts[Role.ON]
