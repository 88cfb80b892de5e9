"""Random Fourier features that take their units from the context itself."""

from __future__ import annotations

import dataclasses

import numpy as np
from numpy.typing import ArrayLike

from icrl_agent.features._checks import FloatArray
from icrl_agent.features.fourier import CONTEXT, MEDIAN, RandomFourier

__all__ = ["fit_fourier", "median_distance"]

#: The median is taken over the pairs of at most this many observations.
MOST_ROWS = 1000
#: A dimension whose standard deviation is below this part of its largest number is constant up to rounding.
ROUNDING = 1e-7


def fit_fourier(feature_map: RandomFourier, observations: ArrayLike) -> RandomFourier:
    """Put what observations say in place of ``shift="context"``, ``scale="context"`` and ``lengthscale="median"``.

    shift and scale become each dimension's mean and standard deviation (scale 1 where it is constant), lengthscale
    the median distance between two different observations in these units. The order of the observations does not
    matter.

    Args:
        feature_map: the map; numbers it already has stay.
        observations: the states that transitions leave, (n,) or (n, k), finite.

    Source: the median heuristic is Jaakkola, Diekhans and Haussler (1999).

    >>> fit_fourier(RandomFourier("context", "context", 8, "median"), [[0.0, 5.0], [2.0, 5.0]])
    RandomFourier(shift=(1.0, 5.0), scale=(1.0, 1.0), dim=8, lengthscale=2.0, seed=0)
    """
    raw = np.asarray(observations, dtype=np.float64)
    flat = raw.reshape(len(raw), -1)
    # In an order of their own, so that not even the last bit depends on the order they came in.
    flat = flat[np.lexsort(flat.T)]
    mean, deviation = flat.mean(axis=0), flat.std(axis=0)
    constant = deviation <= ROUNDING * np.abs(flat).max(axis=0)
    fitted = dataclasses.replace(
        feature_map,
        shift=tuple(mean) if feature_map.shift == CONTEXT else feature_map.shift,
        scale=tuple(np.where(constant, 1.0, deviation)) if feature_map.scale == CONTEXT else feature_map.scale,
    )
    if feature_map.lengthscale != MEDIAN:
        return fitted
    scaled = (flat - np.asarray(fitted.shift)) / np.asarray(fitted.scale)
    return dataclasses.replace(fitted, lengthscale=median_distance(scaled))


def median_distance(rows: FloatArray) -> float:
    """Median distance between two different rows of (n, k), over the pairs of at most 1000 rows; 1 if all are equal.

    >>> median_distance(np.array([[0.0], [1.0], [3.0]]))
    2.0
    """
    chosen = rows[np.random.default_rng(0).permutation(len(rows))[:MOST_ROWS]] if len(rows) > MOST_ROWS else rows
    squares = (chosen**2).sum(axis=1)
    squared = squares[:, None] + squares - 2 * chosen @ chosen.T
    distances = squared[np.triu_indices(len(chosen), k=1)]
    distances = distances[distances > ROUNDING * squares.max(initial=0.0)]
    return float(np.sqrt(np.median(distances))) if len(distances) else 1.0
