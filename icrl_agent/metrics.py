"""Error measures between estimated and true values."""

from __future__ import annotations

import functools
import math

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["centred_msve", "geometric_mean", "msve", "normalized_msve", "student_quantile"]


def msve(values: ArrayLike, true_values: ArrayLike, weights: ArrayLike) -> float:
    """Mean squared value error, sum_s w(s) (v_hat(s) - v(s))^2 with the weights normalised to sum 1.

    Args:
        values: estimates v_hat, shape (S,), reward units.
        true_values: v, shape (S,).
        weights: non-negative, shape (S,), not all 0; usually the stationary distribution. A state of weight 0
            does not count, whatever its values are.

    Raises:
        ValueError: if shapes differ, a weight is negative or not finite, or the weights sum to 0.

    >>> msve([1.0, 5.0], [0.0, 5.0], [0.25, 0.75])
    0.25
    """
    estimate, truth, weight = _weighted(values, true_values, weights)
    return float(weight @ (estimate - truth) ** 2)


def normalized_msve(values: ArrayLike, true_values: ArrayLike, weights: ArrayLike) -> float:
    """``msve`` divided by the weighted mean square of v; 1 is the error of answering 0 everywhere.

    NaN if v is 0 wherever the weight is not. Arguments and errors as in ``msve``.

    >>> normalized_msve([0.0, 0.0], [3.0, 4.0], [0.5, 0.5])
    1.0
    """
    estimate, truth, weight = _weighted(values, true_values, weights)
    return _ratio(float(weight @ (estimate - truth) ** 2), float(weight @ truth**2))


def centred_msve(values: ArrayLike, true_values: ArrayLike, weights: ArrayLike) -> float:
    """``msve`` divided by the weighted variance of v; 1 is the error of the best constant.

    NaN if v is constant wherever the weight is not 0. Arguments and errors as in ``msve``.

    >>> centred_msve([2.0, 2.0], [1.0, 3.0], [0.5, 0.5])
    1.0
    """
    estimate, truth, weight = _weighted(values, true_values, weights)
    varies = truth.min() < truth.max()  # rounding alone may give a constant a tiny variance
    variance = float(weight @ (truth - weight @ truth) ** 2) if varies else 0.0
    return _ratio(float(weight @ (estimate - truth) ** 2), variance)


def geometric_mean(ratios: ArrayLike) -> tuple[float, float]:
    """Geometric mean of positive ratios and its standard error (delta method: mean times s.e. of the logs).

    Raises:
        ValueError: for an empty input or a ratio that is not positive and finite.

    >>> geometric_mean([0.5, 2.0])[0]
    1.0
    """
    array = np.asarray(ratios, dtype=np.float64)
    if array.size == 0 or not ((array > 0) & np.isfinite(array)).all():
        raise ValueError("a geometric mean needs at least one ratio, all of them positive and finite")
    logs = np.log(array)
    mean = float(np.exp(logs.mean()))
    stderr = float(mean * logs.std(ddof=1) / np.sqrt(logs.size)) if logs.size > 1 else float("nan")
    return mean, stderr


def _ratio(error: float, scale: float) -> float:
    return error / scale if scale > 0 else float("nan")


@functools.cache
def student_quantile(probability: float, degrees: int) -> float:
    """Quantile of Student's t, for probabilities above one half.

    With t = sqrt(degrees) tan(a), the angle a has a density proportional to cos(a)^(degrees - 1).

    >>> [round(student_quantile(0.995, degrees), 3) for degrees in (2, 9, 9999)]
    [9.925, 3.25, 2.576]
    """
    angle = np.linspace(0.0, np.pi / 2, 200_001)
    density = np.cos(angle) ** (degrees - 1)
    mass = np.concatenate([[0.0], np.cumsum(density[1:] + density[:-1])])
    return float(math.sqrt(degrees) * np.tan(np.interp(probability - 0.5, 0.5 * mass / mass[-1], angle)))


def _weighted(
    values: ArrayLike, true_values: ArrayLike, weights: ArrayLike
) -> tuple[NDArray[np.float64], NDArray[np.float64], NDArray[np.float64]]:
    estimate, truth, weight = (np.asarray(a, dtype=np.float64) for a in (values, true_values, weights))
    if not (estimate.shape == truth.shape == weight.shape and weight.ndim == 1):
        raise ValueError(
            "values, true_values and weights must have one shape (S,),"
            f" got {estimate.shape}, {truth.shape} and {weight.shape}"
        )
    if not ((weight >= 0) & np.isfinite(weight)).all() or not weight.sum() > 0:
        raise ValueError("weights must be finite, non-negative and not all 0")
    counts = weight > 0
    return estimate[counts], truth[counts], weight[counts] / weight.sum()
