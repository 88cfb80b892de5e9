"""Weighted softmax TD on state-action pairs with a chosen target: the float64 reference of in-context control."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icrl_agent.algorithms.weighted_softmax_td import Score, inner_product, softmax_weights

__all__ = ["weighted_softmax_q"]

FloatArray = NDArray[np.float64]


def weighted_softmax_q(
    features: ArrayLike,
    rewards: ArrayLike,
    successors: ArrayLike,
    gamma: float,
    n_iterations: int,
    *,
    probabilities: ArrayLike | None = None,
    continues: ArrayLike | None = None,
    bonus: ArrayLike | None = None,
    score: Score | None = None,
    step_size: float = 1.0,
    queries: ArrayLike,
) -> FloatArray:
    """Iterate action values on n transitions (S_{k-1}, A_{k-1}, R_k, S_k), all pairs at once, from q_0 = 0.

        T_k(q) = sum_a w_k(a) q(S_k, a)        or, without ``probabilities``,        max_a q(S_k, a)
        delta_k(q) = R_k + gamma c_k T_k(q) - q(S_{k-1}, A_{k-1})
        K(k, u) = exp g(u, u_k) / sum_m exp g(u, u_m)                u_k = (S_{k-1}, A_{k-1}): softmax over transitions
        q_{t+1}(u) = q_t(u) + step_size sum_k delta_k(q_t) K(k, u)

    With w_k = 1 on the action that was taken next this is ``weighted_softmax_td`` on the pairs, the paper's algorithm
    (eqs 8-9): SARSA. With w_k the policy's probabilities it is expected SARSA, with the maximum Q-learning. Source:
    Xie et al. (2026) for the recorded action; expected and greedy targets and the bonus are ours. The maximum makes
    the iteration nonlinear; where the kernel of the sources is invertible its fixed points have delta = 0, so the
    greedy one solves Bellman's optimality equation of the empirical model.

    Args:
        features: x(u_1) .. x(u_n), of the pairs that were left, (n, d).
        rewards: R_1 .. R_n, (n,), reward per step.
        successors: features of the pairs (S_k, a) for every action, (n, A, d).
        gamma: discount factor in [0, 1].
        n_iterations: number of iterations (layers), at least 0.
        probabilities: w, (n, A), rows sum to 1; None = the maximum.
        continues: c, 0 where the transition terminated, else 1, (n,); None = all 1.
        bonus: added to q(S_k, a) inside T_k, (n, A), reward units; None = 0.
        score: g; None = inner product.
        step_size: alpha.
        queries: features of the pairs whose values are wanted, (m, d).

    Returns:
        float64 (n_iterations + 1, m): q_t of the queries, t = 0 first.

    Raises:
        ValueError: if shapes disagree.

    >>> weighted_softmax_q([[1.0]], [1.0], [[[1.0], [1.0]]], 0.5, 2, queries=[[1.0]])[:, 0].tolist()
    [0.0, 1.0, 1.5]
    """
    x, r, x_next = (np.asarray(array, np.float64) for array in (features, rewards, successors))
    if x.ndim != 2 or r.shape != x.shape[:1] or x_next.ndim != 3 or x_next.shape[::2] != x.shape:
        raise ValueError(
            f"features (n, d) go with rewards (n,) and successors (n, A, d), got {x.shape}, {r.shape}, {x_next.shape}"
        )
    n, n_actions, d = x_next.shape
    c = np.ones(n) if continues is None else np.asarray(continues, np.float64)
    b = np.zeros((n, n_actions)) if bonus is None else np.asarray(bonus, np.float64)
    w = None if probabilities is None else np.asarray(probabilities, np.float64)
    asked = np.asarray(queries, np.float64)
    if c.shape != (n,) or any(table is not None and table.shape != (n, n_actions) for table in (b, w)):
        raise ValueError(f"continues must have shape ({n},), bonus and probabilities ({n}, {n_actions})")
    K = softmax_weights((score or inner_product)(np.concatenate([x, x_next.reshape(-1, d), asked]), x))
    q = np.zeros((n_iterations + 1, len(K)))
    for t in range(n_iterations):
        q_tm1, q_t = q[t, :n], q[t, n : n + n * n_actions].reshape(n, n_actions) + b
        target = q_t.max(axis=1) if w is None else (w * q_t).sum(axis=1)
        q[t + 1] = q[t] + step_size * K @ (r + gamma * c * target - q_tm1)
    return q[:, n + n * n_actions :]
