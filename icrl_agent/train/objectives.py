"""Pretraining objectives as functions of the values the transformer gives two consecutive queries.

Names follow the time index: ``v_tm1`` is TF(Z_{t-1}), the value of the state that is left, ``r_t`` the reward of the
step and ``v_t`` is TF(Z_t), the value of the state that is entered, from the window one step later.
"""

from __future__ import annotations

from torch import Tensor

__all__ = ["neu_loss", "td_error", "td_loss", "true_value_loss"]


def td_error(v_tm1: Tensor, r_t: Tensor, gamma: Tensor, v_t: Tensor) -> Tensor:
    """delta_t = r_t + gamma v_t - v_tm1; all of one shape.

    >>> import torch
    >>> td_error(torch.tensor([3.0]), torch.tensor([1.0]), torch.tensor([0.5]), torch.tensor([4.0]))
    tensor([0.])
    """
    return r_t + gamma * v_t - v_tm1


def td_loss(v_tm1: Tensor, r_t: Tensor, gamma: Tensor, v_t: Tensor) -> Tensor:
    """Mean of (r_t + gamma stop_gradient(v_t) - v_tm1)^2: the semi-gradient TD objective of Xie et al. (2026)."""
    return td_error(v_tm1, r_t, gamma, v_t.detach()).square().mean()


def neu_loss(v_tm1: Tensor, r_t: Tensor, gamma: Tensor, v_t: Tensor, x_tm1: Tensor) -> Tensor:
    """Norm of the expected update: || E[delta_t x(S_{t-1})] ||^2 per task, averaged over tasks.

    Args:
        v_tm1, r_t, gamma, v_t: (T, W), expectations are means over the W windows of a task.
        x_tm1: features of the states that are left, (T, W, d).

    The gradient runs through both values. Our form, after Sutton et al. (2009); the paper's norm is that of the
    expected parameter update.
    """
    update = (td_error(v_tm1, r_t, gamma, v_t)[..., None] * x_tm1).mean(dim=1)
    return update.square().sum(dim=1).mean()


def true_value_loss(v_tm1: Tensor, true_v_tm1: Tensor) -> Tensor:
    """Mean of (v(S_{t-1}) - v_tm1)^2 with the exact values v."""
    return (true_v_tm1 - v_tm1).square().mean()
