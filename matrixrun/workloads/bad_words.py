"""Words of a prompt's own text that a request may forbid in its answer, with the token ids that
they have there.

Answers say again what prompts say, so frequent words of the prompt would come. Words of one token
and of several are wanted: phrases of two words are of several with every vocabulary.
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Callable, Iterator

import msgspec

from matrixrun.evidence.requests import BadWord
from matrixrun.workloads.prompts import Prompt, Workload, workload_of
from matrixrun.workloads.tokenizer import Tokenizer

# Of several tokens and of one. More would leave a small model little to say.
LONGER, SINGLE = 2, 1
# The best so many by frequency are looked at: each takes the tokenizer twice.
LOOKED_AT = 32
_LETTERS = r"[^\W\d_]{2,}"
_WORD = re.compile(rf"\b{_LETTERS}\b")
_PHRASE = re.compile(rf"\b(?=({_LETTERS} {_LETTERS})\b)")

Encode = Callable[[str], tuple[int, ...]]


def with_bad_words(
    workload: Workload, tokenizer: Tokenizer, *, first: int | None = None
) -> Workload:
    """Return the workload with bad words for its prompts, or for the `first` so many.

    A prompt has `LONGER` words of several tokens and `SINGLE` of one, as far as its text holds such
    whose token sequences stand in its own token ids.
    """
    encode = functools.cache(tokenizer.encode)
    some = workload.prompts[:first]
    texts = [prompt.text or tokenizer.decode(prompt.token_ids) for prompt in some]
    known = Counter(word for text in texts for word in set(_words(text)))
    made = (
        msgspec.structs.replace(prompt, bad_words=_chosen(prompt, text, known, encode))
        for prompt, text in zip(some, texts, strict=True)
    )
    return workload_of((*made, *workload.prompts[len(some) :]))


def banned_sequences(text: str, encode: Encode) -> tuple[tuple[int, ...], ...]:
    """Return the token sequences by which vLLM knows a bad word: the text's, and the text's behind
    a space where that has as many tokens and another first one (`SamplingParams`, 0.32)."""
    plain, spaced = encode(text.lstrip()), encode(" " + text.lstrip())
    if len(spaced) == len(plain) and spaced[:1] != plain[:1]:
        return plain, spaced
    return (plain,)


def _words(text: str) -> Iterator[str]:
    """Yield every word and every two words with a space between them."""
    yield from _WORD.findall(text)
    yield from _PHRASE.findall(text)


def _chosen(prompt: Prompt, text: str, known: Counter[str], encode: Encode) -> tuple[BadWord, ...]:
    """Return the words whose sequences come most often in this prompt, the more so those that other
    prompts have too; those of one token preferably not of a longer one, whose rest would never
    come."""
    counts = Counter(_words(text))
    likely = sorted(counts, key=lambda word: (-counts[word] * known[word], word))[:LOOKED_AT]
    words = [BadWord(text=word, sequences=banned_sequences(word, encode)) for word in likely]
    come = {
        word.text: sum(_times(one, prompt.token_ids) for one in word.sequences) for word in words
    }
    found = sorted(
        (word for word in words if come[word.text]),
        key=lambda word: -come[word.text] * known[word.text],
    )
    longer = [word for word in found if len(word.sequences[0]) > 1][:LONGER]
    taken = {id_ for word in longer for one in word.sequences for id_ in one}
    single = [word for word in found if len(word.sequences[0]) == 1]
    single.sort(key=lambda word: any(one[0] in taken for one in word.sequences))
    return (*longer, *single[:SINGLE])


def _times(sequence: tuple[int, ...], ids: tuple[int, ...]) -> int:
    """Return how often a sequence of tokens stands among others."""
    size = len(sequence)
    places = range(len(ids) - size + 1) if size else ()
    return sum(ids[place : place + size] == sequence for place in places)
