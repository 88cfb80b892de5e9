"""A value for many environments at every step, all of them in one batch of small matrices."""

from __future__ import annotations

from collections.abc import Hashable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icrl_agent.features import FeatureMap
from icrl_agent.streaming.layers import Depth, LayerWeights, attend, attention_by_state, error_sums
from icrl_agent.streaming.observations import (
    checked_flags,
    checked_length,
    checked_rewards,
    finite_values,
    observation_keys,
)
from icrl_agent.streaming.vector_sums import VectorSums

__all__ = ["VectorStream"]

FloatArray = NDArray[np.float64]
BoolArray = NDArray[np.bool_]
IntArray = NDArray[np.intp]

#: Largest number of entries of C, num_envs x S x S: 1 GiB.
LARGEST_TABLE = 2**27


class VectorStream:
    """``num_envs`` independent histories, one per environment: ``Stream`` with a leading axis of environments.

    Made by ``ICRLAgent.vector_stream``. Calls take arrays with one row per environment and, where given, a boolean
    ``where`` (num_envs,) that selects the environments that are meant; the others stay as they are. A step costs
    O(S^3 log L) per environment for few states, else O(S^2 L), whatever the length of the histories.

    The environments share one table of the S distinct observations that any of them has shown, and it never shrinks:
    this is for observations that repeat. Where all of them differ, keep one ``Stream`` per environment.

    Args:
        weights: of the layers.
        feature_map: callable on a batch of raw observations.
        gamma, context_length, n_layers, tolerance: as in ``Stream``.
        num_envs: number of environments, at least 1.

    Raises:
        ValueError: for a context_length or num_envs below 1.

    >>> import icrl_agent
    >>> from icrl_agent.features import OneHot
    >>> agent = icrl_agent.ICRLAgent.from_theory(feature_dim=2, sharpness=50.0)
    >>> stream = agent.vector_stream(2, OneHot(2), gamma=0.5)
    >>> stream.reset([0, 1])
    >>> stream.append(rewards=[1.0, 2.0], next_obs=[1, 1], terminated=[True, True], truncated=[False, False])
    >>> stream.value([0, 1])
    array([1., 2.])
    """

    def __init__(
        self,
        weights: LayerWeights,
        feature_map: FeatureMap,
        gamma: float,
        context_length: int | None,
        n_layers: Depth,
        tolerance: float | None,
        num_envs: int,
    ) -> None:
        if isinstance(num_envs, bool) or not isinstance(num_envs, int | np.integer) or num_envs < 1:
            raise ValueError(f"num_envs must be an integer of at least 1, got {num_envs!r}")
        self.weights, self.feature_map, self.gamma = weights, feature_map, gamma
        self.context_length, self.num_envs = checked_length(context_length), int(num_envs)
        self.n_layers, self.tolerance = n_layers, tolerance
        self._values: FloatArray | None = None
        self._clear_all()

    def clear(self, where: BoolArray | None = None) -> None:
        """Forget everything, the present states included; ``reset`` comes next."""
        self._values = None
        if where is None:
            self._clear_all()
            return
        chosen = self._chosen(where)
        self._sums.clear(chosen)
        self._present[chosen] = -1
        self._has_steps[chosen] = self._has_ended[chosen] = False

    def _clear_all(self) -> None:
        n_weights, feature_dim, _ = self.weights.attention.shape
        self._sums = VectorSums(self.num_envs, self.context_length)
        self._slot_of: dict[Hashable, int] = {}
        self._shape: tuple[int, ...] | None = None
        self._features = np.zeros((0, feature_dim))
        self._scores = np.zeros((n_weights, 0, 0))
        self._errors = np.zeros((n_weights, self.num_envs, 0))
        self._present = np.full(self.num_envs, -1)
        self._has_steps, self._has_ended = np.zeros((2, self.num_envs), bool)

    @property
    def n_transitions(self) -> NDArray[np.int64]:
        """Transitions in each context, (num_envs,)."""
        return np.asarray(self._sums.sums.counts.sum(axis=1), np.int64)

    def reset(self, obs: ArrayLike, where: BoolArray | None = None) -> None:
        """Start episodes at raw observations (num_envs, ...); keeps the contexts.

        Raises:
            ValueError: for observations of another shape, without finite features, or too many distinct ones; the
                stream is then unchanged.
        """
        chosen = self._chosen(where)
        slots = self._hold(self._rows(obs)[chosen])
        self._values = None
        self._sums.add_end(chosen[self._has_steps[chosen]])
        self._present[chosen] = slots
        self._has_steps[chosen] = self._has_ended[chosen] = False

    def append(
        self,
        rewards: ArrayLike,
        next_obs: ArrayLike,
        terminated: ArrayLike,
        truncated: ArrayLike,
        where: BoolArray | None = None,
    ) -> None:
        """Record one transition per environment, rewards and flags (num_envs,), next observations (num_envs, ...).

        Raises:
            ValueError: for a reward that is not a finite float32 number, or observations as in ``reset``.
            TypeError: for a flag that is neither True nor False. The stream is unchanged after any of these.
            RuntimeError: if a chosen environment has no running episode (``reset`` comes first).
        """
        chosen = self._chosen(where)
        if (self._present[chosen] < 0).any() or self._has_ended[chosen].any():
            raise RuntimeError("append needs a running episode: call reset with its first state before")
        numbers = checked_rewards(rewards, chosen, self.num_envs)
        ends = checked_flags("terminated", terminated, self.num_envs)[chosen]
        cuts = checked_flags("truncated", truncated, self.num_envs)[chosen]
        slots = self._hold(self._rows(next_obs)[chosen])
        self._values = None
        self._sums.add(chosen, self._present[chosen], slots, numbers, np.where(ends, 0.0, 1.0))
        self._present[chosen] = slots
        self._has_steps[chosen], self._has_ended[chosen] = True, ends | cuts

    def value(self, obs: ArrayLike) -> FloatArray:
        """Value of one raw observation per environment in its own context, (num_envs, ...) -> float64 (num_envs,).

        Raises:
            ValueError: for observations as in ``reset``, or layers that diverge.
        """
        rows = self._rows(obs)
        slots = self._slots(rows)
        known = slots >= 0
        table = self._table()
        values = np.zeros(self.num_envs)
        values[known] = table[known, slots[known]]
        if not known.all():
            new = np.flatnonzero(~known)
            values[new] = np.diagonal(self._values_of(self._mapped(rows[new]), new))
        return values

    def values(self, queries: ArrayLike) -> FloatArray:
        """Values of the same raw observations (m, ...) in every context, float64 (num_envs, m).

        Raises:
            ValueError: for observations as in ``reset``, or layers that diverge.
        """
        asked = np.asarray(queries)
        if asked.ndim == 0 or (self._shape is not None and asked.shape[1:] != self._shape):
            raise ValueError(f"queries must be a batch of observations of shape {self._shape}, got shape {asked.shape}")
        if not len(asked):
            return np.zeros((self.num_envs, 0))
        return self._values_of(self._mapped(asked), np.arange(self.num_envs))

    def _table(self) -> FloatArray:
        """Values by environment and state, (E, S); computed once for every change of a context."""
        if self._values is None:
            sums, weights = self._sums.sums, self.weights
            attentions = [attention_by_state(scores, sums.counts) for scores in self._scores]
            self._errors = error_sums(attentions, sums, weights.entries, self.gamma, self.n_layers, self.tolerance)
            self._values = finite_values(attend(attentions, self._errors), self.n_layers)
        return self._values

    def _values_of(self, x: FloatArray, chosen: IntArray) -> FloatArray:
        """Values of any features (m, d) in the contexts of the chosen environments, (len(chosen), m)."""
        self._table()
        counts = self._sums.sums.counts[chosen]
        attentions = [attention_by_state(scores, counts) for scores in self._scores_of(x)]
        return finite_values(attend(attentions, self._errors[:, chosen]), self.n_layers)

    def _chosen(self, where: BoolArray | None) -> IntArray:
        return np.arange(self.num_envs) if where is None else np.flatnonzero(where)

    def _rows(self, obs: ArrayLike) -> NDArray[np.generic]:
        rows = np.asarray(obs)
        expected = (self.num_envs, *(self._shape if self._shape is not None else rows.shape[1:]))
        if rows.shape != expected:
            raise ValueError(f"observations must have shape {expected}, got {rows.shape}")
        return rows

    def _mapped(self, rows: NDArray[np.generic]) -> FloatArray:
        x = np.asarray(self.feature_map(rows), np.float64)
        if not np.isfinite(x).all():
            raise ValueError("observations must have finite features")
        return x

    def _scores_of(self, x: FloatArray) -> FloatArray:
        """[w, q, u] = x(u)' A_w q for features (m, d)."""
        return x @ (self._features @ self.weights.attention).swapaxes(1, 2)

    def _slots(self, rows: NDArray[np.generic]) -> IntArray:
        """Rows of the shared table, -1 for an observation that is not in it."""
        keys, _, inverse = observation_keys(rows)
        return np.array([self._slot_of.get(key, -1) for key in keys], np.intp)[inverse]

    def _hold(self, rows: NDArray[np.generic]) -> IntArray:
        """Rows of the shared table, after adding what is new to it."""
        keys, first, inverse = observation_keys(rows)
        new = [number for number, key in enumerate(keys) if key not in self._slot_of]
        if new:
            size = len(self._features) + len(new)
            if self.num_envs * size**2 > LARGEST_TABLE:
                raise ValueError(
                    f"{self.num_envs} environments have shown {size} distinct observations, too many for one table of"
                    " all pairs: keep one Stream per environment"
                )
            x = self._mapped(rows[first[new]])
            self._slot_of.update({keys[number]: len(self._features) + k for k, number in enumerate(new)})
            self._features = np.concatenate([self._features, x])
            self._scores = self._scores_of(self._features)
            self._sums.grow(size)
        self._shape = rows.shape[1:]
        return np.array([self._slot_of[key] for key in keys], np.intp)[inverse]
