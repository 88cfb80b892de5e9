"""Feature maps: how an observation becomes the vector that stands in a prompt column.

A feature map is a small frozen object: callable on a batch of observations, with a fixed output dimension
``dim`` and a JSON-able ``spec()`` from which ``from_spec`` rebuilds it exactly. Nothing here knows the prompt.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np
from gymnasium import spaces
from numpy.typing import ArrayLike, NDArray

__all__ = [
    "FeatureMap",
    "OneHot",
    "RandomFourier",
    "RandomUniform",
    "RandomUnit",
    "Table",
    "feature_map_for",
    "from_spec",
]

FloatArray = NDArray[np.float64]


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


class _StateFeatures:
    """Features looked up by a state's index: row ``observation - start`` of a table."""

    kind: ClassVar[str]
    start: int

    @property
    def rows(self) -> FloatArray:
        """The feature table, shape (n_states, dim), float64."""
        raise NotImplementedError

    def __call__(self, observations: ArrayLike) -> FloatArray:
        """Look up a batch of states, any shape of integers; returns float64 (batch, dim).

        Raises:
            TypeError: if the observations are not integers.
            ValueError: if a state lies outside ``start .. start + n_states - 1``.
        """
        states = np.asarray(observations)
        if not np.issubdtype(states.dtype, np.integer):
            raise TypeError(f"{type(self).__name__} maps integer states, got observations of dtype {states.dtype}")
        rows = self.rows
        index = states.reshape(-1) - self.start
        outside = (index < 0) | (index >= len(rows))
        if outside.any():
            bad = int(states.reshape(-1)[outside][0])
            last = self.start + len(rows) - 1
            raise ValueError(f"state {bad} has no features: {type(self).__name__} knows states {self.start} to {last}")
        return np.asarray(rows[index])


def _check_positive(**sizes: int) -> None:
    for name, value in sizes.items():
        if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
            raise ValueError(f"{name} must be an integer of at least 1, got {value!r}")


def _check_seed(seed: int) -> None:
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer) or seed < 0:
        raise ValueError(f"seed must be a non-negative integer, got {seed!r}")


@dataclass(frozen=True)
class OneHot(_StateFeatures):
    """One-hot features: x(s) = e_s, dimension ``n_states``. With them linear methods are tabular methods.

    Args:
        n_states: number of states, at least 1.
        start: the smallest observation (a ``Discrete`` space's ``start``).

    >>> OneHot(3)([2, 0])
    array([[0., 0., 1.],
           [1., 0., 0.]])
    """

    n_states: int
    start: int = 0
    kind: ClassVar[str] = "one_hot"

    def __post_init__(self) -> None:
        _check_positive(n_states=self.n_states)

    @property
    def dim(self) -> int:
        """Length of a feature vector: the number of states."""
        return int(self.n_states)

    @cached_property
    def rows(self) -> FloatArray:
        """The identity matrix."""
        return np.eye(self.n_states)

    def spec(self) -> dict[str, Any]:
        """Return the JSON-able description that ``from_spec`` reads."""
        return {"kind": self.kind, "n_states": int(self.n_states), "start": int(self.start)}


@dataclass(frozen=True)
class _RandomStateFeatures(_StateFeatures):
    n_states: int
    dim: int
    seed: int = 0
    start: int = 0

    def __post_init__(self) -> None:
        _check_positive(n_states=self.n_states, dim=self.dim)
        _check_seed(self.seed)
        for name in ("n_states", "dim", "seed", "start"):
            object.__setattr__(self, name, int(getattr(self, name)))

    def spec(self) -> dict[str, Any]:
        """Return the JSON-able description that ``from_spec`` reads."""
        return {"kind": self.kind, **asdict(self)}


