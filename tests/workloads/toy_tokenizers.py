"""Small tokenizers for the tests."""

from pydoc_data.topics import topics

import tokenizers
from tokenizers import AddedToken, decoders, models, pre_tokenizers, processors, trainers

from matrixrun.workloads import Tokenizer

CHAT = (
    "{% for message in messages %}<s>{{ message['role'] }}\n{{ message['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}<s>assistant\n{% endif %}"
)


def inner(vocabulary: int = 1024, *, bos: bool = False) -> tokenizers.Tokenizer:
    """Return a byte-level BPE tokenizer of `vocabulary` entries."""
    made = tokenizers.Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[AddedToken("<s>", special=True)],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    made.train_from_iterator([topics["if"], topics["for"], topics["class"]], trainer)
    if bos:
        made.post_processor = processors.TemplateProcessing(
            single="<s> $A", special_tokens=[("<s>", 0)]
        )
    return made


def toy(vocabulary: int = 1024, *, bos: bool = False, chat: str | None = None) -> Tokenizer:
    """Return a Tokenizer over `inner`."""
    return Tokenizer(inner(vocabulary, bos=bos), name="toy", chat_template=chat)
