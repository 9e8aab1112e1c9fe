# mypy: ignore-errors
"""The text small checkpoints learn from, and the tokenizer trained on it.

The text is what every Python carries along: the language reference behind `help()`. It depends on
the interpreter's minor version, so checkpoints built by two interpreters may differ; two builds by
one interpreter do not.
"""

import json
import os
from pathlib import Path

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

from pydoc_data.topics import topics

from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

VOCAB_SIZE = 1024
END_OF_TEXT = "<|endoftext|>"
PADDING = "<|padding|>"
END_OF_TEXT_ID, PADDING_ID = 0, 1
MAX_LENGTH = 2048

# Chosen for plain prose and code in equal parts; short enough to be learnt by heart, because a
# model that knows its text has the peaked distributions that a trained model has.
TOPICS = (
    "assignment", "booleans", "break", "calls", "class", "comparisons", "context-managers",
    "continue", "exceptions", "for", "function", "if", "import", "lambda", "naming", "numbers",
    "operator-summary", "pass", "raise", "return", "sequence-types", "slicings", "try",
    "types", "while", "with", "yield",
)  # fmt: skip


def _unwrap(text: str) -> str:
    """Return `text` with the lines of each paragraph of prose joined; code keeps its lines."""
    paragraphs = [part.rstrip() for part in text.split("\n\n") if part.strip()]
    return "\n".join(p if p.startswith("   ") else " ".join(p.split()) for p in paragraphs)


def documents(limit: int = 1700) -> list[str]:
    """Return the texts, each cut to at most `limit` characters at a line end."""
    found = [_unwrap(topics[name]) for name in TOPICS if name in topics]
    return [text[: text.rfind(" ", 0, limit)] if len(text) > limit else text for text in found]


def train_tokenizer(texts: list[str]) -> Tokenizer:
    """Return a byte-level BPE tokenizer of `VOCAB_SIZE` entries; ids 0 and 1 are special."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=VOCAB_SIZE,
        special_tokens=[AddedToken(END_OF_TEXT, special=True), AddedToken(PADDING, special=True)],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def save_tokenizer(tokenizer: Tokenizer, folder: Path) -> None:
    """Write `tokenizer.json` and `tokenizer_config.json` into `folder`."""
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": END_OF_TEXT,
        "pad_token": PADDING,
        "bos_token": None,
        "add_bos_token": False,
        "add_eos_token": False,
        "clean_up_tokenization_spaces": False,
        "model_max_length": MAX_LENGTH,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config, indent=1) + "\n")


def encode(tokenizer: Tokenizer, texts: list[str]) -> list[int]:
    """Return one stream of ids with an end-of-text id after each text."""
    stream: list[int] = []
    for text in texts:
        stream += [*tokenizer.encode(text).ids, END_OF_TEXT_ID]
    return stream
