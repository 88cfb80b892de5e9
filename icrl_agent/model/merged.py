"""The merged engine: columns with equal features become one state, and a layer one affine map of the state values.

Under the model's masks the features never change from layer to layer and only the current memory matters, so with
S distinct feature vectors a layer is c <- T c + b on S numbers, whatever the number n of transitions is. With

    N(u) = transitions that left u,   R(u) = sum of their rewards,   C(u, u') = sum of their continues by successor,
    E(s, u) = exp(x(u)' A x(s)),      Z(s) = sum_u E(s, u) N(u),

the layer is

    T = I + (w_current E diag(N) + w_target gamma E C) / Z         b = w_reward E R / Z

where (w_reward, w_target, w_current) are V's free entries. T and b are computed once for looped weights. Equal to the
literal layers of ``transformer.py`` in values and gradients; O(S^2 (d + L) + n) instead of O(n^2 d L).
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor

from icrl_agent.model.transformer import SoftmaxICTD

__all__ = ["MergedContext", "affine_layer", "iterate_affine", "merge_transitions", "merged_kernel", "merged_values"]

#: Rows of T that are made at once where C is sparse.
ROWS = 256


class MergedContext(NamedTuple):
    """A batch of contexts summed by state. ``...`` are batch axes; states that no transition leaves may pad S.

    The features' batch axes may have size 1 where many contexts share them (windows of one task).
    """

    features: Tensor
    """x, (..., S, d)."""
    counts: Tensor
    """N, (..., S)."""
    reward_sum: Tensor
    """R, (..., S)."""
    successors: Tensor
    """C, (..., S, S), or a sparse (S, S) matrix for a batch of one."""


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
        sparse: keep C sparse, for one context (B = 1) with about as many states as transitions.
    """
    batch, n_states, _ = features.shape
    dtype = features.dtype
    weight = torch.ones_like(rewards, dtype=dtype) if weights is None else weights.to(dtype)

    def summed(index: Tensor, values: Tensor, size: int) -> Tensor:
        return torch.zeros(batch, size, dtype=dtype, device=features.device).scatter_add(1, index, values)

    kept = weight * continues.to(dtype)
    if sparse:
        at = torch.cat([state, next_state])
        successors = torch.sparse_coo_tensor(at, kept[0], (n_states, n_states), check_invariants=False).coalesce()
    else:
        flat = summed(state * n_states + next_state, kept, n_states * n_states)
        successors = flat.view(batch, n_states, n_states)
    return MergedContext(
        features, summed(state, weight, n_states), summed(state, weight * rewards.to(dtype), n_states), successors
    )


def affine_layer(context: MergedContext, attention: Tensor, entries: Tensor, gamma: Tensor) -> tuple[Tensor, Tensor]:
    """One layer as c <- T c + b on the state values.

    Args:
        context: contexts summed by state.
        attention: feature block of A, (d, d).
        entries: V's weights of reward, target memory and current memory, (3,).
        gamma: (...).

    Returns:
        T (..., S, S) and b (..., S).
    """
    exponentials, normaliser = _exponentials(context, attention)
    w_reward, w_target, w_current = entries
    target = (w_target * gamma)[..., None, None]
    if context.successors.is_sparse and not torch.is_grad_enabled():
        # As below, in place: each matrix of a long context is a good part of the memory.
        b = w_reward * (exponentials @ context.reward_sum[..., None] / normaliser)[..., 0]
        predecessors = context.successors.t().coalesce()
        for rows in torch.split(exponentials[0], ROWS):
            successor = torch.sparse.mm(predecessors, rows.t()).t()
            rows.mul_(w_current * context.counts[0]).add_(target[0] * successor)
        T = exponentials.div_(normaliser)
        T.diagonal(dim1=-2, dim2=-1).add_(1.0)
        return T, b
    if context.successors.is_sparse:
        successor = torch.sparse.mm(context.successors.t(), exponentials[0].t()).t()[None]
        change = target * successor + w_current * exponentials * context.counts[..., None, :]
    else:
        change = exponentials @ (target * context.successors + torch.diag_embed(w_current * context.counts))
    T = change / normaliser
    T.diagonal(dim1=-2, dim2=-1).add_(1.0)
    b = w_reward * (exponentials @ context.reward_sum[..., None] / normaliser)[..., 0]
    return T, b


def merged_kernel(context: MergedContext, attention: Tensor) -> Tensor:
    """Attention by state M_n, (..., S queries, S sources); rows sum to 1, or to 0 in a context without transitions."""
    exponentials, normaliser = _exponentials(context, attention)
    return exponentials * context.counts[..., None, :] / normaliser


