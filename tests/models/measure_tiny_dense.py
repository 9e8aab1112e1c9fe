# mypy: ignore-errors
"""Measure a built tiny-dense family with plain torch; run under an engine's interpreter.

`python measure_tiny_dense.py RECIPES FAMILY` prints one JSON object: the draft's accepted share
per position when every token is the most likely one, quantiles of the target's top-2 gap (nats)
and the share of distinct 4-grams in its continuations.
"""

import json
import sys
from pathlib import Path

recipes, family = Path(sys.argv[1]), Path(sys.argv[2])
sys.path.insert(0, str(recipes))

import torch  # noqa: E402
from dense import Qwen3, Shape  # noqa: E402
from safetensors.torch import load_file  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402

SPECULATED, NEW_TOKENS = 3, 64
PROMPTS = (
    "The quick brown fox jumps over the lazy dog. The",
    "def add(a, b):\n    return",
    "Paris is the capital of",
    "When the function is called with no arguments, the",
    "import os\nfor name in os.listdir(",
    "Once upon a time there was a small class that",
    "x = [1, 2, 3]\ny = [1, 2, 3]\nz = [1,",
    "Write a short story about a train that never stops.",
    "If an exception is raised in the",
    "The weather today is",
    "while True:\n    try:",
    "A generator is",
    "Explain the difference between a list and a tuple.",
    "Sort the following numbers: 9 4 7 1",
    "The value of the expression is",
    "with open(path) as file:",
)


def load(folder: Path) -> Qwen3:
    config = json.loads((folder / "config.json").read_text())
    model = Qwen3(Shape(**{k: config[k] for k in Shape().as_config()}))
    weights = load_file(folder / "model.safetensors")
    model.load_state_dict({k: v.float() for k, v in weights.items()})
    return model.requires_grad_(False)


def greedy(model: Qwen3, ids: torch.Tensor, tokens: int) -> torch.Tensor:
    for _ in range(tokens):
        ids = torch.cat([ids, model(ids)[:, -1:].argmax(-1)], 1)
    return ids


def main() -> None:
    torch.set_num_threads(1)
    target, draft = load(family / "target"), load(family / "draft")
    tokenizer = Tokenizer.from_file(str(family / "target" / "tokenizer.json"))
    drafted, accepted = [0] * SPECULATED, [0] * SPECULATED
    gaps, distinct = [], []
    for prompt in PROMPTS:
        start = tokenizer.encode(prompt).ids
        ids = greedy(target, torch.tensor([start]), NEW_TOKENS)
        top = target(ids)[0, len(start) - 1 : -1]
        top = top.topk(2).values
        gaps.append(top[:, 0] - top[:, 1])
        new = ids[0, len(start) :].tolist()
        distinct.append(len({tuple(new[i : i + 4]) for i in range(NEW_TOKENS - 3)}))
        at = len(start) + 1
        while at + SPECULATED < ids.size(1):
            guess = greedy(draft, ids[:, :at], SPECULATED)[0, at:].tolist()
            wanted = ids[0, at : at + SPECULATED].tolist()
            right = next((i for i in range(SPECULATED) if guess[i] != wanted[i]), SPECULATED)
            for position in range(SPECULATED):
                drafted[position] += 1
                accepted[position] += position < right
            at += right + 1
    quantiles = torch.cat(gaps).quantile(torch.tensor([0.05, 0.25, 0.5, 0.75])).tolist()
    report = {
        "accepted_share": sum(accepted) / sum(drafted),
        "accepted_share_per_position": [a / d for a, d in zip(accepted, drafted, strict=True)],
        "top2_gap_quantiles_5_25_50_75": quantiles,
        "distinct_4grams_share": [d / (NEW_TOKENS - 3) for d in distinct],
    }
    print(json.dumps(report))


main()