class RandomUnit(_RandomStateFeatures):
    """Random directions on the unit sphere: x(s) = z_s / |z_s| with z_s ~ N(0, I_dim). The default for states.

    <x(s), x(s)> = 1 and <x(s), x(s')> is about N(0, 1/dim), so a sharpness of a few units makes the attention
    kernel nearly diagonal. A pure function of (n_states, dim, seed); state s keeps its row when n_states grows.

    Args:
        n_states: number of states, at least 1.
        dim: length of a feature vector, at least 1.
        seed: non-negative integer; picks the directions.
        start: the smallest observation (a ``Discrete`` space's ``start``).

    >>> import numpy as np
    >>> np.linalg.norm(RandomUnit(10, dim=32, seed=0)([0, 9]), axis=1).round(12)
    array([1., 1.])
    """

    kind: ClassVar[str] = "random_unit"

    @cached_property
    def rows(self) -> FloatArray:
        """The feature table, shape (n_states, dim), unit-norm rows."""
        rows = np.random.default_rng(self.seed).standard_normal((self.n_states, self.dim))
        return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True))


class RandomUniform(_RandomStateFeatures):
    """Independent features x(s)_i ~ U(-1, 1), the features of the authors' experiments.

    Args:
        n_states: number of states, at least 1.
        dim: length of a feature vector, at least 1.
        seed: non-negative integer; picks the numbers.
        start: the smallest observation (a ``Discrete`` space's ``start``).

    >>> RandomUniform(5, dim=4, seed=0)([3]).shape
    (1, 4)
    """

    kind: ClassVar[str] = "random_uniform"

    @cached_property
    def rows(self) -> FloatArray:
        """The feature table, shape (n_states, dim), entries in (-1, 1)."""
        return np.random.default_rng(self.seed).uniform(-1.0, 1.0, (self.n_states, self.dim))


@dataclass(frozen=True, eq=False)
class Table(_StateFeatures):
    """Features given as an array, one row per state.

    Args:
        array: finite numbers, shape (n_states, dim).
        start: the smallest observation (a ``Discrete`` space's ``start``).

    Raises:
        ValueError: if the array is not two-dimensional or holds a number that is not finite.

    >>> Table([[1.0, 0.0], [0.5, 0.5]])([1])
    array([[0.5, 0.5]])
    """

    array: ArrayLike
    start: int = 0
    kind: ClassVar[str] = "table"

    def __post_init__(self) -> None:
        rows = np.array(self.array, dtype=np.float64)
        if rows.ndim != 2 or rows.size == 0:
            raise ValueError(f"a feature table has shape (n_states, dim), got an array of shape {rows.shape}")
        if not np.isfinite(rows).all():
            raise ValueError(
                f"a feature table holds finite numbers, row {np.argwhere(~np.isfinite(rows))[0][0]} does not"
            )
        rows.setflags(write=False)
        object.__setattr__(self, "array", rows)

    @property
    def dim(self) -> int:
        """Length of a feature vector: the number of columns."""
        return int(self.rows.shape[1])

    @property
    def rows(self) -> FloatArray:
        """The feature table, shape (n_states, dim), read-only."""
        return self.array  # type: ignore[return-value]

    def spec(self) -> dict[str, Any]:
        """Return the JSON-able description that ``from_spec`` reads."""
        return {"kind": self.kind, "array": self.rows.tolist(), "start": int(self.start)}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Table) and self.spec() == other.spec()

    __hash__ = None  # type: ignore[assignment]


