# mypy: ignore-errors
"""What drafts learn from: what the target says about text it has not seen."""

import torch
from torch import Tensor
from torch.nn import functional
from training import Batches

SHORTEST_PIECE, LONGEST_PIECE = 4, 24  # tokens


def lessons(batches: Batches, rows: int, length: int, plain: int) -> Tensor:
    """Return ids [rows, length] for a draft to learn from.

    The first `plain` rows are the text as it stands. The others are short pieces joined at random:
    the prompts of a test are not in the text that the target knows by heart. Torn-out pieces are
    new to the target as well, and cost nothing, where letting it write would.
    """
    known = [batches.piece(length) for _ in range(plain)]
    return torch.stack(known + [_spliced_row(batches, length) for _ in range(rows - plain)])


def _spliced_row(batches: Batches, length: int) -> Tensor:
    pieces: list[Tensor] = []
    while sum(map(len, pieces)) < length:
        size = batches.below(LONGEST_PIECE - SHORTEST_PIECE + 1) + SHORTEST_PIECE
        pieces.append(batches.piece(size))
    return torch.cat(pieces)[:length]


def agreement_loss(draft_logits: Tensor, target_logits: Tensor) -> Tensor:
    """Return the cross entropy of the draft against the target's distribution."""
    wanted = target_logits.flatten(0, -2).softmax(-1)
    return functional.cross_entropy(draft_logits.flatten(0, -2), wanted)


def attend_to_drafts(query: Tensor, keys: list[Tensor], values: list[Tensor]) -> Tensor:
    """Return the attention of draft s: over the target's states and drafts 1 to s of its own row.

    All arguments are [rows, heads, length, head_dim]; entry t of keys[s] stands at position t + s.
    In serving, a position before the draft always carries the target's state: keys[0].
    """
    length, scale = query.size(-2), query.size(-1) ** -0.5
    future = torch.ones(length, length, dtype=torch.bool).triu(1)
    scores = [(query @ keys[0].mT).masked_fill(future, -torch.inf)]
    scores += [(query * key).sum(-1, keepdim=True) for key in keys[1:]]
    weights = (torch.cat(scores, -1) * scale).softmax(-1)
    mixed = weights[..., :length] @ values[0]
    for extra, value in enumerate(values[1:]):
        mixed = mixed + weights[..., length + extra, None] * value
    return mixed.transpose(1, 2).flatten(2)
