"""Attention over sources in chunks: one layer on contexts too long for a matrix of their size squared.

A layer attends to one number per source only, the TD error, so that with the sums by state of ``merged.py``

    delta = w_reward R + w_target gamma C v + w_current N v
    v'(s) - v(s) = sum_u exp(x(u)' A x(s)) delta(u) / sum_u exp(x(u)' A x(s)) N(u)

is one softmax per query, taken over chunks of sources with a running maximum, numerator and normaliser (the online
softmax of Milakov and Gimelshein 2018, as in FlashAttention). Memory O(S d), time O(S^2 d) per layer. Values equal the
literal layers; there is no gradient.
"""

from __future__ import annotations

import torch
from torch import Tensor

from icrl_agent.model.merged import MergedContext

__all__ = ["attended_errors", "chunked_layer"]

#: Queries and sources per chunk: their scores stay in the cache of one core.
QUERIES, SOURCES = 256, 512


def chunked_layer(
    context: MergedContext, attention: Tensor, entries: Tensor, gamma: float | Tensor, values: Tensor
) -> Tensor:
    """Change of every state's value by one layer, (S,).

    Args:
        context: a batch of one context, its successors sparse or dense.
        attention: feature block of A, (d, d).
        entries: V's weights of reward, target memory and current memory, (3,).
        gamma: discount factor.
        values: v, (S,).
    """
    x, counts, reward_sum = context.features[0], context.counts[0], context.reward_sum[0]
    successors = context.successors if context.successors.is_sparse else context.successors[0]
    following = (successors @ values[:, None])[:, 0]
    w_reward, w_target, w_current = entries
    delta = w_reward * reward_sum + w_target * gamma * following + w_current * counts * values
    left = counts > 0
    if not bool(left.any()):
        return torch.zeros_like(values)
    return attended_errors(x, x[left] @ attention, delta[left], counts[left])


def attended_errors(query: Tensor, key: Tensor, errors: Tensor, counts: Tensor) -> Tensor:
    """sum_u w(s, u) errors(u) / sum_u w(s, u) counts(u) with w(s, u) = exp<query(s), key(u)>, (m,).

    Args:
        query: (m, d).
        key: (S, d).
        errors: (S,).
        counts: (S,), positive.

    >>> one = torch.ones(1, 1)
    >>> attended_errors(one, torch.tensor([[0.0], [0.0]]), torch.tensor([3.0, 5.0]), torch.tensor([1.0, 3.0]))
    tensor([2.])
    """
    summed = torch.stack([errors, counts], dim=1)
    return torch.cat([_one_chunk(rows, key, summed) for rows in torch.split(query, QUERIES)])


def _one_chunk(query: Tensor, key: Tensor, summed: Tensor) -> Tensor:
    top = query.new_full((len(query), 1), float("-inf"))
    sums = query.new_zeros(len(query), 2)
    for keys, terms in zip(torch.split(key, SOURCES), torch.split(summed, SOURCES), strict=True):
        scores = query @ keys.T
        higher = torch.maximum(top, scores.amax(dim=1, keepdim=True))
        sums.mul_(torch.exp(top - higher)).addmm_(scores.sub_(higher).exp_(), terms)
        top = higher
    return sums[:, 0] / sums[:, 1]
