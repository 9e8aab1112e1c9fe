"""Each request in one piece and streamed, by every endpoint that the engine has."""

from __future__ import annotations

import json

import msgspec
import pytest
from probe_sweeps import matrix, plan, workload

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


def test_the_models_length_holds_a_chat_with_a_tool() -> None:
    lengths = {one.config.limits.max_model_len for one in plan(asked()).launches}
    assert min(length or 0 for length in lengths) > 1024


def test_the_control_within_the_launch_is_not_asked() -> None:
    swept, passes = sent(asked(control="within-launch"))
    counts = {one.role: len(passes[one.id]) for one in swept.launches}
    assert counts[Role.A] == counts[Role.ON]
