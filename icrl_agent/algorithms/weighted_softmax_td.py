"""Weighted softmax TD, the algorithm a softmax transformer runs on its prompt: the float64 reference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["Score", "inner_product", "softmax_weights", "weighted_softmax_td"]

FloatArray = NDArray[np.float64]

#: score(x_query (m, d), x_source (n, d)) -> (m, n); -inf gives a source no weight.
Score = Callable[[FloatArray, FloatArray], FloatArray]


def inner_product(x_query: FloatArray, x_source: FloatArray) -> FloatArray:
    """Score g(s, s') = <x(s), x(s')>, the one a transformer with A = diag(I, 0) realises.

    >>> inner_product(np.eye(2), np.array([[2.0, 3.0]])).tolist()
    [[2.0], [3.0]]
    """
    return x_query @ x_source.T


def softmax_weights(scores: ArrayLike) -> FloatArray:
    """Softmax over the last axis (the sources); a row without a score above -inf gets weights 0.

    >>> softmax_weights([[0.0, 0.0], [-np.inf, -np.inf]]).tolist()
    [[0.5, 0.5], [0.0, 0.0]]
    """
    array = np.asarray(scores, dtype=np.float64)
    if array.shape[-1] == 0:
        return np.zeros_like(array)
    if np.isnan(array).any():
        raise ValueError("scores must not be NaN")
    top = array.max(axis=-1, keepdims=True)
    exponentials = np.exp(array - np.where(np.isfinite(top), top, 0.0))
    total = exponentials.sum(axis=-1, keepdims=True)
    return np.asarray(np.divide(exponentials, total, out=np.zeros_like(exponentials), where=total > 0))


def weighted_softmax_td(
    features: ArrayLike,
    rewards: ArrayLike,
    gamma: float,
    n_iterations: int,
    *,
    score: Score | None = None,
    weighting: Literal["softmax", "linear"] = "softmax",
    step_size: float = 1.0,
    continues: ArrayLike | None = None,
    source_mask: ArrayLike | None = None,
    queries: ArrayLike | None = None,
) -> FloatArray:
    """Run weighted softmax TD on one trajectory, all states at once, from v_0 = 0.

        delta_k(v) = R_k + gamma c_k v(S_k) - v(S_{k-1})                       k over the transitions
        K(S_{k-1}, s) = exp g(s, S_{k-1}) / sum_m exp g(s, S_{m-1})            softmax over the transitions
        v_{t+1}(s) = v_t(s) + step_size sum_k delta_k(v_t) K(S_{k-1}, s)

    Special cases: one-hot features scaled by sqrt(tau), tau large, are tabular batch TD; g = log k(s, s') is TD
    with the normalised kernel smoother of k; ``weighting="linear"`` replaces K by <x(S_{k-1}), x(s)> / n, which is
    linear batch TD. Source: Xie et al. (2026), eqs 8-9; ``continues`` and ``source_mask`` are our extension to
    episodes (c_k = 0 after a termination).

    Args:
        features: x(S_0) .. x(S_n), shape (n + 1, d); column j of the prompt is row j here.
        rewards: R_1 .. R_n, shape (n,), reward per step.
        gamma: discount factor in [0, 1].
        n_iterations: number of iterations (layers), at least 0.
        score: g; None = inner product. Not used by ``weighting="linear"``.
        weighting: "softmax", or "linear" without a normaliser.
        step_size: alpha.
        continues: c of each column's transition, 0 or 1, shape (n + 1,); None = all 1.
        source_mask: True where a column starts a real transition, shape (n + 1,); None = all but the last.
        queries: features (m, d) of states whose values are wanted; they are no sources.

    Returns:
        float64 (n_iterations + 1, n + 1): v_t of every column, t = 0 first; (n_iterations + 1, m) for queries.
        All 0 if there is no source.

    Raises:
        ValueError: if shapes disagree, the last column is marked a source, or an argument is out of range.

    >>> weighted_softmax_td([[1.0], [1.0]], [2.0], gamma=0.5, n_iterations=2)
    array([[0., 0.],
           [2., 2.],
           [3., 3.]])
    """
    x, r, c, sources = _columns(features, rewards, continues, source_mask)
    if weighting not in ("softmax", "linear"):
        raise ValueError(f"weighting must be 'softmax' or 'linear', got {weighting!r}")
    if n_iterations < 0 or not 0 <= gamma <= 1:
        raise ValueError(f"need n_iterations >= 0 and gamma in [0, 1], got {n_iterations} and {gamma}")
    n_columns = len(x)
    everything = x
    if queries is not None:
        everything = np.concatenate([x, _query_rows(queries, x.shape[1])])
    if weighting == "softmax":
        weights = softmax_weights((score or inner_product)(everything, x[sources]))
    else:
        weights = inner_product(everything, x[sources]) / max(len(sources), 1)
    values = np.zeros((n_iterations + 1, len(everything)))
    for t in range(n_iterations):
        delta = r[sources] + gamma * c[sources] * values[t, sources + 1] - values[t, sources]
        values[t + 1] = values[t] + step_size * weights @ delta
    return values[:, :n_columns] if queries is None else values[:, n_columns:]


def _columns(
    features: ArrayLike, rewards: ArrayLike, continues: ArrayLike | None, source_mask: ArrayLike | None
) -> tuple[FloatArray, FloatArray, FloatArray, NDArray[np.intp]]:
    """Check a trajectory in column form; returns features, rewards, continues, indices of the source columns."""
    x, r = np.asarray(features, dtype=np.float64), np.asarray(rewards, dtype=np.float64)
    if x.ndim != 2 or r.shape != (len(x) - 1,):
        raise ValueError(f"features (n + 1, d) go with rewards (n,), got shapes {x.shape} and {r.shape}")
    if not (np.isfinite(x).all() and np.isfinite(r).all()):
        raise ValueError("features and rewards must be finite numbers")
    c = np.ones(len(x)) if continues is None else np.asarray(continues, dtype=np.float64)
    is_source = np.arange(len(x)) < len(x) - 1 if source_mask is None else np.asarray(source_mask, dtype=bool)
    if c.shape != (len(x),) or is_source.shape != (len(x),):
        raise ValueError(f"continues and source_mask must have shape ({len(x)},), got {c.shape} and {is_source.shape}")
    if is_source[-1]:
        raise ValueError("the last column has no successor, so source_mask must be False there")
    return x, r, c, np.flatnonzero(is_source)


def _query_rows(queries: ArrayLike, feature_dim: int) -> FloatArray:
    asked = np.asarray(queries, dtype=np.float64)
    if asked.ndim != 2 or asked.shape[1] != feature_dim:
        raise ValueError(f"queries must have shape (m, {feature_dim}), got {asked.shape}")
    return asked
