"""Feature maps of a state's index: a row of a table."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icrl_agent.features._checks import FloatArray, check_positive, check_seed, check_start, generator, read_only

__all__ = ["OneHot", "RandomUniform", "RandomUnit", "Table"]


#: Random rows are drawn in blocks of this many states.
BLOCK = 1024
#: Spaces with more states get no table, rows are drawn as they are asked for.
LARGEST_TABLE = 100_000


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
        index = states.reshape(-1).astype(np.intp) - self.start
        n_states = self._size
        outside = (index < 0) | (index >= n_states)
        if outside.any():
            bad = int(states.reshape(-1)[outside][0])
            last = self.start + n_states - 1
            raise ValueError(f"state {bad} has no features: {type(self).__name__} knows states {self.start} to {last}")
        return self._look_up(index)

    @property
    def _size(self) -> int:
        return len(self.rows)

    def _look_up(self, index: NDArray[np.intp]) -> FloatArray:
        return np.asarray(self.rows[index])


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
        check_positive(n_states=self.n_states)
        check_start(self.start)

    @property
    def dim(self) -> int:
        """Length of a feature vector: the number of states."""
        return int(self.n_states)

    @cached_property
    def rows(self) -> FloatArray:
        """The identity matrix."""
        return read_only(np.eye(self.n_states))

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
        check_positive(n_states=self.n_states, dim=self.dim)
        check_seed(self.seed)
        check_start(self.start)
        for name in ("n_states", "dim", "seed", "start"):
            object.__setattr__(self, name, int(getattr(self, name)))

    def spec(self) -> dict[str, Any]:
        """Return the JSON-able description that ``from_spec`` reads."""
        return {"kind": self.kind, **asdict(self)}

    @property
    def _size(self) -> int:
        return self.n_states

    def _draw(self, rng: np.random.Generator, n_rows: int) -> FloatArray:
        """Draw rows one after another."""
        raise NotImplementedError

    @cached_property
    def rows(self) -> FloatArray:
        """The feature table, shape (n_states, dim), float64, read-only."""
        blocks = -(-self.n_states // BLOCK)
        return read_only(np.concatenate([self._block(b) for b in range(blocks)])[: self.n_states])

    def _look_up(self, index: NDArray[np.intp]) -> FloatArray:
        if self.n_states <= LARGEST_TABLE:
            return np.asarray(self.rows[index])
        # Of a very large space only the blocks that are asked for are drawn.
        blocks, place = np.divmod(index, BLOCK)
        wanted, which = np.unique(blocks, return_inverse=True)
        return np.concatenate([self._block(int(b)) for b in wanted])[which * BLOCK + place]

    def _block(self, number: int) -> FloatArray:
        """Rows number * BLOCK and on; their own stream, so a state's row does not depend on n_states."""
        return self._draw(generator(self.seed, number), BLOCK)


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

    def _draw(self, rng: np.random.Generator, n_rows: int) -> FloatArray:
        rows = rng.standard_normal((n_rows, self.dim))
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

    def _draw(self, rng: np.random.Generator, n_rows: int) -> FloatArray:
        return rng.uniform(-1.0, 1.0, (n_rows, self.dim))


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
        check_start(self.start)
        object.__setattr__(self, "array", read_only(rows))

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
