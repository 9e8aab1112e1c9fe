"""Prompts that the program makes."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_tokenizers import CHAT, toy

from matrixrun.evidence.errors import UserError
from matrixrun.matrix.schema import WorkloadSpec
from matrixrun.workloads import build, names


def spec(**fields) -> WorkloadSpec:
    return WorkloadSpec(**{"prompts": 20, **fields})


@pytest.fixture(scope="module", params=["plain", "bos", "chat", "small vocabulary"])
def tokenizer(request):
    return {
        "plain": toy,
        "bos": lambda: toy(bos=True),
        "chat": lambda: toy(chat=CHAT),
        "small vocabulary": lambda: toy(300),
    }[request.param]()


def test_every_prompt_has_a_length_within_the_range(tokenizer):
    made = build(spec(prompt_tokens=(60, 140)), tokenizer, seed=0)
    assert all(60 <= len(prompt.token_ids) <= 140 for prompt in made.prompts)
    assert len({len(prompt.token_ids) for prompt in made.prompts}) > 3


def test_no_two_prompts_are_the_same(tokenizer):
    made = build(spec(prompts=80, prompt_tokens=(60, 160)), tokenizer, seed=0)
    assert len({prompt.token_ids for prompt in made.prompts}) == 80


def test_categories_have_equal_parts_and_ids_a_person_can_type():
    made = build(spec(), toy(), seed=0)
    assert [prompt.id for prompt in made.prompts[:4]] == [
        "decided-0000",
        "natural-0000",
        "decided-0001",
        "natural-0001",
    ]
    assert sum(prompt.category == "natural" for prompt in made.prompts) == 10


def test_the_same_seed_gives_the_same_bytes_and_another_seed_others(tokenizer):
    wanted = spec(prompt_tokens=(60, 140))
    first, again = (build(wanted, tokenizer, seed=3) for _ in range(2))
    assert first == again
    assert first.sha256 != build(wanted, tokenizer, seed=4).sha256


def test_decided_prompts_have_the_same_bytes_on_every_python():
    # The natural ones come from Python's own documentation, which changes with its version.
    decided = spec(categories=("decided",), prompt_tokens=(12, 24))
    texts = [prompt.text for prompt in build(decided, ByteTokenizer(), seed=0).prompts]
    assert texts[:3] == EXPECTED_TEXTS


def test_a_larger_workload_begins_with_the_smaller_one():
    small, large = (build(spec(prompts=n), toy(), seed=0).prompts for n in (10, 30))
    assert large[:10] == small


def test_the_hash_covers_tokens_and_ids_but_not_the_texts():
    from matrixrun.workloads.prompts import Prompt, workload_of

    def sha(identifier: str, tokens: tuple[int, ...], text: str | None) -> str:
        prompt = Prompt(id=identifier, category="own", token_ids=tokens, text=text)
        return workload_of((prompt,)).sha256

    assert sha("a", (1, 2), None) == sha("a", (1, 2), "text")
    assert sha("a", (1, 2), None) != sha("a", (1, 3), None)
    assert sha("a", (1, 2), None) != sha("b", (1, 2), None)


def test_a_bos_stands_once_before_every_plain_prompt_and_counts():
    made = build(spec(prompt_tokens=(16, 16)), toy(bos=True), seed=0)
    assert {prompt.token_ids[0] for prompt in made.prompts} == {0}
    assert {len(prompt.token_ids) for prompt in made.prompts} == {16}
    assert all(0 not in prompt.token_ids[1:] for prompt in made.prompts)


def test_a_chat_template_is_used_where_there_is_one_unless_told_otherwise():
    tokenizer = toy(chat=CHAT)
    wanted = spec(prompt_tokens=(30, 120))
    by_default = build(wanted, tokenizer, seed=0).prompts
    assert all(prompt.text.endswith("<s>assistant\n") for prompt in by_default)
    assert all(prompt.token_ids.count(0) == 2 for prompt in by_default)
    plain = build(wanted.model_copy(update={"chat": False}), tokenizer, seed=0).prompts
    assert not any("assistant" in prompt.text for prompt in plain)


def test_asking_for_chat_without_a_template_is_the_users_mistake():
    with pytest.raises(UserError, match=r"toy has no chat template(?s:.*)workload\.chat"):
        build(spec(chat=True), toy(), seed=0)


def test_a_range_that_the_template_fills_alone_is_the_users_mistake():
    with pytest.raises(UserError, match=r"3 to 5 tokens(?s:.*)prompt_tokens"):
        build(spec(prompt_tokens=(3, 5)), toy(chat=CHAT), seed=0)


def test_more_prompts_than_can_differ_is_the_users_mistake():
    with pytest.raises(UserError, match=r"no further 'decided' prompt(?s:.*)fewer prompts"):
        build(spec(prompts=3000, categories=("decided",), prompt_tokens=(1, 1)), toy(), seed=0)


def test_no_token_lies_outside_the_targets_vocabulary():
    made = build(spec(), toy(1024), seed=0, vocabulary_size=1000)
    assert max(max(prompt.token_ids) for prompt in made.prompts) < 1000


@pytest.mark.parametrize("bad", [(9, 3)])
def test_a_range_turned_round_is_the_users_mistake(bad):
    with pytest.raises(UserError, match=r"prompt_tokens: \[9, 3\]"):
        build(spec(prompt_tokens=bad), toy(), seed=0)


def test_an_unknown_category_is_answered_with_the_likely_one():
    with pytest.raises(UserError, match=r"'natrual'(?s:.*)did you mean 'natural'"):
        build(spec(categories=("natrual",)), toy(), seed=0)
    assert names()[:2] == ("decided", "natural")


def test_decided_continuations_follow_from_the_prompt():
    made = build(spec(prompts=200, categories=("decided",), prompt_tokens=(60, 60)), toy(), seed=1)
    counts = [p.text for p in made.prompts if p.text.rstrip(",")[-1].isdigit()]
    assert len(counts) > 20
    for text in counts:
        numbers = [int(part) for part in text.strip(" ,").split(", ")[1:]]
        steps = {b - a for a, b in pairwise(numbers)}
        assert len(steps) == 1


@settings(max_examples=25, deadline=None)
@given(low=st.integers(1, 60), width=st.integers(0, 60), seed=st.integers(0, 10**6))
def test_any_range_of_lengths_is_met(low, width, seed):
    wanted = spec(prompts=4, prompt_tokens=(low, low + width))
    lengths = [len(p.token_ids) for p in build(wanted, SHARED, seed=seed).prompts]
    assert all(low <= length <= low + width for length in lengths)


SHARED = toy()


class ByteTokenizer:
    """One token a byte: texts come back as they were written."""

    name, prefix, chat_template, vocabulary_size = "bytes", (), None, 256

    def encode(self, text: str) -> tuple[int, ...]:
        return tuple(text.encode())

    def decode(self, token_ids) -> str:
        return bytes(token_ids).decode()


EXPECTED_TEXTS = [
    "chair house south\nCopy:",
    "13, 214, 215, 216, 217,",
    "6, 109, 112, 115, 118,",
]
