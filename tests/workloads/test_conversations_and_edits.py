"""Prompts that open a conversation, and copies with changes."""

import difflib

import pytest
from toy_tokenizers import CHAT, toy

from matrixrun.evidence.errors import UserError
from matrixrun.matrix.schema import WorkloadSpec
from matrixrun.workloads import build


def made(tokenizer, category, count=6, **fields):
    spec = WorkloadSpec(prompts=count, categories=(category,), prompt_tokens=(250, 300), **fields)
    return build(spec, tokenizer, seed=0)


def test_a_chat_prompt_has_the_further_turns_of_its_conversation():
    tokenizer = toy()
    for prompt in made(tokenizer, "chat").prompts:
        assert prompt.text.endswith("\nAssistant:")
        assert len(prompt.follow_ups) == 3
        for ids in prompt.follow_ups:
            text = tokenizer.decode(ids)
            assert text.startswith("\nUser: ")
            assert text.endswith("\nAssistant:")


def test_a_chat_template_closes_the_answer_and_opens_the_next():
    tokenizer = toy(chat=CHAT)
    spec = WorkloadSpec(prompts=2, categories=("chat",), prompt_tokens=(8, 120))
    (prompt, _) = build(spec, tokenizer, seed=0).prompts
    text = tokenizer.decode(prompt.follow_ups[0])
    assert text.startswith("\n<s>user\n")
    assert text.endswith("\n<s>assistant\n")


def test_a_template_without_a_place_for_answers_is_refused():
    template = "{% for m in messages if m['role'] == 'user' %}{{ m['content'] }}{% endfor %}"
    spec = WorkloadSpec(prompts=1, categories=("chat",), prompt_tokens=(4, 120))
    with pytest.raises(UserError, match="leaves an assistant's answer out"):
        build(spec, toy(chat=template), seed=0)


def test_follow_ups_are_part_of_the_workloads_hash():
    prompts = made(toy(), "chat").prompts
    from matrixrun.workloads.prompts import workload_of

    fewer = tuple(type(p)(id=p.id, category=p.category, token_ids=p.token_ids) for p in prompts)
    assert workload_of(prompts).sha256 != workload_of(fewer).sha256


def test_edits_copy_a_line_and_replace_a_word():
    text = made(toy(), "edits", count=20).prompts[3].text
    pairs = [part for part in text.split("Text: ")[1:] if part.count("\n") >= 2]
    assert pairs
    for part in pairs:
        before, after = part.splitlines()[0], part.splitlines()[1].split(": ", 1)[1]
        changes = [
            code
            for code in difflib.SequenceMatcher(None, before.split(), after.split()).get_opcodes()
            if code[0] != "equal"
        ]
        assert [code[0] for code in changes] == ["replace", "replace"]


def test_code_is_written_again_with_other_names():
    text = made(toy(), "code", count=4).prompts[1].text
    blocks = text.split("# before\n")[1:-1]
    assert blocks
    for block in blocks:
        before, after = block.split("# after\n")
        assert before != after
        assert len(before.split()) == len(after.split())
