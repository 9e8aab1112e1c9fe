"""Prompts whose right answer is known."""

from __future__ import annotations

import pytest
from toy_tokenizers import CHAT, toy

from matrixrun.matrix.schema import WorkloadSpec
from matrixrun.workloads import build
from matrixrun.workloads.known import answer_of


@pytest.mark.parametrize("tokenizer", [toy(), toy(chat=CHAT)], ids=["plain", "chat"])
def test_every_prompt_holds_what_its_answer_takes(tokenizer):
    spec = WorkloadSpec(prompts=40, categories=("known",), prompt_tokens=(24, 160))
    prompts = build(spec, tokenizer, seed=0).prompts
    for prompt in prompts:
        assert prompt.answer is not None
        if "code of" in prompt.text:
            assert f"is {prompt.answer}." in prompt.text
        elif "," in prompt.answer:
            first = int(prompt.answer.split(",")[0])
            assert f"{first - 1}," in prompt.text
        else:
            assert prompt.answer in prompt.text
    kinds = {("code" in p.text, "Say" in p.text) for p in prompts}
    assert len(kinds) == 3


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("7, 8, 9,", "10, 11, 12"),
        ("Say: 10 20 30\nSay: 10 20 30\nSay:", "10 20 30"),
        ("The code of cat is 1234.\nThe code of dog is 4321.\nThe code of cat is", "1234"),
        ("The code of dog is 4321.\nThe code of cat is", None),
        ("What is the code of dog?", None),
        ("nothing of the kind", None),
    ],
)
def test_the_answer_follows_from_the_text(text, answer):
    assert answer_of(text) == answer


def test_other_prompts_have_none():
    assert not [p for p in build(WorkloadSpec(prompts=8), toy(), seed=0).prompts if p.answer]
