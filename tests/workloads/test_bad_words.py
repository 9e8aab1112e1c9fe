"""Words that a request may forbid: of the prompt's own text, as the engine's tokens."""

from __future__ import annotations

import pytest
from toy_tokenizers import toy

from matrixrun.matrix.schema import WorkloadSpec
from matrixrun.workloads import build, with_bad_words
from matrixrun.workloads.bad_words import LONGER, SINGLE, banned_sequences
from matrixrun.workloads.prompts import Prompt, workload_of

TOKENIZER = toy(1024)


def made(first=None):
    spec = WorkloadSpec(prompts=24, prompt_tokens=(40, 90))
    return with_bad_words(build(spec, TOKENIZER, seed=0), TOKENIZER, first=first)


def stands(sequence, ids):
    return any(ids[place : place + len(sequence)] == sequence for place in range(len(ids)))


def test_every_word_stands_in_its_own_prompt_as_it_is_banned():
    for prompt in made().prompts:
        for word in prompt.bad_words:
            assert word.text in prompt.text
            assert any(stands(one, prompt.token_ids) for one in word.sequences)


def test_words_of_one_token_and_of_several_are_chosen():
    lengths = [
        sorted(len(word.sequences[0]) for word in prompt.bad_words)
        for prompt in made().prompts
        if prompt.category == "natural"
    ]
    assert all(len(some) <= LONGER + SINGLE for some in lengths)
    assert sum(max(some, default=0) > 1 for some in lengths) >= len(lengths) * 3 / 4
    assert sum(min(some, default=0) == 1 for some in lengths) >= len(lengths) / 2


def test_two_phrases_repeat_themselves_and_the_choice_does_too():
    assert made() == made()


def test_the_workload_stays_the_same_one():
    plain = build(WorkloadSpec(prompts=24, prompt_tokens=(40, 90)), TOKENIZER, seed=0)
    assert made().sha256 == plain.sha256
    assert [one.token_ids for one in made().prompts] == [one.token_ids for one in plain.prompts]


def test_only_the_first_prompts_get_words_where_that_is_asked_for():
    given = [bool(prompt.bad_words) for prompt in made(first=6).prompts]
    assert any(given[:6])
    assert not any(given[6:])


def test_a_prompt_of_token_ids_alone_is_read_by_the_tokenizer():
    ids = TOKENIZER.encode("the class and the class and the class")
    alone = workload_of((Prompt(id="p", category="own", token_ids=ids),))
    (prompt,) = with_bad_words(alone, TOKENIZER).prompts
    assert prompt.bad_words


def test_a_text_without_words_has_none():
    ids = TOKENIZER.encode("17, 18, 19,")
    (prompt,) = with_bad_words(
        workload_of((Prompt(id="p", category="own", token_ids=ids, text="17, 18, 19,"),)), TOKENIZER
    ).prompts
    assert prompt.bad_words == ()


@pytest.mark.parametrize(
    ("tokens", "expected"),
    [
        ({"a": (1,), " a": (2,)}, ((1,), (2,))),
        ({"a": (1, 3), " a": (2, 3)}, ((1, 3), (2, 3))),
        ({"a": (1, 3), " a": (2,)}, ((1, 3),)),
        ({"a": (1,), " a": (1,)}, ((1,),)),
        ({"a": (1,), " a": ()}, ((1,),)),
    ],
)
def test_a_word_behind_a_space_is_banned_where_it_has_as_many_tokens_and_another_first(
    tokens, expected
):
    assert banned_sequences("a", tokens.__getitem__) == expected