@dataclass(frozen=True)
class RandomFourier:
    """Random Fourier features of a vector (or of a state's index): inner products approximate a Gaussian kernel.

    With z = (observation - shift) / scale and frequencies w_i ~ N(0, I) / lengthscale,

        x(o) = (cos w_1'z, sin w_1'z, cos w_2'z, sin w_2'z, ...) / norm,    |x(o)| = 1,
        <x(o), x(o')>  is about  exp(-|z - z'|^2 / (2 lengthscale^2)).

    Neighbouring observations therefore share what is learnt about them, which random directions never do.
    Source: Rahimi and Recht (2007), "Random Features for Large-Scale Kernel Machines", with cosine-sine pairs
    so that the norm is exactly 1.

    Args:
        shift: number or vector subtracted from an observation, observation units.
        scale: positive number or vector it is divided by, observation units.
        dim: length of a feature vector, at least 1; even numbers use whole pairs.
        lengthscale: distance in scaled units over which the kernel falls to exp(-1/2); positive.
        seed: non-negative integer; picks the frequencies.

    Raises:
        ValueError: for a size, scale or lengthscale that is not positive.

    >>> x = RandomFourier(shift=0.0, scale=1.0, dim=4096, lengthscale=1.0, seed=0)([0, 1, 5])
    >>> (x @ x.T).round(1)[0].tolist()  # exp(-1/2) is 0.61
    [1.0, 0.6, 0.0]
    """

    shift: float | tuple[float, ...]
    scale: float | tuple[float, ...]
    dim: int
    lengthscale: float = 1.0
    seed: int = 0
    kind: ClassVar[str] = "random_fourier"

    def __post_init__(self) -> None:
        _check_positive(dim=self.dim)
        for name in ("shift", "scale"):
            value = np.asarray(getattr(self, name), dtype=np.float64)
            if value.ndim > 1 or not np.isfinite(value).all() or (name == "scale" and (value <= 0).any()):
                raise ValueError(f"{name} must be a finite{' positive' if name == 'scale' else ''} number or vector")
            object.__setattr__(self, name, float(value) if value.ndim == 0 else tuple(value.tolist()))
        if not (math.isfinite(self.lengthscale) and self.lengthscale > 0):
            raise ValueError(f"lengthscale must be a positive number, got {self.lengthscale!r}")
        _check_seed(self.seed)

    def __call__(self, observations: ArrayLike) -> FloatArray:
        """Map observations of shape (batch,) or (batch, k) to float64 features (batch, dim).

        Raises:
            ValueError: if an observation is not finite, or its length differs from that of shift or scale.
        """
        raw = np.asarray(observations, dtype=np.float64)
        flat = raw.reshape(len(raw), -1)
        for name in ("shift", "scale"):
            size = np.size(getattr(self, name))
            if size not in (1, flat.shape[1]):
                raise ValueError(f"observations have {flat.shape[1]} numbers each, {name} has {size}")
        if not np.isfinite(flat).all():
            row, column = np.argwhere(~np.isfinite(flat))[0]
            raise ValueError(f"observation {row} is not finite in dimension {column}: {flat[row, column]}")
        scaled = (flat - np.asarray(self.shift)) / np.asarray(self.scale)
        phase = scaled @ _frequencies((self.dim + 1) // 2, flat.shape[1], self.seed).T / self.lengthscale
        pairs = np.stack([np.cos(phase), np.sin(phase)], axis=2).reshape(len(flat), -1)[:, : self.dim]
        return np.asarray(pairs / np.linalg.norm(pairs, axis=1, keepdims=True))

    def spec(self) -> dict[str, Any]:
        """Return the JSON-able description that ``from_spec`` reads."""

        def plain(value: float | tuple[float, ...]) -> float | list[float]:
            return list(value) if isinstance(value, tuple) else value

        return {
            "kind": self.kind,
            "shift": plain(self.shift),
            "scale": plain(self.scale),
            "dim": int(self.dim),
            "lengthscale": float(self.lengthscale),
            "seed": int(self.seed),
        }


@lru_cache(maxsize=64)
def _frequencies(n_pairs: int, input_dim: int, seed: int) -> FloatArray:
    # One row per pair, so that a larger dim only appends features.
    frequencies = np.random.default_rng(seed).standard_normal((n_pairs, input_dim))
    frequencies.setflags(write=False)
    return frequencies


_KINDS: dict[str, Any] = {cls.kind: cls for cls in (OneHot, RandomUnit, RandomUniform, Table, RandomFourier)}


def from_spec(spec: Mapping[str, Any]) -> FeatureMap:
    """Rebuild a feature map from what its ``spec()`` returned.

    Raises:
        ValueError: for an unknown ``kind`` or arguments that the kind does not take.

    >>> from_spec({"kind": "one_hot", "n_states": 3}).dim
    3
    """
    arguments = dict(spec)
    kind = arguments.pop("kind", None)
    if kind not in _KINDS:
        raise ValueError(f"unknown feature map kind {kind!r}, known kinds: {', '.join(sorted(_KINDS))}")
    try:
        feature_map: FeatureMap = _KINDS[kind](**arguments)
    except TypeError as error:
        raise ValueError(f"feature map {kind!r} does not take these arguments: {error}") from error
    return feature_map


def feature_map_for(space: spaces.Space[Any], dim: int = 32, seed: int = 0) -> FeatureMap:
    """Pick the default feature map for an observation space.

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