def _exponentials(context: MergedContext, attention: Tensor) -> tuple[Tensor, Tensor]:
    """E (..., S, S) and Z (..., S, 1); E(s, u) / Z(s) is the attention of s to one transition that leaves u."""
    x = context.features
    scores = x @ (x @ attention).transpose(-1, -2)  # [s, u] = x(u)' A x(s)
    # Softmax does not feel a shift of its row: by the largest score of a source no exponential overflows. Contexts
    # that share features share the shift, and so the exponentials.
    left = context.counts > 0
    for axis in range(left.ndim - 1):
        if x.shape[axis] == 1:
            left = left.any(dim=axis, keepdim=True)
    if torch.is_grad_enabled():
        sources = scores.detach().masked_fill(~left[..., None, :], float("-inf"))
        top = sources.amax(dim=-1, keepdim=True)
        exponentials = torch.exp(torch.where(left[..., None, :], scores - top, float("-inf")))
    else:
        top = scores.masked_fill_(~left[..., None, :], float("-inf")).amax(dim=-1, keepdim=True)
        exponentials = scores.sub_(top.nan_to_num_(neginf=0.0)).exp_()
    normaliser = exponentials @ context.counts[..., None]
    return exponentials, torch.where(normaliser > 0, normaliser, 1.0)


def merged_values(
    model: SoftmaxICTD, context: MergedContext, gamma: float | Tensor, n_layers: int | None = None
) -> Tensor:
    """Values of every state after 0, 1, ..., n_layers layers: (n_layers + 1, ..., S).

    The model's weights are cast to the context's dtype, so float64 contexts are evaluated in float64. ``gamma`` is a
    number or one per context (...).

    Raises:
        ValueError: for a depth the model does not have.
    """
    depth = model.resolve_n_layers(n_layers)
    dtype = context.features.dtype
    batch = context.counts.shape[:-1]
    gammas = torch.as_tensor(gamma, dtype=dtype, device=context.features.device).expand(batch)

    def layer(index: int) -> tuple[Tensor, Tensor]:
        return affine_layer(
            context, model.attention_block(index).to(dtype), model.value_entries(index).to(dtype), gammas
        )

    if model.shared:
        return iterate_affine(*layer(0), depth)
    values = [torch.zeros_like(context.counts)]
    for index in range(depth):
        T, b = layer(index)
        values.append((T @ values[-1][..., None])[..., 0] + b)
    return torch.stack(values)


def iterate_affine(T: Tensor, b: Tensor, n_iterations: int) -> Tensor:
    """v_0 = 0, v_{l+1} = T v_l + b for T (..., S, S), b (..., S): all iterates, (n_iterations + 1, ..., S).

    The gradient runs the adjoint recursion, one matrix product for all layers instead of one per layer.

    >>> iterate_affine(torch.tensor([[0.5]]), torch.tensor([1.0]), 3)[:, 0]
    tensor([0.0000, 1.0000, 1.5000, 1.7500])
    """
    values: Tensor = _IterateAffine.apply(T, b, n_iterations)  # type: ignore[no-untyped-call]
    return values


class _IterateAffine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, T: Tensor, b: Tensor, n_iterations: int) -> Tensor:
        matrix, offset = T.reshape(-1, *T.shape[-2:]), b.reshape(-1, b.shape[-1], 1)
        values = offset.new_zeros(n_iterations + 1, *offset.shape)
        for step in range(n_iterations):
            torch.baddbmm(offset, matrix, values[step], out=values[step + 1])
        ctx.save_for_backward(matrix, values)
        ctx.shapes = T.shape, b.shape
        return values.view(n_iterations + 1, *b.shape)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:
        matrix, values = ctx.saved_tensors
        transposed = matrix.transpose(1, 2)
        # adjoint[l] is the gradient of the loss with respect to v_l through all later layers.
        adjoint = gradient.reshape(values.shape).clone()
        for step in range(len(values) - 2, 0, -1):
            adjoint[step].baddbmm_(transposed, adjoint[step + 1])
        later, before = adjoint[1:, :, :, 0], values[:-1, :, :, 0]
        gradient_T = torch.bmm(later.permute(1, 2, 0), before.permute(1, 0, 2))
        T_shape, b_shape = ctx.shapes
        return gradient_T.view(T_shape), later.sum(dim=0).view(b_shape), None
