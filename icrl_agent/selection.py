"""Sharpness and lengthscale without tuning: chosen inside the context, by held-out TD error; no gradient, no truth.

The context's transitions are split in two halves. The layers, run on one half, give values v_theta for each
candidate theta; the TD errors of the other half, delta_i = R_i + gamma v_theta(S'_i) - v_theta(S_i), judge it, and vice
versa. The mean of delta_i^2 would contain the variance of the target, which grows with the steepness of v_theta, and so
would favour what is too smooth (double sampling). Two different held-out transitions have independent noise, so

    U(theta) = sum_{i != j} delta_i k(S_i, S_j) delta_j,       k = <x, x'>^4

estimates the squared Bellman error, smoothed by the kernel k, without that bias; where states do not resemble each
other it compares transitions from the same state only. Source: the kernel loss of Feng, Li and Liu (2019), "A Kernel
Loss for Solving the Bellman Equation"; choosing an attention kernel by it is ours. Candidates whose layers diverge on
half of the context are out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from icrl_agent.context import Context
from icrl_agent.depth import FIXED_POINT, Depth

__all__ = ["DEFAULT_SHARPNESS", "FEWEST", "LENGTHSCALE_FACTORS", "SHARPNESSES", "held_out_errors", "held_out_values"]

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.intp]

#: Candidates of sharpness="auto".
SHARPNESSES = (1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 64.0)
#: Candidates of lengthscale="auto", in median distances.
LENGTHSCALE_FACTORS = (0.5, 1.0, 2.0)
#: Contexts of fewer transitions say too little: they get this sharpness, and the median lengthscale.
FEWEST, DEFAULT_SHARPNESS = 64, 8.0
#: Transitions per half times distinct states: what the choice may cost.
LARGEST_MATRIX = 750 * 3000
#: Power of the inner product that is the judge's kernel; of features of one lengthscale it has half of it.
JUDGE_POWER = 4


def held_out_errors(
    context: Context,
    attention: FloatArray,
    sharpnesses: Sequence[float],
    gamma: float,
    step_size: float,
    reward_scale: float,
    n_layers: Depth,
    judge: FloatArray | None = None,
) -> FloatArray:
    """U for every candidate sharpness, (len(sharpnesses),); inf where the layers diverge.

    Args:
        context: the transitions, at least 2, merged by state; their order does not matter.
        attention: feature block of A, (d, d), which a sharpness multiplies.
        sharpnesses: the candidates.
        gamma, step_size, reward_scale: of a layer, see ``effective_step``.
        n_layers: depth.
        judge: features (S, d') of the kernel k; None = the context's own. One for all that are compared.
    """
    judges = (context.features if judge is None else judge).astype(np.float32)
    errors = np.zeros(len(sharpnesses))
    halves = _halves(context)
    for train, test in (halves, halves[::-1]):
        asked = np.concatenate([context.source_state[test], context.next_state[test]])
        similar = judges[context.source_state[test]]
        kernel = (similar @ similar.T) ** JUDGE_POWER
        np.fill_diagonal(kernel, 0.0)
        values = held_out_values(
            context, train, asked, attention, sharpnesses, gamma, step_size, reward_scale, n_layers
        )
        v_tm1, v_t = values[:, : len(test)], values[:, len(test) :]
        deltas = reward_scale * context.rewards[test] + gamma * context.continues[test] * v_t - v_tm1
        converged = np.isfinite(values).all(axis=1)
        errors[~converged] = np.inf
        errors[converged] += np.einsum("ci,ij,cj->c", deltas[converged], kernel, deltas[converged], optimize=True)
    return errors


def held_out_values(
    context: Context,
    train: IntArray,
    asked: IntArray,
    attention: FloatArray,
    sharpnesses: Sequence[float],
    gamma: float,
    step_size: float,
    reward_scale: float,
    n_layers: Depth,
) -> FloatArray:
    """Values of some states from some of a context's transitions, (len(sharpnesses), len(asked)), NaN if divergent.

    With u_l(s) the sum of the mean TD errors of source s over the layers below l, v_l = K u_l, and a layer is
    u <- u + step_size (r_hat + (gamma P_hat K - K) u) on the sources alone. Computed in single precision.
    """
    x = context.features
    sources, source = np.unique(context.source_state[train], return_inverse=True)
    states, at = np.unique(np.concatenate([sources, context.next_state[train], asked]), return_inverse=True)
    at_sources, at_next, at_asked = np.split(at, [len(sources), len(sources) + len(train)])
    # score(query, source) = x(source)' A x(query)
    scores = (x[states].astype(np.float32)) @ (x[sources] @ attention).T.astype(np.float32)
    order = np.argsort(source, kind="stable")
    counts = np.bincount(source)
    starts = np.concatenate([[0], np.cumsum(counts)[:-1]])
    by_source = order, starts, counts.astype(np.float32)
    weights = (gamma * context.continues[train]).astype(np.float32)
    reward = _mean_by_source((reward_scale * context.rewards[train]).astype(np.float32)[:, None], *by_source)[:, 0]
    values = np.full((len(sharpnesses), len(asked)), np.nan)
    for row, sharpness in enumerate(sharpnesses):
        K = _softmax(np.float32(sharpness) * scores, by_source[2])
        backup = _mean_by_source(weights[:, None] * K[at_next], *by_source) - K[at_sources]
        u, change = _iterated(backup, reward, step_size, n_layers)
        # Where the layers converge, the last changes values less than the first, which brings mean rewards.
        if np.isfinite(change).all() and np.abs(K @ change).max() <= np.abs(reward).max():
            values[row] = (K @ u)[at_asked]
    return values


def _iterated(
    backup: NDArray[np.float32], reward: NDArray[np.float32], step_size: float, n_layers: Depth
) -> tuple[NDArray[np.floating[Any]], NDArray[np.floating[Any]]]:
    """Sums of the sources' TD errors after all layers, and the last layer's."""
    if n_layers == FIXED_POINT:
        return np.linalg.lstsq(-backup, reward)[0], np.zeros_like(reward)
    u, change = np.zeros_like(reward), reward
    with np.errstate(over="ignore", invalid="ignore"):
        for _ in range(n_layers):
            change = np.float32(step_size) * (reward + backup @ u)
            u = u + change
    return u, change


def _softmax(scores: NDArray[np.float32], counts: NDArray[np.float32]) -> NDArray[np.float32]:
    """Attention by state, (queries, sources), a source standing for ``counts`` transitions."""
    scores -= scores.max(axis=1, keepdims=True)
    np.exp(scores, out=scores)
    scores *= counts
    scores /= scores.sum(axis=1, keepdims=True)
    return scores


def _mean_by_source(
    rows: NDArray[np.float32], order: IntArray, starts: IntArray, counts: NDArray[np.float32]
) -> NDArray[np.float32]:
    return np.asarray(np.add.reduceat(rows[order], starts, axis=0) / counts[:, None])


def _halves(context: Context) -> tuple[IntArray, IntArray]:
    """Two disjoint random sets of transitions, the same whatever order the transitions are in."""
    order = np.lexsort((context.continues, context.rewards, context.next_state, context.source_state))
    n = len(order)
    size = min(n // 2, max(FEWEST // 2, LARGEST_MATRIX // len(context.features)))
    shuffled = order[np.random.default_rng(0).permutation(n)]
    return shuffled[:size], shuffled[size : 2 * size]
