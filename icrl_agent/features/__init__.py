"""Feature maps: how an observation becomes the vector that stands in a prompt column.

A feature map is a small frozen object: callable on a batch of observations, with a fixed output dimension
``dim`` and a JSON-able ``spec()`` from which ``from_spec`` rebuilds it exactly. Nothing here knows the prompt.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Protocol, runtime_checkable

import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike

from icrl_agent.features._checks import FloatArray
from icrl_agent.features.adaptive import fit_fourier
from icrl_agent.features.fourier import RandomFourier
from icrl_agent.features.pairs import PairFeatures
from icrl_agent.features.state import OneHot, RandomUniform, RandomUnit, Table

__all__ = [
    "FeatureMap",
    "OneHot",
    "PairFeatures",
    "RandomFourier",
    "RandomUniform",
    "RandomUnit",
    "Table",
    "feature_map_for",
    "fit_fourier",
    "from_spec",
]


@runtime_checkable
class FeatureMap(Protocol):
    """Anything that turns a batch of observations into feature vectors and can be rebuilt from its ``spec()``."""

    @property
    def dim(self) -> int:
        """Length of a feature vector."""
        ...

    def __call__(self, observations: ArrayLike) -> FloatArray:
        """Map a batch of observations to float64 features of shape (batch, dim)."""
        ...

    def spec(self) -> dict[str, Any]:
        """Return the JSON-able description that ``from_spec`` reads."""
        ...


_KINDS: dict[str, Any] = {
    cls.kind: cls for cls in (OneHot, RandomUnit, RandomUniform, Table, RandomFourier, PairFeatures)
}


def from_spec(spec: Mapping[str, Any]) -> FeatureMap:
    """Rebuild a feature map from what its ``spec()`` returned.

    Raises:
        ValueError: for an unknown ``kind`` or arguments that the kind does not take.

    >>> from_spec({"kind": "one_hot", "n_states": 3}).dim
    3
    """
    if not isinstance(spec, Mapping):
        raise ValueError(f"a feature map's spec is a dictionary with a kind, got {spec!r}")
    arguments = {name: from_spec(value) if isinstance(value, Mapping) else value for name, value in spec.items()}
    kind = arguments.pop("kind", None)
    if kind not in _KINDS:
        raise ValueError(f"unknown feature map kind {kind!r}, known kinds: {', '.join(sorted(_KINDS))}")
    try:
        feature_map: FeatureMap = _KINDS[kind](**arguments)
    except TypeError as error:
        raise ValueError(f"feature map {kind!r} does not take these arguments: {error}") from error
    return feature_map


def feature_map_for(space: spaces.Space[Any], dim: int = 32, seed: int = 0) -> FeatureMap:
    """Pick the default feature map for an observation space, before anything is observed.

    Discrete spaces get ``RandomUnit``, Box spaces of vectors ``RandomFourier`` (shifted and scaled to unit
    variance of the uniform distribution over the bounds where they are finite, lengthscale sqrt(k) for k numbers).

    Raises:
        TypeError: for any other space, images (more than one axis) included.

    >>> feature_map_for(spaces.Discrete(5), dim=8)
    RandomUnit(n_states=5, dim=8, seed=0, start=0)
    """
    if isinstance(space, spaces.Discrete):
        return RandomUnit(int(space.n), dim, seed, start=int(space.start))
    if isinstance(space, spaces.Box) and len(space.shape) <= 1 and np.issubdtype(space.dtype, np.number):
        low, high = np.float64(space.low).reshape(-1), np.float64(space.high).reshape(-1)
        # Bounds as wide as a float can tell stand for "unbounded".
        bounded = (low > -1e30) & (high < 1e30) & (high > low)
        shift = np.where(bounded, (np.where(bounded, low, 0) + np.where(bounded, high, 0)) / 2, 0.0)
        scale = np.where(bounded, (np.where(bounded, high, 1) - np.where(bounded, low, 0)) / math.sqrt(12), 1.0)
        return RandomFourier(tuple(shift), tuple(scale), dim, lengthscale=math.sqrt(len(low)), seed=seed)
    raise TypeError(
        f"no default features for observation space {space}: supported are Discrete and one-dimensional Box;"
        " pass a feature_map, or flatten the observation with gymnasium.wrappers.FlattenObservation"
    )
