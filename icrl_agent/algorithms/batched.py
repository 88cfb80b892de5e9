"""Certainty equivalence, LSTD and TD(0) for many contexts at once, on tasks that never end.

The fast twins of ``icrl_agent.algorithms.classical`` for validation: the first two work on sums by state (counts N,
reward sums R, successor counts C), TD(0) on the trajectories; each equals its slow twin context by context.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import NDArray

__all__ = ["batched_certainty_equivalence", "batched_lstd", "batched_tabular_td"]

FloatArray = NDArray[np.float64]


def batched_certainty_equivalence(
    counts: FloatArray,
    reward_sum: FloatArray,
    successors: FloatArray,
    gamma: FloatArray,
    never_left: Literal["mean", "zero"] = "mean",
) -> FloatArray:
    """Exact values of the empirical processes, (B, S).

    Args:
        counts: N, (B, S). reward_sum: R, (B, S). successors: C, (B, S, S).
        gamma: (B,), below 1.
        never_left: value of states never left: "mean" = mean(r) / (1 - gamma), "zero" = 0.

    >>> one = np.ones((1, 1))
    >>> batched_certainty_equivalence(one, one, one[None], np.array([0.5]))
    array([[2.]])
    """
    left = counts > 0
    visits = np.maximum(counts, 1.0)
    system = np.eye(counts.shape[1]) - gamma[:, None, None] * successors / visits[:, :, None]
    mean_reward = reward_sum.sum(axis=1) / np.maximum(counts.sum(axis=1), 1.0)
    fill = mean_reward / (1.0 - gamma) if never_left == "mean" else np.zeros_like(gamma)
    right = np.where(left, reward_sum / visits, fill[:, None])
    return np.asarray(np.linalg.solve(system, right[..., None])[..., 0])


def batched_lstd(
    counts: FloatArray, reward_sum: FloatArray, successors: FloatArray, gamma: FloatArray, ridge: float
) -> FloatArray:
    """One-hot LSTD, (B, S): (diag(N) + ridge I - gamma C) v = R. Arguments as above; ridge positive.

    >>> one = np.ones((1, 1))
    >>> batched_lstd(one, one, one[None], np.array([0.5]), ridge=1e-9).round(6)
    array([[2.]])
    """
    identity = np.eye(counts.shape[1])
    system = (counts[:, :, None] + ridge) * identity - gamma[:, None, None] * successors
    return np.asarray(np.linalg.solve(system, reward_sum[..., None])[..., 0])


def batched_tabular_td(
    states: NDArray[np.intp],
    rewards: FloatArray,
    gamma: FloatArray,
    n_states: int,
    step_size: Callable[[int], float],
) -> FloatArray:
    """TD(0), one pass from 0 over each trajectory: states (B, n + 1), rewards (B, n); (B, n_states).

    >>> batched_tabular_td(np.array([[0, 1, 0]]), np.array([[1.0, 0.0]]), np.array([0.5]), 2, lambda k: 0.5)
    array([[0.5  , 0.125]])
    """
    batch = np.arange(len(states))
    values = np.zeros((len(states), n_states))
    for k in range(rewards.shape[1]):
        state, next_state = states[:, k], states[:, k + 1]
        delta = rewards[:, k] + gamma * values[batch, next_state] - values[batch, state]
        values[batch, state] += step_size(k) * delta
    return values
