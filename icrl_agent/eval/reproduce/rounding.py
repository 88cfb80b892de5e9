"""How far two float computations of the same layers may differ: a first-order running error bound.

A layer is v <- T v + b. If layer j adds a rounding error of at most e_j to every value, the error after l layers is at
most sum_{j < l} ||T^(l-1-j)||_inf e_j. Source: Higham, Accuracy and Stability of Numerical Algorithms, chapter 3.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

__all__ = ["layer_error", "propagated"]

FloatArray = NDArray[np.float64]


def layer_error(
    unit: float,
    n_sources: int,
    feature_dim: int,
    largest_score: FloatArray,
    td_scale: FloatArray,
    value_scale: FloatArray,
) -> FloatArray:
    """Rounding error of one layer's values.

    Scores are sums of feature_dim + 3 products, taken twice (x' A, then x' A x), so their error is at most
    2 (feature_dim + 4) u largest_score, which is the relative error of the exponentials; their sum, the quotient and
    the weighted sum of TD errors add n_sources u each at most.

    Args:
        unit: u, half the machine epsilon of the dtype.
        n_sources: n.
        feature_dim: d.
        largest_score: max |g|, (B,).
        td_scale: the largest |R| + |target| + |current| of each layer, (L, B).
        value_scale: the largest |v| of each layer, (L, B).
    """
    weights = 4 * (feature_dim + 4) * unit * largest_score + (2 * n_sources + 12) * unit
    return weights * td_scale + unit * value_scale


def propagated(T: FloatArray, local: FloatArray) -> FloatArray:
    """Error after 1, ..., L layers, (L, B), from T (B, N, N) and each layer's own error (L, B).

    >>> propagated(np.array([[[0.5]]]), np.array([[1.0], [1.0], [1.0]]))[:, 0]
    array([1.  , 1.5 , 1.75])
    """
    n_layers = len(local)
    norms, power = np.empty_like(local), np.broadcast_to(np.eye(T.shape[1]), T.shape)
    for k in range(n_layers):
        norms[k] = np.abs(power).sum(axis=2).max(axis=1)
        power = power @ T
    return np.stack([(norms[: layer + 1][::-1] * local[: layer + 1]).sum(axis=0) for layer in range(n_layers)])
