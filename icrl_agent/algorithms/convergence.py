"""How fast the layers converge, and how sharp attention must be: bounds that hold before anything is run.

All follow from one layer being v <- v + r_n + (gamma P_n - M_n) v (see ``kernel``).
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icrl_agent.algorithms.kernel import population_kernel

__all__ = ["assumption_sharpness", "depth_for_error", "one_hot_sharpness", "sup_norm_bound"]

#: Sharpness beyond which the exponentials of unit-norm features leave float64.
LARGEST_SHARPNESS = 1e4


def one_hot_sharpness(mu: ArrayLike, gamma: float, margin: float) -> NDArray[np.float64]:
    """Sharpness tau at which one-hot features meet Assumption 5.1 with C = ``margin`` exactly.

        M_pi(s, s) = mu(s) e^tau / (mu(s) e^tau + 1 - mu(s)) >= a = (1 + gamma) / 2 + C   for every s
        iff tau >= log( (1 - mu) / mu * a / (1 - a) ) for the smallest mu

    Args:
        mu: stationary distribution, (..., S); states of probability 0 do not count.
        gamma: discount factor in [0, 1).
        margin: C, in [0, (1 - gamma) / 2).

    Returns:
        tau, (...); at least 0.

    Raises:
        ValueError: for a margin outside its range.

    Source: Xie et al. (2026), Assumption 5.1; the closed form is ours.

    >>> round(float(one_hot_sharpness([0.05, 0.95], gamma=0.9, margin=0.03)), 2)
    6.84
    """
    target = _diagonal_needed(gamma, margin)
    probability = np.asarray(mu, dtype=np.float64)
    smallest = np.where(probability > 0, probability, np.inf).min(axis=-1)
    odds = target / (1.0 - target)
    with np.errstate(divide="ignore"):  # one state alone needs no attention
        return np.asarray(np.maximum(np.log((1.0 - smallest) / smallest * odds), 0.0))


def assumption_sharpness(features: ArrayLike, mu: ArrayLike, gamma: float, margin: float) -> float:
    """Smallest sharpness at which these features meet Assumption 5.1 with C = ``margin``, by bisection.

    Args:
        features: x, (S, d).
        mu: stationary distribution, (S,); states of probability 0 do not count.
        gamma, margin: as in ``one_hot_sharpness``.

    Returns:
        Sharpness to a relative 1e-10; inf where none is enough: attention of some state goes to another one, because
        <x(s), x(u)> >= <x(s), x(s)>.

    Raises:
        ValueError: for a margin outside its range.

    Source: ours. With equal norms the smallest diagonal grows with the sharpness, so bisection finds the place.

    >>> round(assumption_sharpness(np.eye(2), [0.05, 0.95], gamma=0.9, margin=0.03), 2)
    6.84
    >>> assumption_sharpness([[1.0], [2.0]], [0.5, 0.5], gamma=0.9, margin=0.03)
    inf
    """
    target = _diagonal_needed(gamma, margin)
    counts = np.asarray(mu, dtype=np.float64) > 0

    def met(sharpness: float) -> bool:
        return bool(np.diagonal(population_kernel(features, mu, sharpness))[counts].min() >= target)

    low, high = 0.0, 1.0
    while not met(high):
        low, high = high, 2.0 * high
        if high > LARGEST_SHARPNESS:
            return math.inf
    while high - low > 1e-10 * high:
        middle = 0.5 * (low + high)
        low, high = (low, middle) if met(middle) else (middle, high)
    return high


def sup_norm_bound(M: ArrayLike, gamma: float) -> NDArray[np.float64]:
    """Bound on the sup-norm of one layer, 2 (1 - min_s M(s, s)) + gamma, for any context.

    Row s of I + gamma P - M sums, in absolute values, to at most (1 - M(s, s)) + sum_{u != s} M(s, u) + gamma.

    Args:
        M: attention kernel, (..., S, S), rows summing to 1; every state of the context counts, left or not.
        gamma: discount factor.

    Returns:
        (...), or a 0-dimensional array.

    Source: Xie et al. (2026), proof of Theorem 2.

    >>> float(sup_norm_bound([[0.75, 0.25], [0.0, 1.0]], gamma=0.25))
    0.75
    """
    diagonal = np.diagonal(np.asarray(M, dtype=np.float64), axis1=-2, axis2=-1)
    return np.asarray(2.0 * (1.0 - diagonal.min(axis=-1)) + gamma)


def depth_for_error(contraction: float, start: float, error: float) -> int:
    """Number of layers after which an error of ``start`` is at most ``error``: start * contraction^L <= error.

    Args:
        contraction: factor per layer in (0, 1): a sup-norm bound (then certain), or the spectral radius (then up to
            a constant).
        start: error before the first layer.
        error: error allowed, above 0.

    Raises:
        ValueError: for a contraction outside (0, 1) or an error of 0 or less.

    >>> depth_for_error(0.9, start=1.0, error=0.01)
    44
    """
    if not 0 < contraction < 1 or not error > 0:
        raise ValueError(f"contraction must lie in (0, 1) and error above 0, got {contraction} and {error}")
    if start <= error:
        return 0
    return math.ceil(math.log(error / start) / math.log(contraction))


def _diagonal_needed(gamma: float, margin: float) -> float:
    if not 0 <= margin < (1.0 - gamma) / 2.0:
        raise ValueError(f"margin must lie in [0, (1 - gamma) / 2) = [0, {(1.0 - gamma) / 2.0:g}), got {margin}")
    return (1.0 + gamma) / 2.0 + margin
