"""Stand-in for SGLang's CPU kernels, in plain torch and slow; see the folder's README.

Here: cache slots. `table[r, p]` is the slot in which request r's token at position p lies; a
request's row of the table is named by `rows`. Names and arguments are SGLang's.
"""

from __future__ import annotations

import ctypes

import torch
from torch import Tensor

from sgl_kernel import attention  # noqa: F401 - registers the attention ops
from sgl_kernel.trees import build_tree_kernel_efficient_cpu, verify_tree_greedy_cpu

__all__ = [
    "assign_draft_cache_locs_contiguous_cpu",
    "assign_extend_cache_locs_cpu",
    "assign_req_to_token_pool_cpu",
    "build_draft_decode_metadata_cpu",
    "build_tree_kernel_efficient_cpu",
    "copy_all_layer_kv_cache_cpu",
    "fill_accept_out_cache_loc_cpu",
    "fill_bonus_tokens_cpu",
    "rotate_input_ids_cpu",
    "verify_tree_greedy_cpu",
]


def assign_req_to_token_pool_cpu(
    rows: Tensor, table: Tensor, start: Tensor, end: Tensor, slots: Tensor, _width: int
) -> None:
    """Write `slots`, one request after another, into positions `start` to `end` of each row."""
    taken = 0
    for row, first, stop in zip(rows.tolist(), start.tolist(), end.tolist(), strict=True):
        table[row, first:stop] = slots[taken : taken + stop - first].to(table.dtype)
        taken += stop - first


def assign_extend_cache_locs_cpu(
    rows: Tensor, table: Tensor, start: Tensor, end: Tensor, slots: Tensor, _width: int
) -> None:
    """Read positions `start` to `end` of each row into `slots`, one request after another."""
    taken = 0
    for row, first, stop in zip(rows.tolist(), start.tolist(), end.tolist(), strict=True):
        slots[taken : taken + stop - first] = table[row, first:stop].to(slots.dtype)
        taken += stop - first


def assign_draft_cache_locs_contiguous_cpu(
    rows: Tensor, table: Tensor, lengths: Tensor, slots: Tensor, _width: int, topk: int, steps: int
) -> None:
    """Read the `topk * steps` slots behind each request's tokens: room for its drafts."""
    room = topk * steps
    assign_extend_cache_locs_cpu(rows, table, lengths, lengths + room, slots, _width)


def build_draft_decode_metadata_cpu(
    table: Tensor, rows: Tensor, lengths: Tensor, topk: int, steps: int, _width: int
) -> Tensor:
    """Return a table with a row for each draft branch: the request's tokens, then the branch's own
    slots, of which branch b has the b-th `steps` behind the request."""
    branches = []
    for row, length in zip(rows.tolist(), lengths.tolist(), strict=True):
        for branch in range(topk):
            own = table[row].clone()
            first = length + branch * steps
            own[length : length + steps] = table[row, first : first + steps]
            branches.append(own)
    return torch.stack(branches)


def fill_bonus_tokens_cpu(accepted: Tensor, lengths: Tensor, bonus: Tensor, stride: int) -> None:
    """Write each request's last accepted token (the target's own) into `bonus`."""
    count = lengths.numel()
    last = torch.arange(count) * stride + lengths.long() - 1
    bonus[:count] = accepted.reshape(-1)[last].to(bonus.dtype)


def fill_accept_out_cache_loc_cpu(index: Tensor, slots: Tensor, kept: Tensor) -> None:
    """Write the slots of the accepted tokens (`index` is -1 for the others) side by side."""
    flat = index.reshape(-1)
    accepted = flat[flat >= 0].long()
    kept[: accepted.numel()] = slots[accepted]


def rotate_input_ids_cpu(
    ids: Tensor, starts: Tensor, lengths: Tensor, following: Tensor, places: Tensor | None = None
) -> None:
    """Move each request's ids one place ahead and put the token that follows them behind, or at
    its own place where `places` names one."""
    after = following.reshape(-1)
    for number, (first, count) in enumerate(zip(starts.tolist(), lengths.tolist(), strict=True)):
        ids[first : first + count - 1] = ids[first + 1 : first + count].clone()
        place = first + count - 1 if places is None else int(places[number])
        ids[place] = after[number].to(ids.dtype)


def copy_all_layer_kv_cache_cpu(
    pointers: Tensor, row_bytes: Tensor, target: Tensor, source: Tensor
) -> None:
    """Copy slots `source` to slots `target` in every layer's buffer, all read before any is
    written: the ranges may overlap."""
    sources, targets = source.tolist(), target.tolist()
    for pointer, size in zip(pointers.tolist(), row_bytes.tolist(), strict=True):
        held = [ctypes.string_at(pointer + slot * size, size) for slot in sources]
        for slot, data in zip(targets, held, strict=True):
            ctypes.memmove(pointer + slot * size, data, size)
