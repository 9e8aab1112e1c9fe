"""Stand-in for SGLang's CPU kernels of draft trees.

A tree of n nodes for each of `bs` requests; node 0 is the last committed token. It is linked by
`next_token` (a node's first child) and `next_sibling`, -1 where there is none; `index` numbers the
nodes of a whole batch. Names and arguments are SGLang's.
"""

from __future__ import annotations

import torch
from torch import Tensor

QLEN_ONLY = 1  # SGLang's mode of a mask over the draft tokens alone


def verify_tree_greedy_cpu(
    predicts: Tensor,
    accept_index: Tensor,
    accept_token_num: Tensor,
    candidates: Tensor,
    retrive_index: Tensor,
    retrive_next_token: Tensor,
    retrive_next_sibling: Tensor,
    target_predict: Tensor,
) -> None:
    """Walk each tree along the target's own choices, as far as there are children that match.

    SGLang calls this one by its arguments' names, so they are spelled as there.
    """
    choices = target_predict.reshape(-1).tolist()
    for request in range(candidates.shape[0]):
        numbers, child, sibling, tokens = (
            part[request].tolist()
            for part in (retrive_index, retrive_next_token, retrive_next_sibling, candidates)
        )
        node, path = 0, [numbers[0]]
        while len(path) < accept_index.shape[1]:
            wanted, below = choices[path[-1]], child[node]
            while below != -1 and tokens[below] != wanted:
                below = sibling[below]
            if below == -1:
                break
            node = below
            path.append(numbers[node])
        for number in path:
            predicts[number] = choices[number]
        accept_index[request, : len(path)] = torch.tensor(path, dtype=accept_index.dtype)
        accept_token_num[request] = len(path) - 1


def build_tree_kernel_efficient_cpu(
    parent_list: Tensor,
    selected: Tensor,
    lengths: Tensor,
    mask: Tensor,
    positions: Tensor,
    index: Tensor,
    next_token: Tensor,
    next_sibling: Tensor,
    topk: int,
    _depth: int,
    n: int,
    mode: int,
) -> None:
    """Lay out each request's tree from the candidates that were `selected` [n - 1].

    Candidate c was proposed below the `c // topk`-th entry of `parent_list`; entry 0 is the root.
    """
    flat, place, taken = mask.reshape(-1), positions.reshape(-1), 0
    for request in range(parent_list.shape[0]):
        chosen, above = selected[request].tolist(), parent_list[request].tolist()
        node_of = {candidate: node for node, candidate in reversed(list(enumerate(chosen, 1)))}
        parents = [-1, *(node_of.get(above[c // topk], -1) if c // topk else 0 for c in chosen)]
        _link(parents, request, index, next_token, next_sibling)
        length = int(lengths[request])
        text = 0 if mode == QLEN_ONLY else length
        for node in range(n):
            line = flat[taken : taken + text + n]
            line[:text] = True
            line[text:] = False
            path = _path(node, parents)
            for ancestor in path:
                line[text + ancestor] = True
            line[text] = True
            place[request * n + node] = length + len([one for one in path if one])
            taken += text + n


def reconstruct_indices_from_tree_mask(
    mask: Tensor,
    lengths: Tensor,
    positions: Tensor,
    index: Tensor,
    next_token: Tensor,
    next_sibling: Tensor,
    bs: int,
    n: int,
) -> None:
    """Read positions and links from masks over the draft tokens: a node sees its ancestors."""
    sees = mask.reshape(-1)[: bs * n * n].view(bs, n, n).bool()
    above = sees & torch.tril(torch.ones(n, n, dtype=torch.bool), diagonal=-1)
    depth = above.sum(-1) + lengths.view(bs, 1).long()
    positions.view(-1)[: bs * n] = depth.reshape(-1)
    nearest = torch.where(above.any(-1), (above * torch.arange(n)).amax(-1), -1)
    views = [part.view(bs, n) for part in (index, next_token, next_sibling)]
    for request, parents in enumerate(nearest.tolist()):
        _link(parents, request, *views)


def _link(
    parents: list[int], request: int, index: Tensor, next_token: Tensor, next_sibling: Tensor
) -> None:
    """Write one request's links: children of a node are in the order of their numbers."""
    n = len(parents)
    child, sibling = [-1] * n, [-1] * n
    for node in reversed(range(1, n)):
        parent = parents[node]
        if parent >= 0:
            sibling[node], child[parent] = child[parent], node
    index[request, :n] = torch.arange(request * n, (request + 1) * n, dtype=index.dtype)
    next_token[request, :n] = torch.tensor(child, dtype=next_token.dtype)
    next_sibling[request, :n] = torch.tensor(sibling, dtype=next_sibling.dtype)


def _path(node: int, parents: list[int]) -> list[int]:
    """Return the nodes from `node` up to the root."""
    path = [node]
    while parents[path[-1]] >= 0:
        path.append(parents[path[-1]])
    return path
