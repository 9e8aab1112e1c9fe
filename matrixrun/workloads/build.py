"""From a WorkloadSpec and a tokenizer to prompts of the lengths asked for."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from matrixrun.evidence.errors import UserError
from matrixrun.matrix.schema import WorkloadSpec
from matrixrun.workloads import known, own, turns
from matrixrun.workloads.draws import between, choose, generator
from matrixrun.workloads.prompts import Prompt, Workload, workload_of
from matrixrun.workloads.registry import CONVERSATIONS, KNOWN, WRITERS, check_categories
from matrixrun.workloads.tokenizer import Tokenizer

# Tries for a prompt of the right length that is not there already.
ATTEMPTS = 40


def build(
    spec: WorkloadSpec, tokenizer: Tokenizer, *, seed: int, vocabulary_size: int | None = None
) -> Workload:
    """Return the workload that `spec` describes, rendered and tokenized.

    Prompts are drawn from `spec.categories` in turn; a prompt depends on seed, category, its
    number and the tokenizer alone, so a larger workload begins with the smaller one's prompts.
    Those of a file come in an order drawn by the seed.

    Args:
        spec: how many prompts, of which lengths (in tokens, template and BOS included).
        tokenizer: the target's own. Its chat template is used when `spec.chat` is true, and
            when it is None and there is one.
        seed: the matrix's seed.
        vocabulary_size: rows of the target's embedding, where they are fewer than the
            tokenizer's entries.

    Raises:
        UserError: the spec cannot be met with this tokenizer or this file.
    """
    limit = tokenizer.vocabulary_size
    if vocabulary_size is not None:
        limit = min(limit, vocabulary_size)
    if spec.path is not None:
        prompts = own.read(spec, tokenizer, vocabulary_size=limit)
        # A file may go from easy to hard, which is not to look like time.
        return workload_of(tuple(choose(generator(seed, "order"), prompts, len(prompts))))
    check_categories(spec.categories)
    low, high = spec.prompt_tokens
    if not 1 <= low <= high:
        raise UserError(
            f"workload.prompt_tokens: [{low}, {high}] is no range of lengths",
            remedy="write the least and the most number of tokens, such as [16, 128]",
        )
    chat = spec.chat if spec.chat is not None else tokenizer.chat_template is not None
    maker = _Maker(tokenizer, seed, low, high, limit, chat)
    numbers: Counter[str] = Counter()
    for index in range(spec.prompts):
        category = spec.categories[index % len(spec.categories)]
        maker.add(category, numbers[category])
        numbers[category] += 1
    return workload_of(tuple(maker.prompts.values()))


Key = tuple[int, str, int, int]


@dataclass
class _Maker:
    """Makes prompts of `low` to `high` tokens with ids below `limit`, no two of them the same."""

    tokenizer: Tokenizer
    seed: int
    low: int
    high: int
    limit: int
    chat: bool
    prompts: dict[tuple[int, ...], Prompt] = field(default_factory=dict)

    def add(self, category: str, number: int) -> None:
        """Make prompt `number` of `category`."""
        for attempt in range(ATTEMPTS):
            key = (self.seed, category, number, attempt)
            length = between(generator(*key, "length"), self.low, self.high)
            make = _chat if self.chat else _plain
            token_ids, text = make(self.tokenizer, key, length)
            answer = known.answer_of(text) if category in KNOWN else None
            if self._usable(token_ids) and (answer is not None or category not in KNOWN):
                self.prompts[token_ids] = Prompt(
                    id=f"{category}-{number:04d}",
                    category=category,
                    token_ids=token_ids,
                    text=text,
                    follow_ups=self._follow_ups(key),
                    answer=answer,
                )
                return
        template = " through the chat template" if self.chat else ""
        raise UserError(
            f"workload: no further {category!r} prompt of {self.low} to {self.high} tokens can be "
            f"made with {self.tokenizer.name}{template} (there are {len(self.prompts)})",
            remedy="widen `workload.prompt_tokens`, ask for fewer prompts, or set `workload.chat`",
        )

    def _follow_ups(self, key: Key) -> tuple[tuple[int, ...], ...]:
        if key[1] not in CONVERSATIONS:
            return ()
        return turns.follow_ups(generator(*key, "turns"), self.tokenizer, chat=self.chat)

    def _usable(self, token_ids: tuple[int, ...]) -> bool:
        fits = self.low <= len(token_ids) <= self.high
        return fits and token_ids not in self.prompts and max(token_ids) < self.limit


def _plain(tokenizer: Tokenizer, key: Key, length: int) -> tuple[tuple[int, ...], str]:
    """Return the last `length` tokens of a text, behind the tokenizer's own prefix."""
    room = max(1, length - len(tokenizer.prefix))
    # A word is at least one token, so as many words as tokens are always enough.
    text = WRITERS[key[1]](generator(*key), room, chat=False)
    kept = tokenizer.encode(text)[-room:]
    return tokenizer.prefix + kept, tokenizer.decode(kept)


def _chat(tokenizer: Tokenizer, key: Key, length: int) -> tuple[tuple[int, ...], str]:
    """Return a rendered message of at most `length` tokens if its text can be that short."""

    def rendered(words: int) -> tuple[tuple[int, ...], str]:
        content = WRITERS[key[1]](generator(*key), words, chat=True)
        text = tokenizer.render([{"role": "user", "content": content}])
        return tokenizer.encode(text), text

    least, most = 1, length
    while least < most:
        middle = (least + most + 1) // 2
        if len(rendered(middle)[0]) <= length:
            least = middle
        else:
            most = middle - 1
    return rendered(least)
