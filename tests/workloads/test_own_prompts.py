"""The user's own JSONL."""

import json

import pytest
from toy_tokenizers import CHAT, toy

from matrixrun.evidence.errors import UserError
from matrixrun.matrix.schema import WorkloadSpec
from matrixrun.workloads import build


@pytest.fixture
def read(tmp_path):
    """Return a function that builds the workload of these lines, in their order."""
    path = tmp_path / "mine.jsonl"

    def build_lines(*lines, tokenizer=None, prompts=None, **fields):
        texts = [line if isinstance(line, str) else json.dumps(line) for line in lines]
        path.write_text("\n".join(texts) + "\n")
        spec = WorkloadSpec(path=str(path), prompts=prompts or len(lines), **fields)
        prompts_read = build(spec, tokenizer or toy(bos=True), seed=0).prompts
        return tuple(sorted(prompts_read, key=lambda prompt: prompt.id))

    return build_lines


def test_prompts_ids_and_conversations_are_read(read):
    tokenizer = toy(bos=True, chat=CHAT)
    talk = [
        {"from": "system", "value": "Be short."},
        {"from": "human", "value": "Hello"},
        {"from": "gpt", "value": "Hi"},
        {"from": "human", "value": "Bye"},
        {"from": "gpt", "value": "Farewell"},
    ]
    text, ids, chat = read(
        {"prompt": "for x in y"},
        {"token_ids": [5, 6, 7]},
        {"conversations": talk},
        tokenizer=tokenizer,
        chat=False,
    )
    assert text.token_ids == (0, *tokenizer.encode("for x in y"))
    assert ids.token_ids == (5, 6, 7)
    assert ids.text is None
    assert chat.text == (
        "<s>system\nBe short.\n<s>user\nHello\n<s>assistant\nHi\n<s>user\nBye\n<s>assistant\n"
    )
    assert [prompt.id for prompt in (text, ids, chat)] == ["own-0000", "own-0001", "own-0002"]


def test_a_file_that_goes_from_easy_to_hard_is_not_sent_in_its_order(tmp_path):
    path = tmp_path / "mine.jsonl"
    path.write_text("".join(f'{{"token_ids": [{3 + place}, 7]}}\n' for place in range(40)))
    spec = WorkloadSpec(path=str(path), prompts=40)
    one, same, other = (
        [prompt.id for prompt in build(spec, toy(), seed=seed).prompts] for seed in (0, 0, 1)
    )
    assert one == same != other
    early, late = (sum(int(name[4:]) for name in part) / 20 for part in (one[:20], one[20:]))
    assert abs(early - late) < 12


def test_openai_style_turns_are_conversations_too(read):
    turns = [{"role": "user", "content": "Hello"}]
    (prompt,) = read({"conversations": turns}, tokenizer=toy(chat=CHAT))
    assert prompt.text == "<s>user\nHello\n<s>assistant\n"


def test_a_chat_template_wraps_plain_prompts_by_default(read):
    (prompt,) = read({"prompt": "Hello"}, tokenizer=toy(chat=CHAT))
    assert prompt.text == "<s>user\nHello\n<s>assistant\n"


def test_only_the_prompts_asked_for_are_taken_and_repeats_are_skipped(read):
    lines = [{"prompt": "one"}, {"prompt": "one"}, {"prompt": "two"}, "", {"prompt": "three"}]
    assert [prompt.text for prompt in read(*lines, prompts=2)] == ["one", "two"]


def test_too_few_different_prompts_is_said_with_the_number_that_would_do(read):
    with pytest.raises(UserError, match=r"holds 1 different prompts(?s:.*)`prompts: 1`"):
        read({"prompt": "one"}, {"prompt": "one"})


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("{", r":2: not JSON"),
        ("[1]", r":2: list instead of an object"),
        (r'{"prompt": "a \ud800 b"}', r":2: holds half of a character \('\\ud800'\)"),
        (r'{"turns": ["a", "\udc00"]}', r":2: holds half of a character"),
        (
            {"text": "x"},
            r":2: needs exactly one of prompt, token_ids, conversations, turns; has text",
        ),
        ({"prompt": "x", "token_ids": [1]}, r":2: needs exactly one"),
        ({"prompt": ""}, r":2: prompt must be a text that is not empty"),
        ({"prompt": 3}, r":2: prompt must be a text"),
        ({"token_ids": [1, "2"]}, r":2: token_ids must be a list of integers"),
        ({"token_ids": [True]}, r":2: token_ids must be a list of integers"),
        ({"token_ids": []}, r":2: the prompt has no tokens"),
        ({"token_ids": [1024]}, r":2: token id 1024 is outside the vocabulary of 1024"),
        ({"token_ids": [-1]}, r":2: token id -1 is outside"),
        ({"token_ids": [1] * 129}, r":2: 129 tokens; workload\.prompt_tokens allows 128"),
        ({"conversations": []}, r":2: conversations must be a list of turns"),
        ({"conversations": ["x"]}, r":2: conversations\[0\]: must be an object"),
        ({"conversations": [{"from": "robot", "value": "x"}]}, r":2: conversations\[0\]: from"),
        ({"conversations": [{"from": "gpt", "value": "x"}]}, r":2: .*no turn of the user"),
        ({"conversations": [{"from": "human"}]}, r":2: conversations\[0\]: needs `value`"),
    ],
)
def test_a_bad_line_is_named_by_its_number(read, line, message):
    with pytest.raises(UserError, match=rf"mine\.jsonl{message}"):
        read({"prompt": "fine"}, line, tokenizer=toy(chat=CHAT))


def test_a_missing_file_is_named(tmp_path):
    spec = WorkloadSpec(path=str(tmp_path / "gone.jsonl"), prompts=1)
    with pytest.raises(UserError, match=r"workload\.path: .*gone\.jsonl cannot be read"):
        build(spec, toy(), seed=0)


def test_a_line_separator_inside_a_text_ends_no_line(read):
    (prompt,) = read(json.dumps({"prompt": "a\u2028b"}, ensure_ascii=False))
    assert prompt.text == "a\u2028b"


def test_the_users_turns_are_a_prompt_with_follow_ups_in_its_own_category(read):
    tokenizer = toy(chat=CHAT)
    entry = {"question_id": 81, "category": "writing", "turns": ["Hello", "Bye"]}
    (prompt,) = read(entry, tokenizer=tokenizer)
    assert prompt.category == "writing"
    assert prompt.token_ids == tokenizer.encode("<s>user\nHello\n<s>assistant\n")
    assert prompt.follow_ups == (tokenizer.encode("\n<s>user\nBye\n<s>assistant\n"),)


@pytest.mark.parametrize("turns", [[], "Hello", [""], [{"role": "user"}]])
def test_turns_that_are_no_texts_are_refused(read, turns):
    with pytest.raises(UserError, match="turns must be a list of texts"):
        read({"turns": turns})
