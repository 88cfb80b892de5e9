"""The transformer's expected updates, per task: samples whose expectation's norm is the NEU, in both forms."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from icrl_agent.algorithms.expected_update import linear_updates
from icrl_agent.model.merged import MergedContext, affine_layer, iterate_affine
from icrl_agent.train.objectives import td_error
from icrl_agent.train.sampler import roll_out, window_sums
from icrl_agent.train.tasks import TaskBatch

__all__ = ["Windows", "draw_windows", "semi_gradient_updates", "td_updates"]

FloatArray = NDArray[np.float64]


class Windows(NamedTuple):
    """G trajectories with W + 1 sliding prompts each, float64; the step between two prompts is a transition."""

    context: MergedContext
    """Batch axes (G, W + 1), features (G, 1, S, d)."""
    query: Tensor
    """State of each prompt's query, (G, W + 1)."""
    reward: Tensor
    """Reward on leaving the query, (G, W)."""
    gamma: float


def draw_windows(
    rng: np.random.Generator, tasks: TaskBatch, features: FloatArray, context_length: int, n_windows: int, gamma: float
) -> Windows:
    """Walk every task once (repeat a task for independent samples) and slide a prompt of n transitions along.

    Args:
        rng: walks.
        tasks: G tasks; their ``initial`` is where walks start.
        features: (G, S, d).
        context_length: n.
        n_windows: W.
        gamma: discount factor.
    """
    n_tasks, n_states = tasks.reward.shape
    trajectories = roll_out(rng, tasks, context_length + n_windows, np.zeros(n_tasks))
    sums = window_sums(trajectories, context_length, n_windows + 1, n_states)
    context = MergedContext(torch.from_numpy(features)[:, None], *(torch.from_numpy(part) for part in sums))
    query = torch.from_numpy(trajectories.states[:, context_length : context_length + n_windows + 1].copy())
    return Windows(context, query, torch.from_numpy(trajectories.rewards[:, context_length:].copy()), gamma)


def td_updates(attention: Tensor, entries: Tensor, windows: Windows, n_layers: int) -> FloatArray:
    """Mean over a trajectory's windows of delta_t x(S_{t-1}), (G, d): the NEU's first form.

    Args:
        attention: feature block of A, (d, d).
        entries: V's free entries, (3,).
        windows: prompts.
        n_layers: depth.
    """
    gammas = torch.full_like(windows.context.counts[..., 0], windows.gamma)
    with torch.no_grad():
        layers = iterate_affine(*affine_layer(windows.context, attention, entries, gammas), n_layers)
    values = layers[-1].gather(2, windows.query[:, :, None])[:, :, 0].numpy()
    left = windows.query[:, :-1, None].expand(-1, -1, windows.context.features.shape[-1])
    x_tm1 = windows.context.features[:, 0].gather(1, left)
    return linear_updates(values[:, :-1], windows.reward.numpy(), windows.gamma, values[:, 1:], x_tm1.numpy())


def semi_gradient_updates(attention: Tensor, entries: Tensor, windows: Windows, n_layers: int) -> FloatArray:
    """Mean over a trajectory's windows of delta_t grad_theta TF(Z_{t-1}), (G, d^2 + 3): the NEU's second form.

    theta is A's feature block (row by row), then V's three entries. Every trajectory gets a copy of theta, so that one
    backward pass yields all their gradients. Arguments as in ``td_updates``.
    """
    n_groups, d = len(windows.query), attention.shape[0]
    A = attention.expand(n_groups, 1, d, d).clone().requires_grad_()
    w = entries.expand(n_groups, 3).clone().requires_grad_()
    w_reward, w_target, w_current = (w[:, k, None, None] for k in range(3))
    gammas = torch.full_like(windows.context.counts[..., 0], windows.gamma)
    # A layer is linear in V's entries: one part per entry.
    unit = torch.eye(3, dtype=attention.dtype)
    (_, b), (T_target, _), (T_current, _) = (affine_layer(windows.context, A, entry, gammas) for entry in unit)
    identity = torch.eye(T_target.shape[-1], dtype=attention.dtype)
    T = identity + w_target[..., None] * (T_target - identity) + w_current[..., None] * (T_current - identity)
    layers = iterate_affine(T, w_reward * b, n_layers)
    values = layers[-1].gather(2, windows.query[:, :, None])[:, :, 0]
    v_tm1, v_t = values[:, :-1], values[:, 1:]
    delta = td_error(v_tm1, windows.reward, torch.as_tensor(windows.gamma), v_t).detach()
    (delta * v_tm1).mean(dim=1).sum().backward()  # type: ignore[no-untyped-call]
    assert A.grad is not None
    assert w.grad is not None
    return np.concatenate([A.grad.reshape(n_groups, -1).numpy(), w.grad.numpy()], axis=1)
