"""Norm of the expected update (NEU): how far a value function, or weights, are from where TD learning stands still.

    || E[ delta_t x(S_t) ] ||^2             first form: the update of a linear value function
    || E[ delta_t grad_theta TF(Z_t) ] ||^2   second form: the expected semi-gradient update of the weights

per task, averaged over tasks. Both are the squared norm of an expectation; that of a sample mean would be too large by
the mean's own variance, which is removed here. Source: Sutton et al. (2009); Xie et al. (2026), Theorem 3.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["linear_updates", "mean_and_stderr", "norm_of_expected_update"]

FloatArray = NDArray[np.float64]


def linear_updates(v_tm1: ArrayLike, r_t: ArrayLike, gamma: ArrayLike, v_t: ArrayLike, x_tm1: ArrayLike) -> FloatArray:
    """Mean over steps of delta_t x(S_{t-1}), delta_t = r_t + gamma v_t - v_tm1.

    Args:
        v_tm1: value of the states left, (..., W).
        r_t: rewards, (..., W).
        gamma: discount factor, broadcast to these.
        v_t: value of the states entered, (..., W).
        x_tm1: features of the states left, (..., W, d).

    Returns:
        (..., d).

    >>> linear_updates([1.0, 0.0], [0.0, 2.0], 0.5, [2.0, 2.0], [[1.0, 0.0], [0.0, 1.0]])
    array([0. , 1.5])
    """
    delta = np.asarray(r_t) + np.asarray(gamma) * np.asarray(v_t) - np.asarray(v_tm1)
    return np.asarray((delta[..., None] * np.asarray(x_tm1)).mean(axis=-2))


def norm_of_expected_update(updates: ArrayLike) -> FloatArray:
    """Unbiased estimate of || E u ||^2 per task from K independent samples of u.

        ( || sum_k u_k ||^2 - sum_k || u_k ||^2 ) / (K (K - 1)),    the mean of <u_j, u_k> over pairs j != k

    Args:
        updates: u, (..., K, p), K at least 2.

    Returns:
        (...); it may be negative where the expectation is about 0.

    Raises:
        ValueError: for fewer than two samples.

    Source: ours.

    >>> norm_of_expected_update([[3.0, 4.0], [3.0, 4.0]])
    array(25.)
    """
    samples = np.asarray(updates, dtype=np.float64)
    n_samples = samples.shape[-2]
    if n_samples < 2:
        raise ValueError(f"an expectation's squared norm needs at least 2 independent samples, got {n_samples}")
    total = (samples.sum(axis=-2) ** 2).sum(axis=-1)
    own = (samples**2).sum(axis=(-2, -1))
    return np.asarray((total - own) / (n_samples * (n_samples - 1)))


def mean_and_stderr(per_task: ArrayLike) -> tuple[float, float]:
    """NEU, the mean over tasks, with its standard error over tasks.

    >>> mean_and_stderr([1.0, 3.0])
    (2.0, 1.0)
    """
    values = np.asarray(per_task, dtype=np.float64)
    return float(values.mean()), float(values.std(ddof=1) / math.sqrt(values.size))
