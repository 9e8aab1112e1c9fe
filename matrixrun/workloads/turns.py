"""`chat`: an opening question and the user's further turns, for conversations whose every turn
builds on the answers before it.

A prompt of this category is its opening; the further turns are its `follow_ups`: the token ids that
stand between an answer and the next one.
"""

from __future__ import annotations

from random import Random

from matrixrun.evidence.errors import UserError
from matrixrun.workloads.decided import WORDS
from matrixrun.workloads.draws import below, between, choose
from matrixrun.workloads.tokenizer import Tokenizer

FOLLOW_UPS = 3
# Stands for an answer while a template is rendered; no template and no text holds it.
MARK = "zqxANSWERxqz"

OPENINGS = (
    "Tell me a short story about {0}, {1} and {2}.",
    "List five facts about {0} and say which of them is true for {1} too.",
    "Write the words {0}, {1}, {2} again and again, one a line.",
    "How does one get from {0} to {1} without passing {2}?",
)
QUESTIONS = (
    "And what about {0}?",
    "Say that again, but put {0} before {1}.",
    "Which of {0} and {1} did you mean, and why?",
    "Go on from there, with {0} in it.",
    "Repeat your last answer word for word, then add {0}.",
)


def write(random: Random, words: int, *, chat: bool) -> str:
    """Return the user's first turn, of at least `words` words where it is a text to continue.

    Args:
        random: where every choice comes from.
        words: the least number of words, except in a chat.
        chat: whether the text is a message to an assistant rather than a text to continue.
    """
    question = _filled(random, OPENINGS)
    if chat:
        return question
    # What is cut off to reach a length is the front: older turns of the same kind.
    turns = [_turn(question)]
    while sum(len(turn.split()) for turn in turns) < words:
        answer = " ".join(choose(random, WORDS, between(random, 3, 6)))
        turns.insert(0, f"{_turn(_filled(random, OPENINGS))} {answer}\n")
    return "".join(turns)


def follow_ups(
    random: Random, tokenizer: Tokenizer, *, chat: bool, count: int = FOLLOW_UPS
) -> tuple[tuple[int, ...], ...]:
    """Return the user's further turns as the token ids between two answers.

    Args:
        random: where every choice comes from.
        tokenizer: the target's own.
        chat: whether turns are rendered through its chat template.
        count: how many.

    Raises:
        UserError: the chat template has no place for an assistant's answer.
    """
    questions = [_filled(random, QUESTIONS) for _ in range(count)]
    return tuple(between_answers(tokenizer, question, chat=chat) for question in questions)


def between_answers(tokenizer: Tokenizer, question: str, *, chat: bool) -> tuple[int, ...]:
    """Return the ids that stand between an answer and the next one: the user's turn, rendered.

    Raises:
        UserError: the chat template has no place for an assistant's answer.
    """
    text = _rendered(tokenizer, question) if chat else f"\n{_turn(question)}"
    return tokenizer.encode(text)


def _filled(random: Random, forms: tuple[str, ...]) -> str:
    return forms[below(random, len(forms))].format(*choose(random, WORDS, 3))


def _turn(question: str) -> str:
    return f"User: {question}\nAssistant:"


def _rendered(tokenizer: Tokenizer, question: str) -> str:
    """Return what the template puts after an answer, up to where the next one begins: the end of
    the assistant's turn, the user's turn, the start of the assistant's."""
    text = tokenizer.render(
        [
            {"role": "user", "content": "-"},
            {"role": "assistant", "content": MARK},
            {"role": "user", "content": question},
        ]
    )
    _, mark, after = text.rpartition(MARK)
    if not mark:
        raise UserError(
            f"the chat template of {tokenizer.name} leaves an assistant's answer out",
            remedy="set `workload.chat: false`, or leave the category `chat` out",
        )
    return after
