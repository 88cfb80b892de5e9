"""Features of a state-action pair, made from those of the observation."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icrl_agent.features._checks import FloatArray, check_positive, check_seed, check_start, generator, read_only

if TYPE_CHECKING:
    from icrl_agent.features import FeatureMap

__all__ = ["PairFeatures", "random_orthogonal"]


@dataclass(frozen=True)
class PairFeatures:
    """Features of (observation, action): the observation's, turned by a random rotation of the action's own.

        x(o, a) = Q_a x(o),        Q_a a random orthogonal matrix, uniform over all of them,
        <x(o, a), x(o', a)> = <x(o), x(o')>,
        <x(o, a), x(o', b)>  is about  N(0, 1/dim) |x(o)| |x(o')|        for a != b.

    Pairs with equal actions resemble each other as their observations do, pairs with different actions hardly at
    all, lengths stay, and so does the dimension, whatever the number of actions. Random unit features of states
    become random unit features of pairs. Source: ours.

    A pair is one row of numbers, the observation's followed by the action.

    Args:
        observation_map: feature map of the observation, a number or a vector.
        n_actions: number of actions, at least 1.
        seed: non-negative integer; picks the rotations.
        start: the smallest action (a ``Discrete`` space's ``start``).

    Raises:
        ValueError: for a size below 1 or a negative seed.

    >>> from icrl_agent.features import RandomUnit
    >>> x = PairFeatures(RandomUnit(10, dim=256), n_actions=4)([[3, 0], [3, 1], [3, 0]])
    >>> (x @ x.T).round(0)[0].tolist()
    [1.0, 0.0, 1.0]
    """

    observation_map: FeatureMap
    n_actions: int
    seed: int = 0
    start: int = 0
    kind: ClassVar[str] = "pairs"

    def __post_init__(self) -> None:
        check_positive(n_actions=self.n_actions)
        check_seed(self.seed)
        check_start(self.start)
        for name in ("n_actions", "seed", "start"):
            object.__setattr__(self, name, int(getattr(self, name)))

    @property
    def dim(self) -> int:
        """Length of a feature vector: the observation map's."""
        return self.observation_map.dim

    def __call__(self, observations: ArrayLike) -> FloatArray:
        """Map pairs given as rows (batch, k + 1), k numbers of the observation and the action, to float64 (batch, dim).

        Raises:
            ValueError: for another shape, or an action outside ``start .. start + n_actions - 1``.
        """
        rows = np.asarray(observations)
        if rows.ndim != 2 or rows.shape[1] < 2:
            raise ValueError(f"pairs have shape (batch, k + 1): observation, then action; got shape {rows.shape}")
        index = np.asarray(rows[:, -1] - self.start)
        if not np.isin(index, np.arange(self.n_actions)).all():
            bad = rows[:, -1][~np.isin(index, np.arange(self.n_actions))][0]
            last = self.start + self.n_actions - 1
            raise ValueError(f"action {bad} has no features: PairFeatures knows actions {self.start} to {last}")
        return self._turned(rows[:, :-1], index.astype(np.intp))

    def of_all_actions(self, observations: ArrayLike) -> FloatArray:
        """Map observations (batch, k) to the features of their pairs with every action, float64 (batch, A, dim)."""
        x = np.asarray(self.observation_map(np.asarray(observations)), np.float64)
        stacked = _rotations(self.n_actions, self.dim, self.seed).reshape(-1, self.dim)
        return np.asarray((x @ stacked.T).reshape(len(x), self.n_actions, self.dim))

    def spec(self) -> dict[str, Any]:
        """Return the JSON-able description that ``from_spec`` reads."""
        return {
            "kind": self.kind,
            "observation_map": self.observation_map.spec(),
            "n_actions": self.n_actions,
            "seed": self.seed,
            "start": self.start,
        }

    def _turned(self, observations: NDArray[Any], index: NDArray[np.intp]) -> FloatArray:
        x = np.asarray(self.observation_map(observations), np.float64)
        rotations = _rotations(self.n_actions, self.dim, self.seed)
        result = np.empty_like(x)
        for action in np.unique(index):
            chosen = index == action
            result[chosen] = x[chosen] @ rotations[action].T
        return result


@lru_cache(maxsize=64)
def _rotations(n_actions: int, dim: int, seed: int) -> FloatArray:
    """Orthogonal matrices (n_actions, dim, dim), one block per action, so that more actions only append."""
    return read_only(np.stack([random_orthogonal(generator(seed, block), dim) for block in range(n_actions)]))


def random_orthogonal(rng: np.random.Generator, dim: int) -> FloatArray:
    """A uniform orthogonal matrix: QR of a Gaussian matrix, with the signs that make it unique (Mezzadri 2007)."""
    Q, R = np.linalg.qr(rng.standard_normal((dim, dim)))
    return np.asarray(Q * np.sign(np.diagonal(R)))
