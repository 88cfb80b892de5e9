"""The merged engine: columns with equal features become one state, and a layer one affine map of the state values.

Under the model's masks the features never change from layer to layer and only the current memory matters, so with
S distinct feature vectors a layer is c <- T c + b on S numbers, whatever the number n of transitions is:

    M(s, u)  = softmax over u of (x(u)' A x(s) + log N(u))          N(u) = transitions that left u
    T        = I + w_current M + w_target gamma M P_hat             P_hat(u, u') = mean of continues over u -> u'
    b        = w_reward M r_hat                                     r_hat(u) = mean reward on leaving u

(w_reward, w_target, w_current) are V's free entries. T and b are computed once for looped weights. Equal to the
literal layers of ``transformer.py`` in values and gradients; O(S^2 (d + L) + n) instead of O(n^2 d L).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from icrl_agent.model.transformer import SoftmaxICTD

__all__ = ["MergedContext", "affine_layer", "merge_transitions", "merged_values"]


class MergedContext(NamedTuple):
    """A batch of contexts summed by state; S states each, padded with states that no transition leaves."""

    features: Tensor
    """(B, S, d) distinct feature vectors."""
    counts: Tensor
    """(B, S) transitions that left each state."""
    mean_reward: Tensor
    """(B, S), 0 for states never left."""
    transition: Tensor
    """(B, S, S) P_hat, dense or (for one long context) a sparse (S, S) matrix; 0 rows for states never left."""


def merge_transitions(
    features: Tensor,
    state: Tensor,
    next_state: Tensor,
    rewards: Tensor,
    continues: Tensor,
    weights: Tensor | None = None,
    *,
    sparse: bool = False,
) -> MergedContext:
    """Sum transitions by state.

    Args:
        features: (B, S, d), one row per distinct state.
        state: (B, n) int64, the state that transition k leaves.
        next_state: (B, n) int64, the state it enters.
        rewards: (B, n).
        continues: (B, n), 0 where it terminated, else 1.
        weights: (B, n), how much each transition counts (0 leaves it out); None = all 1.
        sparse: keep P_hat sparse, for one context (B = 1) with about as many states as transitions.
    """
    batch, n_states, _ = features.shape
    dtype = features.dtype
    weight = torch.ones_like(rewards, dtype=dtype) if weights is None else weights.to(dtype)

    def summed(values: Tensor) -> Tensor:
        return torch.zeros(batch, n_states, dtype=dtype, device=features.device).scatter_add(1, state, values)

    counts = summed(weight)
    per_visit = 1.0 / counts.clamp(min=torch.finfo(dtype).tiny)
    mean_reward = summed(weight * rewards.to(dtype)) * per_visit
    moves = weight * continues.to(dtype) * per_visit.gather(1, state)
    if sparse:
        transition = torch.sparse_coo_tensor(
            torch.cat([state, next_state]), moves[0], (n_states, n_states), check_invariants=False
        ).coalesce()
    else:
        flat = torch.zeros(batch, n_states * n_states, dtype=dtype, device=features.device)
        transition = flat.scatter_add(1, state * n_states + next_state, moves).view(batch, n_states, n_states)
    return MergedContext(features, counts, mean_reward, transition)


def affine_layer(context: MergedContext, attention: Tensor, entries: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor]:
    """One layer as c <- T c + b on the state values.

    Args:
        context: B merged contexts.
        attention: feature block of A, (d, d).
        entries: V's weights of reward, target memory and current memory, (3,).
        gamma: (B,).

    Returns:
        T (B, S, S) and b (B, S).
    """
    kernel = merged_kernel(context, attention)
    if context.transition.is_sparse:
        successor = torch.sparse.mm(context.transition.t(), kernel[0].t()).t()[None]
    else:
        successor = kernel @ context.transition
    w_reward, w_target, w_current = entries
    T = w_current * kernel + (w_target * gamma)[:, None, None] * successor
    T.diagonal(dim1=1, dim2=2).add_(1.0)
    b = w_reward * (kernel @ context.mean_reward[:, :, None])[:, :, 0]
    return T, b


def merged_kernel(context: MergedContext, attention: Tensor) -> Tensor:
    """Attention by state M, (B, S queries, S sources); rows sum to 1, or to 0 in a context without transitions."""
    x = context.features
    scores = x @ (x @ attention).transpose(1, 2)  # [s, u] = x(u)' A x(s)
    left = context.counts > 0
    hidden = ~left & left.any(dim=1, keepdim=True)
    log_counts = torch.log(torch.where(left, context.counts, 1.0)).masked_fill(hidden, float("-inf"))
    return torch.softmax(scores + log_counts[:, None, :], dim=2) * left[:, None, :]


def merged_values(
    model: SoftmaxICTD, context: MergedContext, gamma: float | Tensor, n_layers: int | None = None
) -> tuple[Tensor, Tensor]:
    """Values of every state after the last layer and after the one before it, each (B, S).

    The model's weights are cast to the context's dtype, so float64 contexts are evaluated in float64. ``gamma`` is a
    number or one per context (B,).

    Raises:
        ValueError: for a depth the model does not have.
    """
    depth = model.resolve_n_layers(n_layers)
    dtype = context.features.dtype
    gammas = torch.as_tensor(gamma, dtype=dtype, device=context.features.device).expand(len(context.features))
    values = torch.zeros_like(context.mean_reward)
    previous = values
    for index in range(depth):
        if index == 0 or not model.shared:
            attention, entries = model.attention_block(index).to(dtype), model.value_entries(index).to(dtype)
            T, b = affine_layer(context, attention, entries, gammas)
        previous = values
        values = torch.baddbmm(b[:, :, None], T, values[:, :, None])[:, :, 0]
    return values, previous
