"""A value at every step: one history whose values are kept up to date instead of computed anew."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from icrl_agent.features import FeatureMap
from icrl_agent.streaming.layers import Depth, LayerWeights, attend, attention_by_state, error_sums
from icrl_agent.streaming.observations import (
    checked_flag,
    checked_length,
    checked_reward,
    finite_values,
    observation_key,
    observations_of,
)
from icrl_agent.streaming.sums import StateSums

__all__ = ["Stream"]

FloatArray = NDArray[np.float64]


class Stream:
    """The history of one environment, and the values that the transformer's layers give on it.

    Made by ``ICRLAgent.stream``. Equal to the literal float64 forward pass on the same window at every step. A
    transition costs O(S d) and a value O(S^2 L), or O(S^3 log L) for few states, where S counts the distinct
    observations in the window, d features and L layers; how many transitions there are does not matter. Observations
    that never repeat make S the window's length: tables of 8 (1 + W) S^2 bytes (W pairs of weights, 1 if looped), a
    value in 90 ms for 1000 columns and 60 layers on one core.

    Episodes are those of ``PromptBuffer``: after ``terminated`` nothing follows, after ``truncated`` the last state's
    value still counts, with both it terminated; ``reset`` in mid-episode is a truncation. ``context_length`` counts
    columns: the transitions, and one for the last state of every ended episode.

    Args:
        weights: of the layers.
        feature_map: callable on a batch of raw observations.
        gamma: discount factor in [0, 1]. With 1 and a context that never ends values grow with the depth.
        context_length: columns in the window, at least 1; None = everything since ``clear``.
        n_layers: depth, or "fixed_point".
        tolerance: stop after a layer that changes no value of a state in the context above it; None = run all.

    Raises:
        ValueError: for a context_length below 1.

    >>> import icrl_agent
    >>> from icrl_agent.features import OneHot
    >>> agent = icrl_agent.ICRLAgent.from_theory(feature_dim=2, sharpness=50.0)
    >>> stream = agent.stream(OneHot(2), gamma=0.5)
    >>> stream.reset(0)
    >>> stream.append(reward=1.0, next_obs=1, terminated=False, truncated=False)
    >>> stream.append(reward=2.0, next_obs=0, terminated=True, truncated=False)
    >>> stream.values([0, 1]).round(6)  # 1 + 0.5 v(1) and 2
    array([2., 2.])
    """

    def __init__(
        self,
        weights: LayerWeights,
        feature_map: FeatureMap,
        gamma: float,
        context_length: int | None,
        n_layers: Depth,
        tolerance: float | None = None,
    ) -> None:
        self.weights, self.feature_map, self.gamma = weights, feature_map, gamma
        self.context_length = checked_length(context_length)
        self.n_layers, self.tolerance = n_layers, tolerance
        self._sums = StateSums(weights.attention, self.context_length)
        self.clear()

    def clear(self) -> None:
        """Forget everything, the present state included; ``reset`` comes next."""
        self._sums.clear()
        self._present: int | None = None
        self._has_steps = self._has_ended = False
        self._shape: tuple[int, ...] | None = None
        self._integers = True
        self._values: FloatArray | None = None
        self._errors = np.zeros((1, 0))

    @property
    def n_transitions(self) -> int:
        """Transitions in the context."""
        return int(self._sums.sums.counts.sum())

    @property
    def history(self) -> StateSums:
        """The states in the context by slot, their features and sums; to read."""
        return self._sums

    @property
    def present(self) -> int | None:
        """Slot of the present state; None before the first ``reset``."""
        return self._present

    @property
    def flags(self) -> tuple[bool, bool]:
        """Whether the present episode has steps, and whether it has ended."""
        return self._has_steps, self._has_ended

    def go_on_from(self, obs: ArrayLike, has_steps: bool, has_ended: bool) -> None:
        """Be in the middle of an episode; for those who rebuild a context."""
        self._present, self._has_steps, self._has_ended = self.hold(obs), has_steps, has_ended

    def slot(self, obs: ArrayLike) -> int | None:
        """Slot of a raw observation, None if it is not in the context."""
        return self._sums.slot(self._key(obs))

    @property
    def observations(self) -> NDArray[Any]:
        """Raw observations by slot, (S, ...); those of slots that wait to be used again mean nothing."""
        return observations_of(self._sums.keys, self._integers, self._shape or ())

    def check(self, obs: ArrayLike) -> None:
        """Raise what ``reset`` would for this observation; changes nothing."""
        if self.slot(obs) is None:
            self._features(obs)

    def reset(self, obs: ArrayLike) -> None:
        """Start an episode at a raw observation; keeps the context.

        Raises:
            ValueError: for an observation of another shape or without finite features; the stream is then unchanged.
        """
        slot = self.hold(obs)
        self._values = None
        if self._present is not None:
            if self._has_steps:
                self._sums.add_end(self._present)
            else:
                self._sums.release(self._present)
        self._present = slot
        self._has_steps = self._has_ended = False

    def append(self, reward: float, next_obs: ArrayLike, terminated: bool, truncated: bool) -> None:
        """Record the transition from the present state to a raw observation.

        Raises:
            ValueError: for a reward that is not a finite float32 number, or an observation as in ``reset``.
            TypeError: for a flag that is neither True nor False. The stream is unchanged after any of these.
            RuntimeError: without a running episode (``reset`` comes first).
        """
        if self._present is None or self._has_ended:
            raise RuntimeError("append needs a running episode: call reset with its first state before")
        number = checked_reward(reward)
        ends, cut = checked_flag("terminated", terminated), checked_flag("truncated", truncated)
        slot = self.hold(next_obs)
        self._values = None
        self._sums.add(self._present, slot, number, 0.0 if ends else 1.0)
        self._present = slot
        self._has_steps, self._has_ended = True, ends or cut

    def value(self, obs: ArrayLike) -> float:
        """Value of one raw observation, seen before or not; 0 in a context without transitions.

        Raises:
            ValueError: for an observation as in ``reset``, or layers that diverge.
        """
        slot = self.slot(obs)
        return float(self._table()[slot] if slot is not None else self._values_of(self._features(obs)[None])[0])

    def values(self, queries: ArrayLike) -> FloatArray:
        """Values of a batch of raw observations, float64 (m,).

        Raises:
            ValueError: for observations as in ``reset``, or layers that diverge.
        """
        asked = np.asarray(queries)
        if asked.ndim == 0 or (self._shape is not None and asked.shape[1:] != self._shape):
            raise ValueError(f"queries must be a batch of observations of shape {self._shape}, got shape {asked.shape}")
        if not len(asked):
            return np.zeros(0)
        x = np.asarray(self.feature_map(asked), np.float64)
        if not np.isfinite(x).all():
            raise ValueError("queries must have finite features")
        return self._values_of(x)

    def _table(self) -> FloatArray:
        """Values by slot, (S,); computed once for every change of the context."""
        if self._values is None:
            history, weights = self._sums, self.weights
            sums = history.sums
            attentions = [attention_by_state(scores, sums.counts) for scores in history.scores]
            self._errors = error_sums(attentions, sums, weights.entries, self.gamma, self.n_layers, self.tolerance)
            self._values = finite_values(attend(attentions, self._errors), self.n_layers)
        return self._values

    def _values_of(self, x: FloatArray) -> FloatArray:
        """Values of any features (m, d)."""
        self._table()
        scores = x @ (self._sums.features @ self.weights.attention).swapaxes(1, 2)
        attentions = [attention_by_state(one, self._sums.sums.counts) for one in scores]
        return finite_values(attend(attentions, self._errors), self.n_layers)

    def _key(self, obs: ArrayLike) -> Hashable:
        array = np.asarray(obs)
        if self._shape is not None and array.shape != self._shape:
            raise ValueError(f"observations of this stream have shape {self._shape}, got shape {array.shape}")
        return observation_key(array)

    def _features(self, obs: ArrayLike) -> FloatArray:
        x: FloatArray = np.asarray(self.feature_map(np.asarray(obs)[None]), np.float64)[0]
        if not np.isfinite(x).all():
            raise ValueError(f"observation {obs!r} has features that are not finite")
        return x

    def hold(self, obs: ArrayLike) -> int:
        """Refer to a raw observation once more; returns its slot. For those who rebuild a context."""
        slot = self._sums.hold(self._key(obs), lambda: self._features(obs))
        self._shape, self._integers = np.shape(obs), np.asarray(obs).dtype.kind in "biu"
        return slot
