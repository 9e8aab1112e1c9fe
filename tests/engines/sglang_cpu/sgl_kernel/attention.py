"""Stand-in for the two attention ops of SGLang's CPU backend: float32, one request at a time.

Importing it registers `sgl_kernel::extend_attention_cpu` and `sgl_kernel::decode_attention_cpu`.
Sliding windows, sinks, cross attention and 8-bit caches are not there and say so.
"""

from __future__ import annotations

import torch
from torch import Tensor

_OPS = torch.library.Library("sgl_kernel", "FRAGMENT")
_OPS.define(
    "extend_attention_cpu(Tensor q, Tensor? k, Tensor? v, Tensor(a!) out, Tensor keys,"
    " Tensor values, float key_scale, float value_scale, Tensor table, Tensor rows,"
    " Tensor lengths, Tensor extends, Tensor starts, int longest, float scale, float cap,"
    " bool cross, int window, Tensor? encoder_lengths, Tensor? sinks, Tensor? tree,"
    " bool causal) -> ()"
)
_OPS.define(
    "decode_attention_cpu(Tensor q, Tensor(a!) keys, Tensor(b!) values, float key_scale,"
    " float value_scale, Tensor(c!) out, Tensor? k, Tensor? v, Tensor slots, Tensor scratch,"
    " Tensor table, Tensor rows, Tensor lengths, float scale, float cap, bool cross,"
    " int window, Tensor? encoder_lengths, Tensor? sinks) -> ()"
)


def _extend(
    q, k, v, out, keys, values, key_scale, value_scale, table, rows, lengths, extends, starts,
    longest, scale, cap, cross, window, encoder_lengths, sinks, tree, causal,
):  # fmt: skip
    """Attention of each request's last `extends` tokens to all of its tokens."""
    _only_plain(keys, cross, window, sinks)
    masks = _tree_masks(tree, lengths.tolist(), extends.tolist())
    sizes = (lengths.tolist(), extends.tolist(), starts.tolist())
    for row, length, count, start, mask in zip(rows.tolist(), *sizes, masks, strict=True):
        seen = torch.ones(count, length, dtype=torch.bool) if mask is None else mask
        if mask is None and causal:
            seen = torch.tril(seen, diagonal=length - count)
        part = slice(start, start + count)
        out[part] = _attend(q[part], keys, values, table[row, :length].long(), seen, scale, cap)


def _decode(
    q, keys, values, key_scale, value_scale, out, k, v, slots, scratch, table, rows, lengths,
    scale, cap, cross, window, encoder_lengths, sinks,
):  # fmt: skip
    """Attention of one token a request to all of its tokens; keeps that token's key and value."""
    _only_plain(keys, cross, window, sinks)
    if k is not None:
        keys[slots] = k.view(-1, *keys.shape[1:]).to(keys.dtype)
        values[slots] = v.view(-1, *values.shape[1:]).to(values.dtype)
    for place, (row, length) in enumerate(zip(rows.tolist(), lengths.tolist(), strict=True)):
        seen = torch.ones(1, length, dtype=torch.bool)
        part = slice(place, place + 1)
        out[part] = _attend(q[part], keys, values, table[row, :length].long(), seen, scale, cap)


def _attend(
    q: Tensor, keys: Tensor, values: Tensor, slots: Tensor, seen: Tensor, scale: float, cap: float
) -> Tensor:
    """Softmax attention of q [n, heads, size] to the tokens in `slots` [l], as `seen` [n, l]."""
    key, value = (part[slots].transpose(0, 1).float() for part in (keys, values))
    shared = q.shape[1] // key.shape[0]
    key, value = (part.repeat_interleave(shared, 0) for part in (key, value))
    logits = (q.transpose(0, 1).float() @ key.transpose(1, 2)) * scale
    if cap:
        logits = cap * torch.tanh(logits / cap)
    weights = logits.masked_fill(~seen, float("-inf")).softmax(-1)
    return (weights @ value).transpose(0, 1).to(q.dtype)


def _tree_masks(tree: Tensor | None, lengths: list[int], extends: list[int]) -> list[Tensor | None]:
    """Return what each request's draft tokens may see [n, l], None where there is no tree.

    SGLang lays masks end to end: over the draft tokens alone, or over the text before them too.
    """
    if tree is None:
        return [None] * len(lengths)
    flat, masks, taken = tree.reshape(-1).bool(), [], 0
    drafts_only = flat.numel() == sum(count * count for count in extends)
    for length, count in zip(lengths, extends, strict=True):
        width = count if drafts_only else length
        mask = torch.ones(count, length, dtype=torch.bool)
        mask[:, length - width :] = flat[taken : taken + count * width].view(count, width)
        masks.append(mask)
        taken += count * width
    return masks


def _only_plain(keys: Tensor, cross: bool, window: int, sinks: Tensor | None) -> None:
    if cross or window > 0 or sinks is not None or keys.dtype.itemsize < 2:
        raise NotImplementedError(
            "the stand-in kernels have no cross attention, sliding window, attention sinks or "
            "8-bit caches"
        )


_OPS.impl("extend_attention_cpu", _extend, "CPU")
_OPS.impl("decode_attention_cpu", _decode, "CPU")
